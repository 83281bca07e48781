package accounts

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/reconcile"
	"github.com/waybillhq/waybill/store"
)

// rebuildShelves is what the process that is killed does, and what is done
// after it. The log is in the read model's database.
func rebuildShelves(t *testing.T, d reconcile.Database, how string) {
	t.Helper()
	config := &reconcile.RebuildConfig{Shadow: how == "copy"}
	if how == "fold" {
		config.Fold = func(ctx context.Context, tx store.SQLTx, e waybill.Event) error {
			content, _, _ := strings.Cut(strings.TrimPrefix(string(e.Data), `{"content":"`), `"`)
			statement := types[d.Dialect].Replace(fmt.Sprintf("DELETE FROM {q}shelf view{q} WHERE id = '%s'", e.AggregateID))
			if _, err := tx.ExecContext(ctx, statement); err != nil || e.Type == "removed" {
				return err
			}
			_, err := tx.ExecContext(ctx, types[d.Dialect].Replace(fmt.Sprintf("INSERT INTO {q}shelf view{q} VALUES ('%s', '%s', %d, NULL)", e.AggregateID, content, e.AggregateVersion)))
			return err
		}
	}
	if _, err := engine(t, shelvesCheck(), d, d).Rebuild(t.Context(), config); err != nil {
		t.Fatal(err)
	}
}

// Killed at any step, the read model is as it was or as it shall be, as far as
// it is rebuilt in a copy; and the next rebuild makes it what an undisturbed one
// makes it, with nothing left over.
func TestARebuildThatIsKilledIsRunAgain(t *testing.T) {
	always := map[string][]string{
		"rows": {"reconcile-rebuild-row:2"},
		"fold": {"reconcile-fold-commit:3"},
		"copy": {"reconcile-shadow-start:1", "reconcile-shadow-start:2", "reconcile-shadow-range:2", "reconcile-shadow-followed"},
	}
	step := func(name string, numbers ...int) (points []string) {
		for _, n := range numbers {
			points = append(points, fmt.Sprintf("reconcile-shadow-%s:%d", name, n))
		}
		return points
	}
	for dialect, points := range map[reconcile.Dialect][]string{
		reconcile.SQLite:   slices.Concat(step("lock", 1), step("swap", 1, 2, 3, 4)),
		reconcile.Postgres: slices.Concat(step("lock", 3), step("swap", 3, 6)),
		reconcile.MySQL:    slices.Concat(step("lock", 2), step("swap", 1, 2), step("end", 1)),
		reconcile.MariaDB:  slices.Concat(step("lock", 2, 4), step("waiting", 1), step("swap", 2, 3), step("end", 1)),
	} {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			d := open(t, dialect)
			makeShelves(t, d, d)
			for i := range 10 {
				for v := 1; v <= 2; v++ {
					logShelf(t, d, fmt.Sprintf("s%02d", i), v, "put")
				}
			}
			logShelf(t, d, "s05", 3, "removed")
			k := task{Dialect: dialect, Address: address(t, d)}
			rebuildShelves(t, d, "rows")
			want := shelvesOf(t, d)
			for how, first := range always {
				all := first
				if how == "copy" {
					all = slices.Concat(first, points)
				}
				for _, point := range all {
					exec(t, d,
						"DELETE FROM {q}shelf view{q} WHERE id IN ('s01', 's09')",
						"UPDATE {q}shelf view{q} SET content = 'x' WHERE id = 's04'",
						"UPDATE {q}shelf view{q} SET version = 1 WHERE id = 's06'",
						"INSERT INTO {q}shelf view{q} VALUES ('s05', 'c2', 2, NULL)")
					faulty := shelvesOf(t, d)
					k.Rebuild = how
					child := k.start(t, point)
					child.reached()
					child.signal(syscall.SIGKILL)
					<-child.done
					if got := shelvesOf(t, d); how == "copy" && got != faulty && got != want {
						t.Errorf("killed at %s it is neither the old nor the new table:\n%s", point, got)
					}
					rebuildShelves(t, d, how)
					if got := shelvesOf(t, d); got != want {
						t.Errorf("killed at %s and run again:\n%s\nwant\n%s", point, got, want)
					}
					if n := leftBy(t, d); n != 0 {
						t.Errorf("killed at %s and run again: %d tables are left", point, n)
					}
				}
			}
		})
	}
}
