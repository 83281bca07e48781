package accounts

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/waybillhq/waybill/reconcile"
)

// moments is a clock by which something happens at the n-th time that it is
// asked; the engine asks before it judges, and before it writes.
type moments struct {
	n      int
	happen func()
}

func (m *moments) Now() time.Time {
	if m.n--; m.n == 0 {
		m.happen()
	}
	return time.Now()
}

func (m *moments) Wait(context.Context, time.Duration) error { return nil }

// TestAConsumerIsNeverSetBack lets a consumer be faster at each moment of a
// rebuild, also between the reading of a row and its writing.
func TestAConsumerIsNeverSetBack(t *testing.T) {
	for _, tt := range []struct {
		name     string
		before   string   // the read model's row, as "version"; empty: none
		consumer []string // what it does in the meantime
		want     string
	}{
		{"update", "1", []string{"INSERT INTO l VALUES ('k', 'changed', 's3', 3)", "UPDATE r SET status = 's3', version = 3"}, "s3 3"},
		{"insert", "", []string{"INSERT INTO l VALUES ('k', 'changed', 's3', 3)", "INSERT INTO r VALUES ('k', 's3', 3)"}, "s3 3"},
		{"delete", "1", []string{"INSERT INTO l VALUES ('k', 'deleted', '', 3)", "DELETE FROM r"}, ""},
		{"insert and delete", "", []string{"INSERT INTO l VALUES ('k', 'deleted', '', 3)"}, ""},
	} {
		for moment, more := 1, true; more; moment++ {
			t.Run(fmt.Sprintf("%s at moment %d", tt.name, moment), func(t *testing.T) {
				d := open(t, reconcile.SQLite)
				exec(t, d, "CREATE TABLE l (id TEXT NOT NULL, kind TEXT NOT NULL, status TEXT, version INTEGER NOT NULL)",
					"CREATE TABLE r (id TEXT NOT NULL PRIMARY KEY, status TEXT, version INTEGER NOT NULL)",
					"INSERT INTO l VALUES ('k', 'changed', 's1', 1), ('k', 'changed', 's2', 2)")
				if tt.before != "" {
					exec(t, d, "INSERT INTO r VALUES ('k', 's1', "+tt.before+")")
				}
				happened := false
				clock := &moments{n: moment, happen: func() { happened = true; exec(t, d, tt.consumer...) }}
				e, err := reconcile.New(reconcile.Check{
					Name: "race", Key: []reconcile.KeyPart{{Name: "id"}}, Compare: []reconcile.Column{{Name: "status"}},
					Log:  &reconcile.Log{Table: reconcile.Table{Database: "d", Table: "l", Version: "version"}, Type: "kind", Deletes: []string{"deleted"}},
					Read: &reconcile.Table{Database: "d", Table: "r", Version: "version"},
				}, reconcile.Databases{"d": d}, &reconcile.Config{Clock: clock})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := e.Rebuild(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				if more = happened; !more { // the rebuild has had all its moments
					if moment <= 4 {
						t.Fatalf("only %d moments, none of them before the writing", moment-1)
					}
					return
				}
				got := ""
				rows, err := d.DB.QueryContext(t.Context(), "SELECT status || ' ' || version FROM r")
				if err != nil {
					t.Fatal(err)
				}
				defer rows.Close()
				for rows.Next() {
					if err := rows.Scan(&got); err != nil {
						t.Fatal(err)
					}
				}
				if err := rows.Err(); err != nil {
					t.Fatal(err)
				}
				if got != tt.want {
					t.Errorf("the read model has %q, want %q", got, tt.want)
				}
			})
		}
	}
}
