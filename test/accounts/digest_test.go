package accounts

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybillhq/waybill/reconcile"
)

// counted counts the rows that are sent of each table.
type counted struct {
	mu   sync.Mutex
	rows map[string]int
}

func (c *counted) over(d reconcile.Database) reconcile.Database {
	read := d.Texts
	d.Texts = func(ctx context.Context, driverConn any, query string, args []any, begin func([]string) error, row func([][]byte) error) (bool, error) {
		_, table, _ := strings.Cut(query, " FROM ")
		table, _, _ = strings.Cut(table, " ")
		return read(ctx, driverConn, query, args, begin, func(values [][]byte) error {
			c.mu.Lock()
			c.rows[strings.Trim(table, `"`)]++
			c.mu.Unlock()
			return row(values)
		})
	}
	return d
}

// bytewise is text that sorts as keys do.
func bytewise(d reconcile.Database, statement string) string {
	column := "{text}"
	if d.Dialect == reconcile.Postgres {
		column += ` COLLATE "C"`
	}
	return strings.ReplaceAll(statement, "{bytes}", column)
}

// digestPairs have an arm whose server makes digests.
var digestPairs = [][2]reconcile.Dialect{
	{reconcile.Postgres, reconcile.Postgres},
	{reconcile.Postgres, reconcile.MySQL},
	{reconcile.MySQL, reconcile.Postgres},
}

// digestLogs are the logs that digests are made from.
var digestLogs = map[string]struct {
	table, row string
	filled     bool // without NULL
	check      reconcile.Log
}{
	"own columns": {
		table:  "CREATE TABLE l (tenant {bytes} NOT NULL, id {long} NOT NULL, version INTEGER NOT NULL, kind {text}, state {text}, status {text} NOT NULL, amount {decimal} NOT NULL, PRIMARY KEY (tenant, id, version))",
		filled: true,
		row:    "('t', %[1]d, %[2]d, '%[3]s', '%[4]s', %[5]s, %[6]s)",
	},
	"own columns, perhaps twice": { // nothing says that a version is there only once
		table: "CREATE TABLE l (tenant {bytes} NOT NULL, id {long} NOT NULL, version INTEGER NOT NULL, kind {text}, state {text}, status {text}, amount {decimal})",
		row:   "('t', %[1]d, %[2]d, '%[3]s', '%[4]s', %[5]s, %[6]s)",
	},
	"documents": {
		table: "CREATE TABLE l (tenant {bytes} NOT NULL, id {long} NOT NULL, version INTEGER NOT NULL, kind {text}, state {text}, body {binary}, PRIMARY KEY (tenant, id, version))",
		row:   `('t', %[1]d, %[2]d, '%[3]s', '%[4]s', '{"status": %[7]s, "amount": %[6]s}')`,
		check: reconcile.Log{Payload: "body"},
	},
}

