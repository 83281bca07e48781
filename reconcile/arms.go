package reconcile

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// arms reads the three accounts.
type arms interface {
	// now returns the time of the log's database; zero where there is none.
	now(ctx context.Context) (time.Time, error)
	// boundary returns a key so that about n rows of the fullest arm lie between
	// from and it; nil when none has that many.
	boundary(ctx context.Context, from *Key, n int) (*Key, error)
	// snapshot reads the business rows and the events of a range, in one snapshot
	// where they share a database. Both are sorted by key, events by version.
	snapshot(ctx context.Context, r Range) ([]Keyed[*Row], []Keyed[[]Event], error)
	// events reads the log alone, anew.
	events(ctx context.Context, r Range) ([]Keyed[[]Event], error)
	// readModel reads the read side.
	readModel(ctx context.Context, r Range) ([]Keyed[*Row], error)
	// consumed returns what the consumer knows of events.
	consumed(ctx context.Context, ids []string) (map[string]Consumed, error)
	// changed hands over the keys of the rows and events written since a moment,
	// in any order, perhaps several times.
	changed(ctx context.Context, since time.Time, each func(Key) error) error
	// keyOf returns the key of an event; nil where the log has no such event.
	keyOf(ctx context.Context, id string) (*Key, error)
}

// tables are arms in databases.
type tables struct {
	check            *Check
	kinds            []KeyKind
	write, log, read Database
	consumer         Database
	digests          *digests
}

func newTables(c *Check, databases Databases) (*tables, error) {
	t := &tables{check: c, kinds: c.kinds(), digests: newDigests()}
	for _, arm := range []struct {
		table *Table
		into  *Database
	}{{c.Write, &t.write}, {c.Log.table(), &t.log}, {c.Read, &t.read}} {
		if arm.table == nil {
			continue
		}
		var err error
		if *arm.into, err = databases.find(arm.table.Database); err != nil {
			return nil, err
		}
		arm.into.timeout = c.StatementTimeout
	}
	if c.Consumer != nil {
		var err error
		if t.consumer, err = databases.find(c.Consumer.Database); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (t *tables) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, t.check.StatementTimeout)
}

const (
	nowSQLite   = `SELECT strftime('%Y-%m-%dT%H:%M:%fZ', 'now')`
	nowPostgres = `SELECT clock_timestamp()`
	nowMySQL    = `SELECT UTC_TIMESTAMP(6)`
)

func (t *tables) now(ctx context.Context) (at time.Time, err error) {
	d := t.log
	if t.check.Log == nil {
		d = t.write
	}
	s := &statement{dialect: d.Dialect}
	s.text.WriteString(map[Dialect]string{SQLite: nowSQLite, Postgres: nowPostgres, MySQL: nowMySQL}[d.Dialect.family()])
	ctx, cancel := t.limit(ctx)
	defer cancel()
	err = scan(ctx, d.DB, s, func(types []column, got []any) error {
		at = timeAt(types, got, 0)
		return nil
	})
	return at, err
}

// filter adds the conditions of the check.
func filter(s *statement, t *Table) {
	for _, name := range slices.Sorted(maps.Keys(t.Where)) {
		s.add(" AND %s = %s", s.dialect.quote(name), s.bind(t.Where[name]))
	}
}

func (t *tables) boundary(ctx context.Context, from *Key, n int) (*Key, error) {
	var least *Key
	for _, arm := range t.each() {
		key, err := t.nth(ctx, arm.database, arm.table, from, n)
		if err != nil {
			return nil, err
		}
		if key != nil && from != nil && key.Compare(*from) <= 0 {
			// One key fills the whole chunk: it ends with that key.
			if key, err = t.next(ctx, arm.database, arm.table, *from); err != nil {
				return nil, err
			}
		}
		if key != nil && (least == nil || key.Compare(*least) < 0) {
			least = key
		}
	}
	return least, nil
}

// nth returns the key of the n-th row from a key on.
func (t *tables) nth(ctx context.Context, d Database, table *Table, from *Key, n int) (*Key, error) {
	s := &statement{dialect: d.Dialect}
	k := d.Dialect.keys(table, t.kinds)
	s.add("SELECT %s FROM %s", strings.Join(k.columns, ", "), d.Dialect.table(table))
	k.where(s, Range{From: from})
	filter(s, table)
	s.add(" ORDER BY %s LIMIT 1 OFFSET %d", k.orderBy(), n)
	return t.oneKey(ctx, d, s)
}

// next returns the first key after another.
func (t *tables) next(ctx context.Context, d Database, table *Table, after Key) (*Key, error) {
	s := &statement{dialect: d.Dialect}
	k := d.Dialect.keys(table, t.kinds)
	s.add("SELECT %s FROM %s", strings.Join(k.columns, ", "), d.Dialect.table(table))
	k.where(s, Range{})
	k.compare(s, after, ">", ">")
	filter(s, table)
	s.add(" ORDER BY %s LIMIT 1", k.orderBy())
	return t.oneKey(ctx, d, s)
}

func (t *tables) oneKey(ctx context.Context, d Database, s *statement) (*Key, error) {
	ctx, cancel := t.limit(ctx)
	defer cancel()
	var found *Key
	err := d.snapshot(ctx, func(q queryer) error {
		return scan(ctx, q, s, func(_ []column, values []any) error {
			key, err := NewKey(t.kinds, values)
			found = &key
			return err
		})
	})
	return found, err
}

