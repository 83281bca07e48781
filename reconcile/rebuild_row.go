package reconcile

import (
	"context"
	"maps"
	"slices"
	"strings"
)

// row reads a key's row of the table that is written to; nil for none.
func (b *rebuild) row(ctx context.Context, q queryer, key Key) (*Row, error) {
	limited, cancel := b.bases.limit(ctx)
	defer cancel()
	found, err := b.bases.rows(limited, q, b.bases.read.Dialect, b.table, Range{only: &key}, func(i int) string { return b.check.Compare[i].in(b.check.Compare[i].Read) })
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0].Item, nil
}

// logReader is what the log is read by. Where it is in the read model's
// database, the connection at hand may be the only one; but on MySQL one that
// holds tables can read no other.
func (b *rebuild) logReader() queryer {
	if b.bases.log.DB != b.bases.read.DB || b.bases.read.Dialect.family() == MySQL {
		return b.bases.log.DB
	}
	return b.on
}

// assigned are the columns that a rebuild writes, with their values.
func (b *rebuild) assigned(sent *Event) (names []string, values []any) {
	read := b.table
	add := func(name string, value any) {
		if name != "" && !slices.Contains(names, name) {
			names, values = append(names, name), append(values, value)
		}
	}
	add(read.Version, sent.Version)
	if b.check.Log.EventID != "" {
		add(read.EventID, sent.ID)
	}
	add(read.UpdatedAt, b.bases.read.Dialect.timeParam(b.clock.Now()))
	for i := range b.check.Compare {
		add(b.check.Compare[i].in(b.check.Compare[i].Read), b.bases.read.Dialect.valueParam(sent.Values[i]))
	}
	return names, values
}

func (b *rebuild) insert(f *Facts, sent *Event) *statement {
	d, read := b.bases.read.Dialect, b.table
	s := &statement{dialect: d}
	k := d.keys(read, b.bases.kinds)
	columns, places := slices.Clone(k.columns), []string(nil)
	for i := range k.columns {
		places = append(places, s.bind(d.storedParam(f.Key.parts[i], k.kinds[i], k.stored[i])))
	}
	names, values := b.assigned(sent)
	for i, name := range names {
		columns, places = append(columns, d.quote(name)), append(places, s.bind(values[i]))
	}
	for _, name := range slices.Sorted(maps.Keys(read.Where)) {
		columns, places = append(columns, d.quote(name)), append(places, s.bind(read.Where[name]))
	}
	return s.add("INSERT INTO %s (%s) VALUES (%s)", d.table(read), strings.Join(columns, ", "), strings.Join(places, ", "))
}

func (b *rebuild) update(f *Facts, sent *Event) *statement {
	d, read := b.bases.read.Dialect, b.table
	s := &statement{dialect: d}
	names, values := b.assigned(sent)
	for i, name := range names {
		names[i] = d.quote(name) + " = " + s.bind(values[i])
	}
	s.add("UPDATE %s SET %s", d.table(read), strings.Join(names, ", "))
	return b.unchanged(s, f)
}

func (b *rebuild) remove(f *Facts) *statement {
	d, read := b.bases.read.Dialect, b.table
	return b.unchanged((&statement{dialect: d}).add("DELETE FROM %s", d.table(read)), f)
}

// unchanged limits a statement to the row as it was read.
func (b *rebuild) unchanged(s *statement, f *Facts) *statement {
	d, read := b.bases.read.Dialect, b.table
	d.keys(read, b.bases.kinds).where(s, Range{only: &f.Key})
	filter(s, read)
	s.add(" AND COALESCE(%s, 0) = %s", d.quote(read.Version), s.bind(f.Read.Version))
	return s
}
