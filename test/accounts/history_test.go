package accounts

import (
	"fmt"
	"testing"
	"time"

	"github.com/waybillhq/waybill/reconcile"
)

// TestALongOutageLeavesTheLatestSentEventItsContent has one event that was sent
// and so many behind it which wait for the relay that not all are kept.
func TestALongOutageLeavesTheLatestSentEventItsContent(t *testing.T) {
	const few, many = 100, 10_300
	for _, c := range []struct {
		name           string
		first, waiting int // sent events, and those behind them
		version        int // of those that wait; 0 for one more each
		want           string
	}{
		{"of the next versions", 1, few, 0, "MISSING_EVENT hot\nMISMATCH_READ hot\n"},
		{"of the same version", 1, few, 1, "MISMATCH_WRITE hot\nMISMATCH_READ hot\n"},
		{"more than are remembered", 5010, many - 5010, 0, "MISSING_EVENT hot\nMISMATCH_READ hot\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := open(t, reconcile.SQLite)
			exec(t, db, "CREATE TABLE w (id TEXT NOT NULL PRIMARY KEY, content TEXT, version INTEGER NOT NULL)",
				"CREATE TABLE l (event_id TEXT NOT NULL PRIMARY KEY, id TEXT NOT NULL, content TEXT, version INTEGER NOT NULL, state TEXT NOT NULL, at TEXT NOT NULL)",
				"CREATE TABLE r (id TEXT NOT NULL PRIMARY KEY, content TEXT, version INTEGER NOT NULL)",
				"CREATE INDEX l_by_id ON l (id, version)")
			exec(t, db, fmt.Sprintf(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %[1]d)
				INSERT INTO l SELECT printf('e%%05d', i), 'hot', 'c' || i, CASE WHEN i > %[2]d AND %[3]d > 0 THEN %[3]d ELSE i END,
					CASE WHEN i <= %[2]d THEN 'SENT' ELSE 'PENDING' END, '2026-01-01 00:00:00' FROM n`, c.first+c.waiting, c.first, c.version))
			exec(t, db, "INSERT INTO w SELECT 'hot', 'edited', MAX(version) FROM l", fmt.Sprintf("INSERT INTO r VALUES ('hot', 'edited', %d)", c.first))
			check := &reconcile.Check{
				Name: "history", Key: []reconcile.KeyPart{{Name: "id"}}, Compare: []reconcile.Column{{Name: "content"}},
				Write:   &reconcile.Table{Database: "write", Table: "w", Version: "version"},
				Log:     &reconcile.Log{Table: reconcile.Table{Database: "write", Table: "l", Version: "version", EventID: "event_id"}, State: "state", CreatedAt: "at"},
				Read:    &reconcile.Table{Database: "read", Table: "r", Version: "version"},
				Confirm: []time.Duration{},
			}
			if got := listed(run(t, check, db, db)); got != c.want {
				t.Errorf("got %swant %s", got, c.want)
			}
			rebuilt, err := engine(t, check, db, db).Rebuild(t.Context(), nil)
			if err != nil || rebuilt.Written != 1 {
				t.Fatalf("got %+v and %v, want the row written", rebuilt, err)
			}
			var content string
			if err := db.DB.QueryRowContext(t.Context(), "SELECT content FROM r").Scan(&content); err != nil || content != fmt.Sprint("c", c.first) {
				t.Errorf("the row has %q (%v), want the content of the latest sent event", content, err)
			}
		})
	}
}
