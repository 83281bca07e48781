package sqlverb_test

import (
	"testing"

	"github.com/waybillhq/waybill/internal/sqlverb"
)

func commits(w sqlverb.Words) bool { return w[0] == "COMMIT" }

func TestVerbsAreFoundBehindCommentsAndStatements(t *testing.T) {
	all := []sqlverb.Dialect{sqlverb.Postgres, sqlverb.MySQL, sqlverb.SQLite}
	for _, c := range []struct {
		text string
		want bool
		in   []sqlverb.Dialect
	}{
		{"COMMIT", true, all},
		{" \n\tcommit;", true, all},
		{"/* a */ -- b\n commit work", true, all},
		{"-- COMMIT", false, all},
		{"-- COMMIT\n", false, all},
		{"/* COMMIT", false, all},
		{"/**/commit", true, all},
		{"SELECT 1; COMMIT", true, all},
		{"SELECT ';'; COMMIT", true, all},
		{"SELECT '; COMMIT'", false, all},
		{"SELECT 'it''s; COMMIT'", false, all},
		{`SELECT "; COMMIT"`, false, all},
		{"SELECT a FROM t WHERE b = 1 /* ; COMMIT */ AND c", false, all},
		{"SELECT a FROM t WHERE b = 1 -- ; COMMIT", false, all},
		{"INSERT INTO t (a) VALUES (1);;; commit", true, all},
		{"committed", false, all},
		{"", false, all},
		{";", false, all},
		{"CREATE TRIGGER a AFTER INSERT ON t BEGIN DELETE FROM u; COMMIT; END", false, all},
		{"/* a /* b */ COMMIT */ SELECT 1", false, []sqlverb.Dialect{sqlverb.Postgres}},
		{"/* a /* b */ COMMIT", true, []sqlverb.Dialect{sqlverb.MySQL, sqlverb.SQLite}},
		{"# a\nCOMMIT", true, []sqlverb.Dialect{sqlverb.MySQL}},
		{"/*! COMMIT */", true, []sqlverb.Dialect{sqlverb.MySQL}},
		{"/*!50000 COMMIT*/", true, []sqlverb.Dialect{sqlverb.MySQL}},
		{"/*M!100000 COMMIT*/", true, []sqlverb.Dialect{sqlverb.MySQL}},
		{"SELECT 3--1; COMMIT", true, []sqlverb.Dialect{sqlverb.MySQL}},
		{`SELECT '\'; COMMIT'`, false, []sqlverb.Dialect{sqlverb.MySQL}},
		{`SELECT '\'; COMMIT`, true, []sqlverb.Dialect{sqlverb.Postgres, sqlverb.SQLite}},
		{`SELECT E'\'; COMMIT'`, false, []sqlverb.Dialect{sqlverb.Postgres}},
		{"SELECT $a$; COMMIT; $b$ $a$", false, []sqlverb.Dialect{sqlverb.Postgres}},
		{"SELECT $$ $$; COMMIT", true, []sqlverb.Dialect{sqlverb.Postgres}},
		{"SELECT $1, $2; COMMIT", true, []sqlverb.Dialect{sqlverb.Postgres}},
		{"SELECT `; COMMIT`", false, []sqlverb.Dialect{sqlverb.MySQL}},
	} {
		for _, d := range c.in {
			if got := d.Any(c.text, commits); got != c.want {
				t.Errorf("%+v: %q: got %t, want %t", d, c.text, got, c.want)
			}
		}
	}
}

func TestFirstWords(t *testing.T) {
	for text, want := range map[string]sqlverb.Words{
		"rollback /* x */ work to a": {"ROLLBACK", "WORK", "TO"},
		"(select 1)":                 {"SELECT", "1", ""},
		"prepare transaction 'x'":    {"PREPARE", "TRANSACTION", ""},
		"create\ntemporary table t":  {"CREATE", "TEMPORARY", "TABLE"},
		"set @a = 1":                 {"SET", "A", ""},
		"set @@session.a = 1":        {"SET", "SESSION", "A"},
	} {
		var got sqlverb.Words
		sqlverb.MySQL.Any(text, func(w sqlverb.Words) bool { got = w; return true })
		if got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func FuzzAnyComesToAnEnd(f *testing.F) {
	f.Add("SELECT $a$ 'x' \"y\" /* z */ -- \n; COMMIT")
	f.Fuzz(func(t *testing.T, text string) {
		for _, d := range []sqlverb.Dialect{sqlverb.Postgres, sqlverb.MySQL, sqlverb.SQLite} {
			d.Any(text, commits)
			if len(text) < 1000 && !d.Any("COMMIT;"+text, commits) {
				t.Errorf("%q: what comes first was not seen", text)
			}
		}
	})
}
