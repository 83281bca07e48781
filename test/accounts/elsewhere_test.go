package accounts

import (
	"encoding/csv"
	"fmt"
	"os"
	program "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/reconcile"
)

// dump writes what a statement reads as CSV, as a database's own shell does.
func dump(t *testing.T, d reconcile.Database, arm reconcile.ExportArm, name string) {
	t.Helper()
	rows, err := d.DB.QueryContext(t.Context(), arm.SQL)
	if err != nil {
		t.Fatalf("%s: %v\n%s", arm.Arm, err, arm.SQL)
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	writer := csv.NewWriter(file)
	write := func(line []string) {
		if err := writer.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	write(columns)
	values, targets := make([]any, len(columns)), make([]any, len(columns))
	for i := range values {
		targets[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			t.Fatal(err)
		}
		line := make([]string, len(values))
		for i, value := range values {
			if raw, ok := value.([]byte); ok {
				value = string(raw)
			}
			line[i] = fmt.Sprint(value)
		}
		write(line)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	writer.Flush()
	if err := writer.Error(); err != nil {
		t.Fatal(err)
	}
}

// elsewhere lets DuckDB find candidates in what the databases have, by ranges of
// about so many rows.
func elsewhere(t *testing.T, e *reconcile.Engine, write, read reconcile.Database, rows int) [][]string {
	t.Helper()
	shell := testenv.DuckDB1(t)
	plan, err := e.Export(t.Context(), rows)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for i, part := range plan.Ranges {
		for _, arm := range part.Arms {
			from := write
			if arm.Arm == "read" {
				from = read
			}
			dump(t, from, arm, filepath.Join(dir, fmt.Sprintf("%s%d.csv", arm.Arm, i)))
		}
	}
	cmd := program.CommandContext(t.Context(), shell, "-bail", ":memory:")
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(plan.Compare["duckdb"])
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("duckdb: %v\n%s\n%s", err, out, plan.Compare["duckdb"])
	}
	list, err := os.Open(filepath.Join(dir, "candidates.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = list.Close() }()
	keys, strange, err := e.ReadCandidates(list)
	if err != nil || strange != 0 {
		t.Fatal(strange, err)
	}
	return keys
}

// What DuckDB makes of the arms has each key that a run would report, and few
// others; confirming it gives the same findings.
func TestCandidatesFromElsewhereAreConfirmed(t *testing.T) {
	eachPair(t, func(t *testing.T, write, read reconcile.Database) {
		o := newOrders(t, write, read)
		for i := range 12 {
			o.put(fmt.Sprintf("k%02d", i), 2)
		}
		e := engine(t, ordersCheck(), write, read)
		before := elsewhere(t, e, write, read, 0)
		exec(t, write, "DELETE FROM {q}log{q} WHERE event_id = 'k00-2'", "UPDATE {q}log{q} SET state = 'DEAD' WHERE event_id = 'k01-2'",
			"UPDATE {q}Sales-EU Order{q} SET status = NULL WHERE {q}order{q} = 'k02'", "UPDATE {q}Sales-EU Order{q} SET amount = 1.2 WHERE {q}order{q} = 'k03'",
			"DELETE FROM {q}Sales-EU Order{q} WHERE {q}order{q} = 'k04'", "UPDATE {q}Sales-EU Order{q} SET version = 3 WHERE {q}order{q} = 'k05'")
		exec(t, read, "DELETE FROM {q}read{q} WHERE id = 'k06'", "UPDATE {q}read{q} SET status = '' WHERE id = 'k07'", "UPDATE {q}read{q} SET version = 1 WHERE id = 'k08'",
			"UPDATE {q}read{q} SET amount = 11 WHERE id = 'k09'", "INSERT INTO {q}read{q} (id, version) VALUES ('it''s a \\ \"key\", too', 1)")
		want := run(t, ordersCheck(), write, read)
		if want.Differences != 11 {
			t.Fatalf("planted:\n%s", want.Text())
		}
		for _, rows := range []int{0, 5} {
			keys := elsewhere(t, e, write, read, rows)
			// JSON and times have several forms, which the statement need not know.
			if len(keys) < 11 || len(keys) > 11+len(before) {
				t.Errorf("in ranges of %d rows: %d candidates, %d before anything was broken", rows, len(keys), len(before))
			}
			report, err := e.Compare(t.Context(), reconcile.Scope{Mode: reconcile.ModeKey, Keys: keys})
			if err != nil {
				t.Fatal(err)
			}
			if got := listed(report); got != listed(want) {
				t.Errorf("in ranges of %d rows:\n%s\nwant:\n%s", rows, got, listed(want))
			}
		}
	})
}

// A list that is old, or wrong, is looked at and nothing is found by it.
func TestWrongCandidatesAreNoFindings(t *testing.T) {
	write, read := open(t, reconcile.SQLite), open(t, reconcile.SQLite)
	newOrders(t, write, read)
	e := engine(t, ordersCheck(), write, read)
	keys, strange, err := e.ReadCandidates(strings.NewReader("why,order\nold,a\nnever there,nobody\nonly one\nold,a\n"))
	if err != nil || len(keys) != 3 || strange != 1 {
		t.Fatal(keys, strange, err)
	}
	report, err := e.Compare(t.Context(), reconcile.Scope{Mode: reconcile.ModeKey, Keys: keys})
	if err != nil || listed(report) != "" {
		t.Errorf("found:\n%s%v", report.Text(), err)
	}
	if _, _, err := e.ReadCandidates(strings.NewReader("id\na\n")); err == nil || !strings.Contains(err.Error(), "no column order") {
		t.Errorf("without the key's column: %v", err)
	}
}
