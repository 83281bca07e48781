package guard

import (
	"context"
	"database/sql"
	"reflect"
	"testing"
)

func TestParametersAreWrittenAsTheDialectDoes(t *testing.T) {
	const statement = `UPDATE "what?" SET a = ?, b = 'why? it''s ?' WHERE c = ?`
	for dialect, want := range map[Dialect]string{
		SQLite:   statement,
		MySQL:    statement,
		Postgres: `UPDATE "what?" SET a = $1, b = 'why? it''s ?' WHERE c = $2`,
	} {
		if got := dialect.bind(statement); got != want {
			t.Errorf("dialect %d: %s, want %s", dialect, got, want)
		}
	}
}

func TestNamesAreQuoted(t *testing.T) {
	for _, c := range []struct {
		dialect     Dialect
		name        string
		table, colu string
	}{
		{Postgres, `Sales-EU.Order`, `"Sales-EU"."Order"`, `"Sales-EU.Order"`},
		{SQLite, `a"; DROP TABLE b; --`, `"a""; DROP TABLE b; --"`, `"a""; DROP TABLE b; --"`},
		{MySQL, "a`b.c", "`a``b`.`c`", "`a``b.c`"},
	} {
		if got := c.dialect.name(c.name); got != c.table {
			t.Errorf("table %s: %s, want %s", c.name, got, c.table)
		}
		if got := c.dialect.column(c.name); got != c.colu {
			t.Errorf("column %s: %s, want %s", c.name, got, c.colu)
		}
	}
}

// recorder is a transaction that changes nothing.
type recorder struct {
	statements []string
	args       [][]any
}

func (r *recorder) tx(d Dialect) Tx {
	return Tx{
		dialect: d,
		exec: func(_ context.Context, statement string, args []any) (int64, error) {
			r.statements, r.args = append(r.statements, statement), append(r.args, args)
			return 1, nil
		},
		row: func(_ context.Context, query string, args, _ []any) error {
			r.statements, r.args = append(r.statements, query), append(r.args, args)
			return sql.ErrNoRows
		},
	}
}

func TestMoveIsOneCompareAndSet(t *testing.T) {
	m := Machine{Table: "orders", Key: "id", Status: "status", Version: "version", Moves: map[string][]string{"A": {"B"}}}
	var r recorder
	_, _ = m.Move(t.Context(), r.tx(Postgres), "O-1", "A", "B", Row{"z": 1, "a": nil})
	want := `UPDATE "orders" SET "a" = $1, "z" = $2, "status" = $3, "version" = "version" + 1 WHERE "id" = $4 AND "status" = $5`
	if r.statements[0] != want || !reflect.DeepEqual(r.args[0], []any{nil, 1, "B", "O-1", "A"}) {
		t.Errorf("%s with %v, want %s", r.statements[0], r.args[0], want)
	}
}

func TestConditionsKnowNull(t *testing.T) {
	text, args := MySQL.equals(Row{"a": 1, "b": nil, "c": sql.NullString{}, "d": sql.NullString{String: "x", Valid: true}}, []string{"a", "b", "c", "d"})
	if want := "`a` = ? AND `b` IS NULL AND `c` IS NULL AND `d` = ?"; text != want || len(args) != 2 {
		t.Errorf("%s with %v, want %s", text, args, want)
	}
}
