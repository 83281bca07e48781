package accounts

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill/reconcile"
)

// TestValuesAcrossDatabases has one column of each kind, and pairs of values of
// which some are the same in spite of how they look. The log agrees with the
// write side, so a difference is one of the read side alone.
func TestValuesAcrossDatabases(t *testing.T) {
	pairs := []struct {
		key, column, write, read string
		differs                  bool
	}{
		{"null and nothing", "name", "NULL", "''", true},
		{"null and its name", "name", "NULL", "'NULL'", true},
		{"nothing and the name of null", "name", "''", "'NULL'", true},
		{"null and null", "name", "NULL", "NULL", false},
		{"a and a with a blank", "name", "'a'", "'a '", true},
		{"a and A", "name", "'a'", "'A'", true},
		{"1.10 and 1.1", "amount", "1.10", "1.1", false},
		{"1.10 and 1.11", "amount", "1.10", "1.11", true},
		{"minus zero and zero", "amount", "-0.0", "0", false},
		{"micros and millis", "at", "'2026-05-01 12:00:00.123456'", "'2026-05-01 12:00:00.123'", false},
		{"another milli", "at", "'2026-05-01 12:00:00.123456'", "'2026-05-01 12:00:00.125'", true},
		{"members in another order", "doc", `'{"a": 1, "b": [1, 2]}'`, `'{"b": [1, 2], "a": 1.0}'`, false},
		{"elements in another order", "doc", `'{"a": [1, 2]}'`, `'{"a": [2, 1]}'`, true},
		{"null in a document", "doc", `'{"a": null}'`, `'{}'`, true},
	}
	eachPair(t, func(t *testing.T, write, read reconcile.Database) {
		const table = " (id {text} NOT NULL PRIMARY KEY, name {text}, amount {decimal}, at {time}, doc {json}, version INTEGER NOT NULL)"
		exec(t, write, "CREATE TABLE w"+table, "CREATE TABLE l"+table)
		exec(t, read, "CREATE TABLE r"+table)
		var want []string
		for _, p := range pairs {
			exec(t, write, fmt.Sprintf("INSERT INTO w (id, %s, version) VALUES ('%s', %s, 1)", p.column, p.key, p.write),
				fmt.Sprintf("INSERT INTO l (id, %s, version) VALUES ('%s', %s, 1)", p.column, p.key, p.write))
			exec(t, read, fmt.Sprintf("INSERT INTO r (id, %s, version) VALUES ('%s', %s, 1)", p.column, p.key, p.read))
			if p.differs {
				want = append(want, "MISMATCH_READ "+p.key+"\n")
			}
		}
		slices.Sort(want)
		check := &reconcile.Check{
			Name: "values", Key: []reconcile.KeyPart{{Name: "id"}},
			Write: &reconcile.Table{Database: "write", Table: "w", Version: "version"},
			Log:   &reconcile.Log{Table: reconcile.Table{Database: "write", Table: "l", Version: "version"}},
			Read:  &reconcile.Table{Database: "read", Table: "r", Version: "version"},
			Compare: []reconcile.Column{
				{Name: "name"}, {Name: "amount", As: reconcile.KindNumber}, {Name: "at", As: reconcile.KindTime, Digits: new(3)}, {Name: "doc", As: reconcile.KindJSON},
			},
			Confirm: []time.Duration{},
		}
		for _, rows := range []int{3, 1000} {
			check.ChunkRows = rows
			if got := listed(run(t, check, write, read)); got != strings.Join(want, "") {
				t.Errorf("chunks of %d: got\n%s\nwant\n%s", rows, got, strings.Join(want, ""))
			}
		}
		// Rows without times are read as texts from MySQL, too.
		check.Compare = slices.DeleteFunc(check.Compare, func(c reconcile.Column) bool { return c.Name == "at" })
		timeless := strings.Join(slices.DeleteFunc(want, func(line string) bool { return strings.Contains(line, "another milli") }), "")
		if got := listed(run(t, check, write, read)); got != timeless {
			t.Errorf("without times: got\n%s\nwant\n%s", got, timeless)
		}
		// By itself a column must tell NULL from nothing.
		check.Compare = check.Compare[:1]
		named := "MISMATCH_READ a and A\nMISMATCH_READ a and a with a blank\nMISMATCH_READ nothing and the name of null\nMISMATCH_READ null and its name\nMISMATCH_READ null and nothing\n"
		if got := listed(run(t, check, write, read)); got != named {
			t.Errorf("names alone: got\n%s\nwant\n%s", got, named)
		}
	})
}
