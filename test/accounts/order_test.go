package accounts

import (
	"fmt"
	"testing"
	"time"

	"github.com/waybillhq/waybill/reconcile"
)

// TestVersionsCountAsNumbersHoweverTheyAreSorted has a log whose versions are
// text, and one in which an event has none; PostgreSQL sorts that one last.
func TestVersionsCountAsNumbersHoweverTheyAreSorted(t *testing.T) {
	for _, c := range []struct {
		dialect reconcile.Dialect
		version string
	}{{reconcile.SQLite, "TEXT"}, {reconcile.Postgres, "TEXT"}, {reconcile.Postgres, "BIGINT"}} {
		t.Run(fmt.Sprintf("%s %s", c.dialect, c.version), func(t *testing.T) {
			db := open(t, c.dialect)
			exec(t, db, "CREATE TABLE w (id {text} NOT NULL PRIMARY KEY, content {text}, version "+c.version+")",
				"CREATE TABLE l (event_id {text} NOT NULL PRIMARY KEY, id {text} NOT NULL, content {text}, version "+c.version+")",
				"CREATE TABLE r (id {text} NOT NULL PRIMARY KEY, content {text}, version "+c.version+")",
				"INSERT INTO l VALUES ('none', 'k', 'c0', NULL)")
			const latest = 120
			for v := 1; v <= latest; v++ {
				exec(t, db, fmt.Sprintf("INSERT INTO l VALUES ('e%d', 'k', 'c%d', '%d')", v, v, v))
			}
			exec(t, db, fmt.Sprintf("INSERT INTO w VALUES ('k', 'c%d', '%d')", latest, latest), fmt.Sprintf("INSERT INTO r VALUES ('k', 'edited', '%d')", latest))
			check := &reconcile.Check{
				Name: "order", Key: []reconcile.KeyPart{{Name: "id"}}, Compare: []reconcile.Column{{Name: "content"}},
				Write:   &reconcile.Table{Database: "write", Table: "w", Version: "version"},
				Log:     &reconcile.Log{Table: reconcile.Table{Database: "write", Table: "l", Version: "version", EventID: "event_id"}},
				Read:    &reconcile.Table{Database: "read", Table: "r", Version: "version"},
				Confirm: []time.Duration{},
			}
			if got, want := listed(run(t, check, db, db)), "MISMATCH_READ k\n"; got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}
