package reconcile

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
)

// image is a whole row, to be written back as it was read. SQLite keeps any
// value in any column, and drivers make of some what they were not, so there the
// values are literals that the database itself has made.
type image struct {
	names  []string
	types  []column
	values []any
}

// image reads a key's row, and locks it. A row that is not there is nil.
func (b *rebuild) image(ctx context.Context, conn *sql.Conn, key Key, lock bool) (found *image, err error) {
	d := b.bases.read.Dialect
	names, err := b.columnNames(ctx, conn)
	if err != nil {
		return nil, err
	}
	s := &statement{dialect: d}
	selected := make([]string, len(names))
	for i, name := range names {
		selected[i] = d.quote(name)
		if d == SQLite {
			selected[i] = "quote(" + selected[i] + ")"
		}
	}
	s.add("SELECT %s FROM %s", strings.Join(selected, ", "), d.table(b.table))
	d.keys(b.table, b.bases.kinds).where(s, Range{only: &key})
	filter(s, b.table)
	if lock && d != SQLite { // there the transaction is the only one that writes
		s.add(" FOR UPDATE")
	}
	err = scan(ctx, conn, s, func(types []column, got []any) error {
		if found != nil {
			return fmt.Errorf("%s has several rows of the key %s", b.table.Table, key)
		}
		found = &image{names: names, types: types, values: slices.Clone(got)}
		for i := range found.values {
			if raw, ok := got[i].([]byte); ok && types[i].kind() != KindBinary {
				found.values[i] = string(raw)
			}
		}
		return nil
	})
	return found, err
}

func (b *rebuild) columnNames(ctx context.Context, q queryer) (names []string, err error) {
	rows, err := q.QueryContext(ctx, "SELECT * FROM "+b.bases.read.Dialect.table(b.table)+" WHERE 1 = 0")
	if err != nil {
		return nil, err
	}
	names, err = rows.Columns()
	if closing := rows.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = rows.Err()
	}
	return names, err
}

// bind returns how a statement has the i-th value.
func (m *image) bind(s *statement, i int) string {
	if s.dialect == SQLite {
		return fmt.Sprint(m.values[i])
	}
	return s.bind(m.values[i])
}

// same reports whether the i-th value is that of another image.
func (m *image) same(other *image, i int) bool {
	equal, _ := Equal(m.types[i].value(m.values[i]), other.types[i].value(other.values[i]))
	return equal
}

// unquoted returns the i-th value of a column of numbers.
func (m *image) unquoted(i int) any {
	if text, ok := m.values[i].(string); ok {
		if text == "NULL" {
			return nil
		}
		return strings.Trim(text, "'")
	}
	return m.values[i]
}