// TestDigestsTellWhatRowsTell compares what is found by digests with what is
// found by rows, in accounts that differ in all ways that a digest must show.
func TestDigestsTellWhatRowsTell(t *testing.T) {
	const keys, page = 1200, 40
	for name, log := range digestLogs {
		t.Run(name, func(t *testing.T) {
			eachOf(t, digestPairs, func(t *testing.T, write, read reconcile.Database) {
				table := "(tenant {bytes} NOT NULL, id {long} NOT NULL, version INTEGER NOT NULL, status {text}, amount {decimal}, PRIMARY KEY (tenant, id))"
				if log.filled {
					table = strings.NewReplacer("status {text}", "status {text} NOT NULL", "amount {decimal}", "amount {decimal} NOT NULL").Replace(table)
				}
				exec(t, write, bytewise(write, "CREATE TABLE w "+table), bytewise(write, log.table), "CREATE INDEX by_version ON l (tenant, id, version)")
				exec(t, read, bytewise(read, "CREATE TABLE r "+table))
				var rows, events []string
				event := func(id, version int, kind, state string) {
					status, text, amount := fmt.Sprintf("'s%d'", version), fmt.Sprintf(`"s%d"`, version), fmt.Sprintf("%d.25", id)
					if id%7 == 0 && !log.filled {
						status, text = "NULL", "null"
					}
					events = append(events, fmt.Sprintf(log.row, id, version, kind, state, status, amount, text))
				}
				for id := range keys {
					version := 1 + id%3
					for v := range version {
						event(id, v+1, "Changed", "SENT")
					}
					if id%50 == 3 { // deleted everywhere
						event(id, version+1, "Deleted", "SENT")
						continue
					}
					status := fmt.Sprintf("'s%d'", version)
					if id%7 == 0 && !log.filled {
						status = "NULL"
					}
					rows = append(rows, fmt.Sprintf("('t', %d, %d, %s, %d.25)", id, version, status, id))
				}
				exec(t, write, "INSERT INTO w VALUES "+strings.Join(rows, ", "), "INSERT INTO l VALUES "+strings.Join(events, ", "))
				exec(t, read, "INSERT INTO r VALUES "+strings.Join(rows, ", "))
				for _, d := range []reconcile.Database{write, read} {
					if d.Dialect == reconcile.Postgres {
						exec(t, d, "ANALYZE")
					}
				}
				check := &reconcile.Check{
					Name: "digests", Key: []reconcile.KeyPart{{Name: "tenant"}, {Name: "id", Type: reconcile.KeyInteger}},
					Compare: []reconcile.Column{{Name: "status"}, {Name: "amount"}},
					Write:   &reconcile.Table{Database: "write", Table: "w", Version: "version"},
					Read:    &reconcile.Table{Database: "read", Table: "r", Version: "version"},
					Confirm: []time.Duration{}, ChunkRows: page, MaxFindings: 2 * keys,
				}
				l := log.check
				l.Table = reconcile.Table{Database: "write", Table: "l", Version: "version"}
				l.State, l.Type, l.Deletes = "state", "kind", []string{"Deleted"}
				check.Log = &l
				compare := func(planted string) {
					t.Helper()
					sent := counted{rows: make(map[string]int)}
					byDigest := run(t, check, overIf(&sent, write), overIf(&sent, read))
					plain := func(d reconcile.Database) reconcile.Database { d.Texts = nil; return d }
					byRows := run(t, check, plain(write), plain(read))
					if listed(byDigest) != listed(byRows) || byDigest.Keys != byRows.Keys || byDigest.Rows != byRows.Rows {
						t.Errorf("%s: by digests %d keys, %+v rows:\n%sby rows %d keys, %+v rows:\n%s",
							planted, byDigest.Keys, byDigest.Rows, listed(byDigest), byRows.Keys, byRows.Rows, listed(byRows))
					}
					if planted == "" {
						if listed(byRows) != "" {
							t.Fatalf("what is the same everywhere has findings:\n%s", listed(byRows))
						}
						if n := sent.rows["l"]; name == "own columns" && read.Dialect == reconcile.Postgres && write.Dialect == reconcile.Postgres && (n == 0 || n > keys) {
							t.Errorf("%d events were sent; a digest stands for no others", n)
						}
						for arm, d := range map[string]reconcile.Database{"w": write, "r": read} {
							unlike := name != "documents" && write.Dialect != reconcile.Postgres // 7.2500 in the log is 7.25
							if n := sent.rows[arm]; d.Dialect == reconcile.Postgres && !unlike && (n == 0 || n > keys/2) {
								t.Errorf("%d rows of %s were sent; digests stand for no others", n, arm)
							}
						}
					} else if listed(byRows) == "" {
						t.Errorf("%s: nothing was found", planted)
					}
				}
				compare("")
				seed := rand.Uint64()
				random := rand.New(rand.NewPCG(seed, 0))
				t.Logf("seed %d", seed)
				some := func() int { // a row that is there
					for {
						if id := random.IntN(keys); id%50 != 3 && id%7 != 0 {
							return id
						}
					}
				}
				arms := map[string]reconcile.Database{"w": write, "r": read}
				plants := []string{
					"UPDATE {arm} SET status = 'x' WHERE id = {id}",
					"UPDATE {arm} SET status = NULL WHERE id = {id}",
					"UPDATE {arm} SET status = '' WHERE id = {id}",
					"UPDATE {arm} SET amount = amount + 0.01 WHERE id = {id}",
					"UPDATE {arm} SET version = version + 1 WHERE id = {id}",
					"DELETE FROM {arm} WHERE id = {id}",
					"INSERT INTO {arm} VALUES ('t', {new}, 1, 's1', 1)",
					"UPDATE {arm} SET amount = CASE id WHEN {id} THEN {next}.25 ELSE {id}.25 END WHERE id IN ({id}, {next})",
					"INSERT INTO {arm} VALUES ('t', 53, 2, 's1', 1)",
					"UPDATE l SET state = 'DEAD' WHERE id = {id}",
					"UPDATE l SET kind = 'Deleted' WHERE id = {id} AND version = {version}",
					"UPDATE l SET version = 9 WHERE id = {id} AND version = {version}",
					"DELETE FROM l WHERE id = {id}",
				}
				for _, plant := range plants {
					if log.filled && strings.Contains(plant, "NULL") {
						continue
					}
					for i, arm := range []string{"w", "r"} {
						if write.Dialect != read.Dialect && i != random.IntN(2) {
							continue
						}
						id, next := some(), some()
						for next == id {
							next = some()
						}
						text := strings.NewReplacer("{arm}", arm, "{id}", fmt.Sprint(id), "{next}", fmt.Sprint(next), "{version}", fmt.Sprint(1+id%3), "{new}", fmt.Sprint(keys+random.IntN(100))).Replace(plant)
						on := arms[arm]
						if strings.Contains(text, " l ") {
							on = write // whatever the arm
						}
						restore := snapshotOf(t, on)
						exec(t, on, text)
						compare(text)
						restore()
					}
				}
				// All at once, so that pages with and without differences take turns.
				for range 12 {
					arm := []string{"w", "r"}[random.IntN(2)]
					exec(t, arms[arm], fmt.Sprintf("UPDATE %s SET status = 'y' WHERE id = %d", arm, some()))
					exec(t, write, fmt.Sprintf("UPDATE l SET state = 'DEAD' WHERE id = %d", some()))
				}
				compare("many")
			})
		})
	}
}

func overIf(sent *counted, d reconcile.Database) reconcile.Database {
	if d.Texts == nil {
		return d
	}
	return sent.over(d)
}

// snapshotOf keeps the tables of a database, and returns what brings them back.
func snapshotOf(t *testing.T, d reconcile.Database) (restore func()) {
	t.Helper()
	tables := []string{"w", "l", "r"}
	tables = slices.DeleteFunc(tables, func(name string) bool {
		rows, err := d.DB.QueryContext(t.Context(), "SELECT 1 FROM "+name+" LIMIT 1")
		if err != nil {
			return true
		}
		defer func() { _ = rows.Close() }()
		return rows.Err() != nil
	})
	for _, name := range tables {
		exec(t, d, "CREATE TABLE kept_"+name+" AS SELECT * FROM "+name)
	}
	return func() {
		for _, name := range tables {
			exec(t, d, "DELETE FROM "+name, "INSERT INTO "+name+" SELECT * FROM kept_"+name, "DROP TABLE kept_"+name)
		}
	}
}
