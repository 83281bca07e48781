package pythonconsumer

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/sqlite"
)

func database(t *testing.T) (st *sqlite.Store, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "inventory.db")
	st, err := sqlite.Open(t.Context(), file, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	if err := st.Migrate(t.Context(), store.MigrateOptions{SkipOutbox: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := st.DB().ExecContext(t.Context(), `CREATE TABLE reservation (order_id TEXT PRIMARY KEY, pieces INTEGER NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	return st, file
}

// deliver runs the program over events, as the wire has them.
func deliver(t *testing.T, file, group string, events ...waybill.Event) (string, error) {
	t.Helper()
	python := testenv.Python3(t)
	var lines bytes.Buffer
	for i := range events {
		record, err := waybill.Encode(waybill.FormatEnvelope, &events[i])
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(record.Value)
		lines.WriteByte('\n')
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), python, "consumer.py", file, group)
	cmd.Stdin, cmd.Env = &lines, append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func paid(n int) waybill.Event {
	return waybill.Event{
		ID: fmt.Sprintf("e-%d", n), Type: "OrderPaid", Topic: "orders", AggregateType: "order", AggregateID: fmt.Sprintf("O-%d", n),
		AggregateVersion: 2, Data: fmt.Appendf(nil, `{"orderId":"O-%d","amount":1.10}`, n),
	}
}

func pieces(t *testing.T, db *sql.DB) string {
	t.Helper()
	var all string
	err := db.QueryRowContext(t.Context(), `SELECT COALESCE(group_concat(order_id || '=' || pieces, ' '), '') FROM (SELECT * FROM reservation ORDER BY order_id)`).Scan(&all)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestFiveOfWhichOneIsConsumedAlready(t *testing.T) {
	st, file := database(t)
	if out, err := deliver(t, file, "inventory", paid(1)); err != nil || out != "applied 1, duplicates 0" {
		t.Fatalf("%q, %v", out, err)
	}
	out, err := deliver(t, file, "inventory", paid(1), paid(2), paid(3), paid(4), paid(5))
	if err != nil || out != "applied 4, duplicates 1" {
		t.Fatalf("%q, %v", out, err)
	}
	if got, want := pieces(t, st.DB()), "O-1=1 O-2=1 O-3=1 O-4=1 O-5=1"; got != want {
		t.Errorf("reserved %s, want %s", got, want)
	}
	rows, err := st.FindConsumed(t.Context(), "e-1")
	if err != nil || len(rows) != 1 || rows[0].Duplicates != 1 || rows[0].Outcome != store.Applied || rows[0].Event.AggregateVersion != 2 {
		t.Errorf("consumed %+v, %v; want what a processor would have written, with one duplicate", rows, err)
	}
}

func TestGroupsEachHaveTheirTurn(t *testing.T) {
	st, file := database(t)
	for _, group := range []string{"inventory", "points", "inventory"} {
		if out, err := deliver(t, file, group, paid(1)); err != nil {
			t.Fatalf("%q, %v", out, err)
		}
	}
	if got, want := pieces(t, st.DB()), "O-1=2"; got != want {
		t.Errorf("reserved %s, want %s: once for each group", got, want)
	}
}

func TestFailureLeavesNeitherEffectNorID(t *testing.T) {
	st, file := database(t)
	bad := paid(1)
	bad.Data = []byte(`{"amount":1}`) // no order
	if out, err := deliver(t, file, "inventory", paid(2), bad, paid(3)); err == nil || !strings.Contains(out, "orderId") {
		t.Fatalf("%q, %v; want the failure to show", out, err)
	}
	rows, err := st.FindConsumed(t.Context(), "e-1")
	if err != nil || len(rows) != 0 {
		t.Errorf("consumed %+v, %v; want the failed event to come again", rows, err)
	}
	if got, want := pieces(t, st.DB()), "O-2=1"; got != want {
		t.Errorf("reserved %s, want %s", got, want)
	}
	// It comes again with all that followed, and this time it is whole.
	if out, err := deliver(t, file, "inventory", paid(2), paid(1), paid(3)); err != nil || out != "applied 2, duplicates 1" {
		t.Fatalf("%q, %v", out, err)
	}
}

func TestSeveralProgramsShareAnEvent(t *testing.T) {
	st, file := database(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if out, err := deliver(t, file, "inventory", paid(1), paid(2), paid(3)); err != nil {
				t.Errorf("%q, %v", out, err)
			}
		})
	}
	all.Wait()
	if got, want := pieces(t, st.DB()), "O-1=1 O-2=1 O-3=1"; got != want {
		t.Errorf("reserved %s, want %s", got, want)
	}
}
