package accounts

import (
	"testing"
	"time"

	"github.com/waybillhq/waybill/reconcile"
)

// TestAColumnThatIsNotThereIsNoText has a mistake in each name of a check in
// turn. SQLite takes a name in double quotes that it does not know for a text,
// which would be the same in all arms.
func TestAColumnThatIsNotThereIsNoText(t *testing.T) {
	mistakes := map[string]func(c *reconcile.Check){
		"compared":   func(c *reconcile.Check) { c.Compare[0].Name = "contents" },
		"key":        func(c *reconcile.Check) { c.Key[0].Name = "no" },
		"version":    func(c *reconcile.Check) { c.Write.Version = "revision" },
		"updated at": func(c *reconcile.Check) { c.Write.UpdatedAt = "changed" },
		"deleted":    func(c *reconcile.Check) { c.Read.Deleted = "gone" },
		"state":      func(c *reconcile.Check) { c.Log.State = "status" },
		"created at": func(c *reconcile.Check) { c.Log.CreatedAt = "written" },
		"where":      func(c *reconcile.Check) { c.Log.Where = map[string]string{"tenant": "a"} },
		"table":      func(c *reconcile.Check) { c.Read.Table = "view" },
	}
	for name, mistake := range mistakes {
		t.Run(name, func(t *testing.T) {
			db := open(t, reconcile.SQLite)
			const table = " (id TEXT NOT NULL PRIMARY KEY, content TEXT, version INTEGER NOT NULL)"
			for arm, content := range map[string]string{"w": "x", "l": "y", "r": "z"} {
				exec(t, db, "CREATE TABLE "+arm+table, "INSERT INTO "+arm+" VALUES ('k', '"+content+"', 1)")
			}
			check := &reconcile.Check{
				Name: "names", Key: []reconcile.KeyPart{{Name: "id"}}, Compare: []reconcile.Column{{Name: "content"}},
				Write:   &reconcile.Table{Database: "write", Table: "w", Version: "version"},
				Log:     &reconcile.Log{Table: reconcile.Table{Database: "write", Table: "l", Version: "version"}},
				Read:    &reconcile.Table{Database: "write", Table: "r", Version: "version"},
				Confirm: []time.Duration{},
			}
			mistake(check)
			report, err := engine(t, check, db, db).Run(t.Context())
			if err == nil && (report.Coverage.Complete || report.Keys > 0) {
				t.Fatalf("the run took a column that is not there for one:\n%s", listed(report))
			}
		})
	}
}
