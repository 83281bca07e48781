package accounts

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill/reconcile"
)

// humane sorts text in each dialect as people would, which no index of bytes
// helps with.
var humane = map[reconcile.Dialect]string{
	reconcile.SQLite:   "TEXT COLLATE NOCASE",
	reconcile.Postgres: "TEXT",
	reconcile.MySQL:    "VARCHAR(100) COLLATE utf8mb4_0900_as_cs",
	reconcile.MariaDB:  "VARCHAR(100) COLLATE utf8mb4_nopad_bin",
}

// TestKeysThatNoIndexSortsBytewise has more rows than are sorted for each range.
func TestKeysThatNoIndexSortsBytewise(t *testing.T) {
	eachPair(t, func(t *testing.T, write, read reconcile.Database) {
		exec(t, write,
			"CREATE TABLE w (id "+humane[write.Dialect]+" NOT NULL PRIMARY KEY, status {text}, amount {decimal}, at {time}, version INTEGER NOT NULL)",
			"CREATE TABLE l (id {text} NOT NULL, status {text}, amount {decimal}, at {time}, version INTEGER NOT NULL, PRIMARY KEY (id, version))")
		exec(t, read, "CREATE TABLE r (id "+humane[read.Dialect]+" NOT NULL PRIMARY KEY, status {text}, amount {decimal}, at {time}, version INTEGER NOT NULL)")
		keys := []string{"_a", "-b", "A1", "a2", "Z1", "z2", "1"}
		for i := range 150 {
			keys = append(keys, fmt.Sprintf("%c%d", "aBcDeF"[i%6], 100+i))
		}
		rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		var rows, events []string
		for i, key := range keys {
			rows = append(rows, fmt.Sprintf("('%s', 's', %d.50, '2026-05-01 12:00:00', 2)", key, i))
			events = append(events, fmt.Sprintf("('%s', 's', %d.5, '2026-05-01 12:00:00', 1), ('%s', 's', %d.5, '2026-05-01 12:00:00', 2)", key, i, key, i))
		}
		exec(t, write, "INSERT INTO w VALUES "+strings.Join(rows, ", "), "INSERT INTO l VALUES "+strings.Join(events, ", "))
		exec(t, read, "INSERT INTO r VALUES "+strings.Join(rows, ", "))
		for _, d := range []reconcile.Database{write, read} {
			if d.Dialect == reconcile.Postgres {
				exec(t, d, "ANALYZE")
			}
		}
		check := &reconcile.Check{
			Name: "unordered", Key: []reconcile.KeyPart{{Name: "id"}}, Compare: []reconcile.Column{{Name: "status"}, {Name: "amount"}, {Name: "at", As: reconcile.KindTime}},
			Write:   &reconcile.Table{Database: "write", Table: "w", Version: "version"},
			Log:     &reconcile.Log{Table: reconcile.Table{Database: "write", Table: "l", Version: "version"}},
			Read:    &reconcile.Table{Database: "read", Table: "r", Version: "version"},
			Confirm: []time.Duration{}, ChunkRows: 3,
		}
		report := run(t, check, write, read)
		if listed(report) != "" || int(report.Keys) != len(keys) || report.Rows.Log != int64(2*len(keys)) || !report.Coverage.Complete {
			t.Errorf("%d keys, %+v rows, want %d:\n%s", report.Keys, report.Rows, len(keys), report.Text())
		}
		if len(report.Unindexed) == 0 || !strings.Contains(report.Unindexed[0], "CREATE INDEX") {
			t.Errorf("the report does not say which index would help: %v", report.Unindexed)
		}
		exec(t, write, "DELETE FROM l WHERE id = 'Z1' AND version = 2", "UPDATE w SET amount = 7 WHERE id = '_a'", "DELETE FROM w WHERE id = 'z2'")
		exec(t, read, "DELETE FROM r WHERE id = '-b'", "INSERT INTO r VALUES ('x', 's', 1, NULL, 1)")
		want := "MISSING_EVENT Z1\nORPHAN_EVENT z2\nMISMATCH_WRITE _a\nMISMATCH_READ -b\nMISMATCH_READ x\n"
		for _, density := range []string{"latest", "every_version"} {
			check.Density = density
			if report := run(t, check, write, read); listed(report) != want || int(report.Keys) != len(keys)+1 {
				t.Errorf("%d keys, want %d and:\n%s\ngot:\n%s", report.Keys, len(keys)+1, want, report.Text())
			}
		}
	})
}
