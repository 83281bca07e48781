package reconcile

import (
	"fmt"
	"strings"
)

// Dialect is how a database wants its statements.
type Dialect string

// The dialects.
const (
	SQLite   Dialect = "sqlite"
	Postgres Dialect = "postgres"
	MySQL    Dialect = "mysql"
	MariaDB  Dialect = "mariadb"
)

func (d Dialect) known() bool {
	return d == SQLite || d == Postgres || d == MySQL || d == MariaDB
}

func (d Dialect) family() Dialect {
	if d == MariaDB {
		return MySQL
	}
	return d
}

// quote makes any text a name. SQLite takes an unknown name in double quotes for
// a text, as if every row had a column of that one value; in backticks it is an
// error there, too.
func (d Dialect) quote(name string) string {
	if d != Postgres {
		return "`" + strings.ReplaceAll(name, "`", "``") + "`"
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

func (d Dialect) table(t *Table) string {
	if t.Schema != "" {
		return d.quote(t.Schema) + "." + d.quote(t.Table)
	}
	return d.quote(t.Table)
}

// order returns the expression that sorts a key column as [Key.Compare] does.
// Text in another collation, or kept in another form, is converted row by
// row; an index on the expression makes that cheap.
func (d Dialect) order(column string, kind KeyKind, stored Stored) string {
	switch d.family() {
	case Postgres:
		switch {
		case kind == KeyInteger && stored == StoredText:
			return "CAST(" + column + " AS NUMERIC)"
		case kind == KeyUUID && stored == StoredText:
			return "LOWER(" + column + `) COLLATE "C"`
		case kind == KeyText:
			return column + ` COLLATE "C"`
		}
	case MySQL:
		switch {
		case kind == KeyInteger && stored == StoredText:
			return "CAST(" + column + " AS DECIMAL(20, 0))"
		case kind == KeyUUID && stored != StoredBinary:
			return "CAST(LOWER(" + column + ") AS BINARY)"
		case kind == KeyText:
			return "CAST(CONVERT(" + column + " USING utf8mb4) AS BINARY)"
		}
	case SQLite:
		switch {
		case kind == KeyInteger && stored == StoredText:
			return "CAST(" + column + " AS INTEGER)"
		case kind == KeyUUID && stored != StoredBinary:
			return "LOWER(" + column + ")"
		case kind == KeyText:
			return column + " COLLATE BINARY"
		}
	}
	return column
}

// param returns a part of a key as the column's statement wants it.
func (d Dialect) param(part any, kind KeyKind, stored Stored) any {
	switch {
	case kind == KeyUUID && stored == StoredBinary:
		return uuidBytes(part.(string))
	case d.family() == MySQL && (kind == KeyText || kind == KeyUUID):
		return []byte(part.(string))
	}
	if n, ok := part.(uint64); ok && d.family() != MySQL {
		return fmt.Sprint(n)
	}
	return part
}

// statement collects a statement and its parameters.
type statement struct {
	dialect Dialect
	text    strings.Builder
	args    []any
}

func (s *statement) add(format string, args ...any) *statement {
	fmt.Fprintf(&s.text, format, args...)
	return s
}

// bind adds a parameter and returns its placeholder.
func (s *statement) bind(value any) string {
	s.args = append(s.args, value)
	if s.dialect == Postgres {
		return fmt.Sprintf("$%d", len(s.args))
	}
	return "?"
}

// keys are the key columns of one table.
type keys struct {
	dialect Dialect
	columns []string // quoted
	kinds   []KeyKind
	stored  []Stored
	bare    []bool // the column sorts as the key does
}

func (d Dialect) keys(t *Table, kinds []KeyKind) keys {
	k := keys{dialect: d, kinds: kinds, stored: t.KeyStored, bare: t.bare}
	if k.bare == nil {
		k.bare = make([]bool, len(t.Key))
	}
	for _, name := range t.Key {
		k.columns = append(k.columns, d.quote(name))
	}
	return k
}

// selected are the columns for a SELECT.
func (k keys) selected() string { return strings.Join(k.columns, ", ") }

func (k keys) order(i int) string {
	if k.bare[i] {
		return k.columns[i]
	}
	return k.exact(i)
}

// exact returns what is equal for equal keys only; a column may take 'a' and
// 'a ' for equal.
func (k keys) exact(i int) string {
	return k.dialect.order(k.columns[i], k.kinds[i], k.stored[i])
}

func (k keys) orderBy() string {
	terms := make([]string, len(k.columns))
	for i := range k.columns {
		terms[i] = k.order(i)
	}
	return strings.Join(terms, ", ")
}

// where limits a statement to a range. A row without a whole key is no row.
func (k keys) where(s *statement, r Range) {
	for i, column := range k.columns {
		if i == 0 {
			s.add(" WHERE ")
		} else {
			s.add(" AND ")
		}
		s.add("%s IS NOT NULL", column)
	}
	if r.only != nil {
		s.add(" AND ")
		k.equals(s, *r.only)
		return
	}
	if r.among != nil && len(k.columns) == 1 {
		k.in(s, r.among)
		return
	}
	if r.among != nil && k.dialect == Postgres {
		k.exists(s, r.among)
		return
	}
	if r.among != nil {
		s.add(" AND (")
		for i := range r.among {
			if i > 0 {
				s.add(" OR ")
			}
			k.equals(s, r.among[i])
		}
		s.add(")")
		return
	}
	if r.From != nil {
		k.compare(s, *r.From, ">", ">=")
	}
	if r.To != nil {
		k.compare(s, *r.To, "<", "<")
	}
}

// in writes that the row has one of some keys of one part.
func (k keys) in(s *statement, among []Key) {
	list := func(what string, bound func(Key) any) {
		places := make([]string, len(among))
		for i := range among {
			places[i] = s.bind(bound(among[i]))
		}
		s.add(" AND %s IN (%s)", what, strings.Join(places, ", "))
	}
	if k.kinds[0] == KeyText || k.bare[0] { // implied, as in equals
		list(k.columns[0], func(key Key) any { return key.parts[0] })
	}
	if k.digits(0) {
		places := make([]string, len(among))
		for i := range among {
			places[i] = s.bind(fmt.Sprint(among[i].parts[0]))
		}
		s.add(" AND (%s IN (%s) OR %s)", k.columns[0], strings.Join(places, ", "), k.unusual(0))
	}
	list(k.exact(0), func(key Key) any { return k.exactParam(key, 0) })
}

// exists writes that the row has one of some keys of several parts, as a join:
// PostgreSQL would read the whole index for alternatives, one by one, unless it
// makes bitmaps of them.
func (k keys) exists(s *statement, among []Key) {
	var names, terms []string
	want := func(name, what string) {
		names = append(names, name)
		terms = append(terms, what+" = wanted."+name)
	}
	for i := range k.columns {
		want(fmt.Sprintf("waybill_key_%d", i), k.exact(i))
		if k.doubled(i) {
			want(fmt.Sprintf("waybill_column_%d", i), k.columns[i])
		}
	}
	s.add(" AND EXISTS (SELECT 1 FROM (VALUES ")
	for n, key := range among {
		if n > 0 {
			s.add(", ")
		}
		s.add("(")
		for i := range k.columns {
			if i > 0 {
				s.add(", ")
			}
			s.add("CAST(%s AS %s)", s.bind(k.exactParam(key, i)), postgresType(k.kinds[i], k.stored[i], key.parts[i]))
			if k.doubled(i) {
				s.add(", CAST(%s AS TEXT)", s.bind(key.parts[i]))
			}
		}
		s.add(")")
	}
	s.add(") AS wanted (%s) WHERE %s)", strings.Join(names, ", "), strings.Join(terms, " AND "))
}

// doubled reports whether a condition on the column itself lets an index be
// used that one on the expression does not.
func (k keys) doubled(i int) bool {
	return (k.kinds[i] == KeyText || k.bare[i]) && k.exact(i) != k.columns[i]
}

// postgresType is what a bound part of a key is compared as.
func postgresType(kind KeyKind, stored Stored, part any) string {
	switch {
	case kind == KeyBinary || stored == StoredBinary:
		return "BYTEA"
	case kind == KeyInteger:
		if _, big := part.(uint64); big {
			return "NUMERIC"
		}
		return "BIGINT"
	case kind == KeyUUID && stored == StoredNative:
		return "UUID"
	}
	return "TEXT"
}

// equals writes that the row has a key.
func (k keys) equals(s *statement, key Key) {
	for i := range k.columns {
		if i > 0 {
			s.add(" AND ")
		}
		if k.kinds[i] == KeyText || k.bare[i] { // implied, and any index on the column serves it
			s.add("%s = %s AND ", k.columns[i], s.bind(key.parts[i]))
		}
		if k.digits(i) {
			s.add("(%s = %s OR %s) AND ", k.columns[i], s.bind(fmt.Sprint(key.parts[i])), k.unusual(i))
		}
		s.add("%s = %s", k.exact(i), s.bind(k.exactParam(key, i)))
	}
}

// digits reports whether a part is an integer kept as text.
func (k keys) digits(i int) bool { return k.kinds[i] == KeyInteger && k.stored[i] == StoredText }

// unusual writes that an integer's text is not the usual one, as 007 and +7. It
// and the usual text are both found by an index on the column, which the value
// is not.
func (k keys) unusual(i int) string {
	if k.dialect == SQLite {
		return fmt.Sprintf("%[1]s GLOB '0?*' OR %[1]s GLOB '-0*' OR %[1]s GLOB '+*'", k.columns[i])
	}
	return fmt.Sprintf("%[1]s LIKE '0_%%' OR %[1]s LIKE '-0%%' OR %[1]s LIKE '+%%'", k.columns[i])
}

// compare writes the comparison with a key: of the tuples where the planner
// finds its way into an index by that, else part by part, with a first term
// that lets it do so.
func (k keys) compare(s *statement, key Key, strict, lastly string) {
	if len(k.columns) > 1 && k.dialect.family() != MySQL {
		orders, params := make([]string, len(k.columns)), make([]string, len(k.columns))
		for i := range k.columns {
			orders[i], params[i] = k.order(i), s.bind(k.param(key, i))
		}
		s.add(" AND (%s) %s (%s)", strings.Join(orders, ", "), lastly, strings.Join(params, ", "))
		return
	}
	if len(k.columns) > 1 {
		s.add(" AND %s %s= %s", k.order(0), strict, s.bind(k.param(key, 0)))
	}
	s.add(" AND (")
	for i := range k.columns {
		if i > 0 {
			s.add(" OR ")
		}
		s.add("(")
		for j := range i {
			s.add("%s = %s AND ", k.order(j), s.bind(k.param(key, j)))
		}
		operator := strict
		if i == len(k.columns)-1 {
			operator = lastly
		}
		s.add("%s %s %s)", k.order(i), operator, s.bind(k.param(key, i)))
	}
	s.add(")")
}

func (k keys) param(key Key, i int) any {
	if k.bare[i] {
		return key.parts[i]
	}
	return k.exactParam(key, i)
}

func (k keys) exactParam(key Key, i int) any {
	return k.dialect.param(key.parts[i], k.kinds[i], k.stored[i])
}