func (t *tables) snapshot(ctx context.Context, r Range) (rows []Keyed[*Row], events []Keyed[[]Event], err error) {
	ctx, cancel := t.limit(ctx)
	defer cancel()
	c := t.check
	together := c.Write != nil && c.Log != nil && c.Write.Database == c.Log.Database
	if c.Write != nil {
		err = t.write.snapshot(ctx, func(q queryer) error {
			var err error
			if rows, err = t.rows(ctx, q, t.write.Dialect, c.Write, r, func(i int) string { return c.Compare[i].in(c.Compare[i].Write) }); err != nil {
				return fmt.Errorf("write side: %w", err)
			}
			if together {
				events, err = t.eventRows(ctx, q, r)
			}
			return err
		})
	}
	if err == nil && c.Log != nil && !together {
		events, err = t.events(ctx, r)
	}
	return rows, events, err
}

func (t *tables) events(ctx context.Context, r Range) (events []Keyed[[]Event], err error) {
	if t.check.Log == nil {
		return nil, nil
	}
	ctx, cancel := t.limit(ctx)
	defer cancel()
	err = t.log.snapshot(ctx, func(q queryer) error {
		var err error
		events, err = t.eventRows(ctx, q, r)
		return err
	})
	return events, err
}

func (t *tables) readModel(ctx context.Context, r Range) (rows []Keyed[*Row], err error) {
	c := t.check
	if c.Read == nil {
		return nil, nil
	}
	ctx, cancel := t.limit(ctx)
	defer cancel()
	err = t.read.snapshot(ctx, func(q queryer) error {
		var err error
		rows, err = t.rows(ctx, q, t.read.Dialect, c.Read, r, func(i int) string { return c.Compare[i].in(c.Compare[i].Read) })
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read side: %w", err)
	}
	return rows, nil
}

// rows reads a business table or a read model.
func (t *tables) rows(ctx context.Context, q queryer, d Dialect, table *Table, r Range, compared func(int) string) ([]Keyed[*Row], error) {
	s := &statement{dialect: d}
	k := d.keys(table, t.kinds)
	p := projection{dialect: d, columns: slices.Clone(k.columns)}
	version, updated, eventID, removed := p.take(table.Version), p.take(table.UpdatedAt), p.take(table.EventID), p.take(table.Deleted)
	values := make([]int, len(t.check.Compare))
	for i := range values {
		values[i] = p.take(compared(i))
	}
	s.add("SELECT %s FROM %s", strings.Join(p.columns, ", "), d.table(table))
	k.where(s, r)
	filter(s, table)
	s.add(" ORDER BY %s", k.orderBy())
	var rows []Keyed[*Row]
	err := scan(ctx, q, s, func(types []column, got []any) error {
		key, err := NewKey(t.kinds, got[:len(t.kinds)])
		if err != nil {
			return err
		}
		row := &Row{Values: make([]Value, len(values))}
		if row.Version, err = versionOf(got[version]); err != nil {
			return fmt.Errorf("key %s: %w", key, err)
		}
		row.UpdatedAt = timeAt(types, got, updated)
		row.EventID = textAt(got, eventID)
		row.Deleted = markAt(types, got, removed)
		for i, at := range values {
			row.Values[i] = t.valueAt(types, got, at, i)
		}
		rows = append(rows, Keyed[*Row]{key, row})
		return nil
	})
	return rows, err
}

// valueAt makes the i-th compared column's value.
func (t *tables) valueAt(types []column, got []any, at, i int) Value {
	if at < 0 {
		return Null
	}
	return t.as(types[at], i).value(got[at])
}

// as applies what the check says of the i-th compared column.
func (t *tables) as(c column, i int) column {
	if as := t.check.Compare[i].As; as != KindAuto {
		c.as = as
	}
	if digits := t.check.Compare[i].Digits; digits != nil {
		c.digits = *digits
	}
	return c
}

// projection is the list of selected columns.
type projection struct {
	dialect Dialect
	columns []string
}

// take adds a column and returns its position; -1 for none.
func (p *projection) take(name string) int {
	if name == "" {
		return -1
	}
	p.columns = append(p.columns, p.dialect.quote(name))
	return len(p.columns) - 1
}

func versionOf(got any) (int64, error) {
	switch x := got.(type) {
	case nil:
		return 0, nil
	case int64:
		return x, nil
	case []byte:
		got = string(x)
	}
	text, ok := canonicalNumber(fmt.Sprint(got))
	if version, err := strconv.ParseInt(text, 10, 64); ok && err == nil {
		return version, nil
	}
	return 0, fmt.Errorf("the version %.40v is no integer of 64 bits", got)
}

func timeAt(types []column, got []any, at int) time.Time {
	if at < 0 {
		return time.Time{}
	}
	return column{as: KindTime, database: types[at].database, digits: -1}.value(got[at]).at
}

func textAt(got []any, at int) string {
	if at < 0 {
		return ""
	}
	return textOf(got[at])
}

func textOf(cell any) string {
	switch x := cell.(type) {
	case nil:
		return ""
	case string:
		return x
	case []byte:
		return string(x)
	}
	return fmt.Sprint(cell)
}

// markAt reads a boolean, or a time that is set once the row is deleted.
func markAt(types []column, got []any, at int) bool {
	if at < 0 || got[at] == nil {
		return false
	}
	as := column{as: KindBool, database: types[at].database, digits: -1}.value(got[at])
	return as.kind != KindBool || as.text == "true"
}
