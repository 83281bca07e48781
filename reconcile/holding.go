package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/waybillhq/waybill"
)

// holding is what the log's database has of a key: the row as a whole, and its
// events.
type holding struct {
	row    *Row
	values []Value          // of the row; nil where there is none
	extra  map[string]Value // further columns of the row
	events []Event
	past   []past // the events in full; nil where they were not asked for
}

func (h *holding) rowMark() string { return rowMark(h.row, h.extra) }

// latest returns the last event in full; nil where there is none.
func (h *holding) latest() *waybill.Event {
	if len(h.past) == 0 {
		return nil
	}
	return &h.past[len(h.past)-1].event
}

// holdingNow reads a key in a snapshot of its own.
func (t *tables) holdingNow(ctx context.Context, key Key, extra []string) (h *holding, err error) {
	ctx, cancel := t.limit(ctx)
	defer cancel()
	err = t.write.snapshot(ctx, func(q queryer) error {
		var err error
		if h, err = t.holding(ctx, q, key, extra); err == nil {
			h.past, err = t.past(ctx, q, key)
		}
		return err
	})
	return h, err
}

func (t *tables) holding(ctx context.Context, q queryer, key Key, extra []string) (*holding, error) {
	c := t.check
	h := &holding{}
	rows, err := t.rows(ctx, q, t.write.Dialect, c.Write, Range{only: &key}, func(i int) string { return c.Compare[i].in(c.Compare[i].Write) })
	if err != nil {
		return nil, fmt.Errorf("write side: %w", err)
	}
	if len(rows) > 0 {
		h.row, h.values = rows[0].Item, rows[0].Item.Values
	}
	if len(rows) > 0 && len(extra) > 0 {
		if h.extra, err = t.extra(ctx, q, key, extra); err != nil {
			return nil, fmt.Errorf("write side: %w", err)
		}
	}
	events, err := t.eventRows(ctx, q, Range{only: &key})
	if len(events) > 0 {
		h.events = events[0].Item
	}
	return h, err
}

// extra reads columns of a row that the check does not compare.
func (t *tables) extra(ctx context.Context, q queryer, key Key, names []string) (map[string]Value, error) {
	d, table := t.write.Dialect, t.check.Write
	s := &statement{dialect: d}
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = d.quote(name)
	}
	s.add("SELECT %s FROM %s", strings.Join(quoted, ", "), d.table(table))
	d.keys(table, t.kinds).where(s, Range{only: &key})
	filter(s, table)
	values := make(map[string]Value)
	err := scan(ctx, q, s, func(types []column, got []any) error {
		for i, name := range names {
			values[name] = types[i].value(got[i])
		}
		return nil
	})
	return values, err
}

// valuesIn reads the compared columns from a payload.
func (t *tables) valuesIn(data []byte) []Value {
	values := make([]Value, len(t.check.Compare))
	document, err := decodeJSON(data)
	for i := range values {
		c := &t.check.Compare[i]
		path := c.in(c.Log)
		switch {
		case path == "":
		case err != nil:
			values[i] = unread
		default:
			if node, found := lookup(document, path); found {
				values[i] = documentValue(node, t.as(column{digits: -1}, i))
			}
		}
	}
	return values
}

// lock keeps the row from being changed until the transaction ends. SQLite has
// one writer at a time: a write that touches nothing makes this it.
func (t *tables) lock(ctx context.Context, x executor, key Key) error {
	d, table := t.write.Dialect, t.check.Write
	s := &statement{dialect: d}
	if d == SQLite {
		s.add("UPDATE %s SET %s = %[2]s WHERE 1 = 0", d.table(table), d.quote(table.Version))
		_, err := x.ExecContext(ctx, s.text.String())
		return err
	}
	s.add("SELECT %s FROM %s", d.quote(table.Version), d.table(table))
	d.keys(table, t.kinds).where(s, Range{only: &key})
	filter(s, table)
	s.add(" FOR UPDATE")
	return scan(ctx, x, s, func([]column, []any) error { return nil })
}

// set changes columns of a row that has the version it is known by.
func (t *tables) set(ctx context.Context, x executor, key Key, version int64, names []string, values []any) (int64, error) {
	d, table := t.write.Dialect, t.check.Write
	s := &statement{dialect: d}
	terms := make([]string, len(names))
	for i, name := range names {
		terms[i] = d.quote(name) + " = " + s.bind(values[i])
	}
	s.add("UPDATE %s SET %s", d.table(table), strings.Join(terms, ", "))
	d.keys(table, t.kinds).where(s, Range{only: &key})
	filter(s, table)
	s.add(" AND COALESCE(%s, 0) = %s", d.quote(table.Version), s.bind(version))
	result, err := x.ExecContext(ctx, s.text.String(), s.args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

const auditSQL = `
INSERT INTO %s (%s)
VALUES (%s)`

// audit writes down what is done, in the transaction that does it.
func (t *tables) audit(ctx context.Context, x executor, actor, verb, target, reason, before, after string) error {
	d := t.log.Dialect
	s := &statement{dialect: d}
	names := []string{"actor", "verb", "target", "reason", "before", "after"}
	places := make([]string, len(names))
	for i, value := range []string{actor, verb, target, reason, before, after} {
		names[i], places[i] = d.quote(names[i]), s.bind(value)
	}
	s.add(auditSQL, t.outboxTable(t.check.Log.Outbox.Names.WithDefaults().Audit), strings.Join(names, ", "), strings.Join(places, ", "))
	_, err := x.ExecContext(ctx, s.text.String(), s.args...)
	return err
}

const auditedSQL = `
SELECT COUNT(*)
FROM %s
WHERE verb = %s AND target = %s AND reason = %s`

// audited reports whether something was done and written down.
func (t *tables) audited(ctx context.Context, q queryer, verb, target, reason string) (done bool, err error) {
	s := &statement{dialect: t.log.Dialect}
	s.add(auditedSQL, t.outboxTable(t.check.Log.Outbox.Names.WithDefaults().Audit), s.bind(verb), s.bind(target), s.bind(reason))
	err = scan(ctx, q, s, func(_ []column, got []any) error {
		n, err := versionOf(got[0])
		done = n > 0
		return err
	})
	return done, err
}

// accepts returns the columns of the business row that an event's content
// goes to, with their values.
func (t *tables) accepts(e *Event) (names []string, values []any) {
	c, d := t.check, t.write.Dialect
	names, values = []string{c.Write.Version}, []any{e.Version}
	for i := range c.Compare {
		name := c.Compare[i].in(c.Compare[i].Write)
		if name == "" || c.Compare[i].in(c.Compare[i].Log) == "" || slices.Contains(names, name) {
			continue
		}
		names, values = append(names, name), append(values, d.valueParam(e.Values[i]))
	}
	return names, values
}
