package accounts

import (
	"testing"
	"time"

	"github.com/waybillhq/waybill/reconcile"
)

// TestAPayloadThatCannotBeReadIsNeverWritten has events whose payload is no
// JSON, and business rows and a read model that happen to hold what a report
// says of them.
func TestAPayloadThatCannotBeReadIsNeverWritten(t *testing.T) {
	const notice = "(the payload is no JSON)"
	db := open(t, reconcile.SQLite)
	exec(t, db, "CREATE TABLE w (id TEXT NOT NULL PRIMARY KEY, content TEXT, version INTEGER NOT NULL)",
		"CREATE TABLE l (id TEXT NOT NULL PRIMARY KEY, body TEXT, version INTEGER NOT NULL)",
		"CREATE TABLE r (id TEXT NOT NULL PRIMARY KEY, content TEXT, version INTEGER NOT NULL)",
		"INSERT INTO l VALUES ('absent', '{', 1), ('notice', 'none', 1), ('there', NULL, 1)",
		"INSERT INTO w VALUES ('absent', 'x', 1), ('notice', '"+notice+"', 1), ('there', 'x', 1)",
		"INSERT INTO r VALUES ('notice', '"+notice+"', 1), ('there', 'x', 1)")
	check := &reconcile.Check{
		Name: "payloads", Key: []reconcile.KeyPart{{Name: "id"}}, Compare: []reconcile.Column{{Name: "content"}},
		Write:   &reconcile.Table{Database: "write", Table: "w", Version: "version"},
		Log:     &reconcile.Log{Table: reconcile.Table{Database: "write", Table: "l", Version: "version"}, Payload: "body"},
		Read:    &reconcile.Table{Database: "read", Table: "r", Version: "version"},
		Confirm: []time.Duration{},
	}
	want := "MISMATCH_WRITE absent\nMISMATCH_WRITE notice\nMISMATCH_WRITE there\nMISMATCH_READ absent\nMISMATCH_READ notice\nMISMATCH_READ there\n"
	if got := listed(run(t, check, db, db)); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	rebuilt, err := engine(t, check, db, db).Rebuild(t.Context(), nil)
	if err != nil || rebuilt.Written != 0 || len(rebuilt.Refused) != 3 {
		t.Errorf("got %+v and %v, want each key refused", rebuilt, err)
	}
	var rows, kept int
	if err := db.DB.QueryRowContext(t.Context(), "SELECT COUNT(*), COUNT(*) FILTER (WHERE id = 'there' AND content = 'x') FROM r").Scan(&rows, &kept); err != nil || rows != 2 || kept != 1 {
		t.Errorf("the read model has %d rows, %d of them right (%v); want it left alone", rows, kept, err)
	}
}
