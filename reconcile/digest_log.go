package reconcile

import (
	"context"
	"fmt"
	"math/big"
	"slices"
	"strings"
)

// Where the log has its content in columns, and the same server, it is not read
// either: it is asked for the digest of the rows that its latest events call for.
// What it says for each key is compared only where that is not the other arms'.

// logDigest is what stands for the log in a range.
type logDigest struct {
	digest       // of the rows that the latest events call for
	keys   int64 // the deleted ones, too
	odd    int64 // of these keys the latest event does not tell alone
	events int64
}

// uniquesPostgres lists what rows of a table can have only once: the names of the
// columns of each such index.
const uniquesPostgres = `
SELECT string_agg(a.attname, chr(10))
FROM pg_index AS i
JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid, i.indnkeyatts
HAVING COUNT(*) = i.indnkeyatts`

// single reports whether no key of the log has two events of one version, for an
// index sees to that.
func (t *tables) single(ctx context.Context) (single bool, err error) {
	log := t.check.Log
	for i, kind := range t.kinds {
		if kind != KeyText && log.KeyStored[i] != StoredNative {
			return false, nil // two texts may be one key
		}
	}
	s := &statement{dialect: Postgres}
	s.add(uniquesPostgres, s.bind(s.dialect.table(&log.Table)))
	err = scan(ctx, t.log.DB, s, func(_ []column, values []any) error {
		single = single || !slices.ContainsFunc(strings.Split(textOf(values[0]), "\n"), func(name string) bool {
			_, fixed := log.Where[name]
			return !fixed && name != log.Version && !slices.Contains(log.Key, name)
		})
		return nil
	})
	return single, err
}

// glanceRows is how many times as many events a page has of which none is read.
const glanceRows = 10

// glancePostgres has one plan made for all pages, and the latest events found by
// walking over an index backwards, which is cheaper than to sort them.
const glancePostgres = `
SELECT set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true)`

// cutRows ends the page at the row that so many others come before.
func (d *desk) cutRows(ctx context.Context, q queryer, rows int) error {
	_, err := d.cut(ctx, q, d.check.Write, "", rows)
	return err
}

// cutLog ends the page at the key of the event that so many others come before,
// and knows how many of them are of other keys.
func (d *desk) cutLog(ctx context.Context, q queryer, events int) (err error) {
	d.before = events
	d.version, err = d.cut(ctx, q, &d.check.Log.Table, d.check.Log.Version, events)
	return err
}

// cut ends the page at the key of the n-th row, and returns what the row has in a
// column that sorts those of a key.
func (d *desk) cut(ctx context.Context, q queryer, table *Table, then string, n int) (value any, err error) {
	ctx, cancel := d.limit(ctx)
	defer cancel()
	s := &statement{dialect: Postgres}
	k := s.dialect.keys(table, d.kinds)
	columns, order := k.selected(), k.orderBy()
	if then != "" {
		columns, order = columns+", "+s.dialect.quote(then), order+", "+s.dialect.quote(then)
	}
	s.add("SELECT %s FROM %s", columns, s.dialect.table(table))
	k.where(s, d.whole)
	filter(s, table)
	s.add(" ORDER BY %s LIMIT 1 OFFSET %d", order, n)
	err = scan(ctx, q, s, func(_ []column, values []any) error {
		to, err := NewKey(d.kinds, values[:len(d.kinds)])
		d.whole.To, value = &to, values[len(values)-1]
		if from := d.whole.From; err == nil && from != nil && to.Compare(*from) <= 0 {
			err = errCrowded // one key fills the page
		}
		return err
	})
	return value, err
}

func hurry(ctx context.Context, q queryer) error {
	s := &statement{dialect: Postgres}
	s.add(glancePostgres)
	return scan(ctx, q, s, func([]column, []any) error { return nil })
}

// logStatement asks for the digest of the log in the page. Most of its events were
// counted when the page was cut.
func (d *desk) logStatement() *statement {
	log := d.check.Log
	s := &statement{dialect: Postgres}
	k := s.dialect.keys(&log.Table, d.kinds)
	rows := func(of Range) {
		s.add(" FROM %s", s.dialect.table(&log.Table))
		k.where(s, of)
		filter(s, &log.Table)
	}
	told, live := s.dialect.quote(log.Version)+" IS NOT NULL", "TRUE"
	if log.State != "" {
		told += " AND COALESCE(" + s.dialect.quote(log.State) + " IN (" + s.words(log.Sent) + "), FALSE)"
	}
	if len(log.Deletes) > 0 {
		live = "COALESCE(" + s.dialect.quote(log.Type) + " NOT IN (" + s.words(log.Deletes) + "), TRUE)"
	}
	hashed := d.hashed(s, k, &log.Table, func(c *Column) string {
		if c.in(c.Write) == "" {
			return ""
		}
		return c.in(c.Log)
	})
	s.add("SELECT COUNT(*) FILTER (WHERE %[1]s), CAST(COALESCE(SUM(%[2]s) FILTER (WHERE %[1]s), 0) AS TEXT), COUNT(*), COUNT(*) FILTER (WHERE NOT (%[3]s)), ", live, hashed, told)
	if d.whole.To == nil {
		s.add("(SELECT COUNT(*)")
		rows(d.whole)
		s.add(")")
	} else {
		s.add("%d - (SELECT COUNT(*)", d.before)
		rows(Range{only: d.whole.To})
		s.add(" AND %s < %s)", s.dialect.quote(log.Version), s.bind(d.version))
	}
	orders, latest := make([]string, len(k.columns)), make([]string, len(k.columns))
	for i := range k.columns {
		orders[i] = k.order(i)
		latest[i] = orders[i] + " DESC"
	}
	s.add(" FROM (SELECT DISTINCT ON (%s) *", strings.Join(orders, ", "))
	rows(d.whole)
	s.add(" ORDER BY %s, %s DESC) AS latest", strings.Join(latest, ", "), s.dialect.quote(log.Version))
	return s
}

// words binds some texts.
func (s *statement) words(words []string) string {
	places := make([]string, len(words))
	for i := range words {
		places[i] = s.bind(words[i])
	}
	return strings.Join(places, ", ")
}

func (d *desk) logDigest(ctx context.Context, q queryer) (found logDigest, err error) {
	ctx, cancel := d.limit(ctx)
	defer cancel()
	err = scan(ctx, q, d.logStatement(), func(_ []column, values []any) (err error) {
		found.digest, err = digestFrom(values)
		for i, into := range []*int64{&found.keys, &found.odd, &found.events} {
			*into, _ = values[2+i].(int64)
		}
		return err
	})
	d.digests.note(err)
	return found, err
}

var twoTo64 = new(big.Int).Lsh(big.NewInt(1), 64)

func digestFrom(values []any) (digest, error) {
	rows, counted := values[0].(int64)
	sum, whole := new(big.Int).SetString(textOf(values[1]), 10)
	if !counted || !whole {
		return digest{}, fmt.Errorf("%.40v rows with the sum %.40v are no digest", values[0], values[1])
	}
	return digest{rows, sum.Mod(sum, twoTo64).Uint64()}, nil
}

// learnLog looks whether digests alone can tell that all arms are alike.
func (d *desk) learnLog() {
	d.byLog.able = d.digests.able[d.check.Log.table()] && d.digests.single && d.byWrite.able && d.log.payload < 0 && !d.prover.rules.EveryVersion
	if d.check.Read != nil {
		d.byLog.able = d.byLog.able && d.byRead.able && d.byRead.alike(&d.byWrite)
	}
	for at := range d.log.types {
		if at < len(d.kinds) || at == d.log.version || slices.Contains(d.log.compared, at) {
			d.byLog.able = d.byLog.able && hashable(d.log.types[at])
		}
	}
}

// glance compares the page by digests alone, and reports whether all are alike:
// of row and log in the snapshot, of the read side after both.
func (d *desk) glance(ctx context.Context, snapshot *snapshot) (found page, alike bool, err error) {
	defer func() { d.byLog.note(alike) }()
	log, row, err := func() (log logDigest, row digest, err error) {
		defer snapshot.end()
		if err = hurry(ctx, snapshot); err == nil {
			log, err = d.logDigest(ctx, snapshot)
		}
		if err == nil && log.odd == 0 {
			row, err = d.digestOf(ctx, snapshot, d.digestStatement(d.check.Write, writeColumn, nil))
		}
		return log, row, err
	}()
	if err != nil || log.odd > 0 || row != log.digest {
		return page{}, false, err
	}
	found = page{whole: d.whole, keys: log.keys, rows: RowCounts{Write: log.rows, Log: log.events}}
	if d.check.Read == nil {
		return found, true, nil
	}
	var read digest
	err = d.tables.read.snapshot(ctx, func(q queryer) (err error) {
		if err := hurry(ctx, q); err != nil {
			return err
		}
		read, err = d.digestOf(ctx, q, d.digestStatement(d.check.Read, readColumn, nil))
		return err
	})
	found.rows.Read = read.rows
	return found, err == nil && read == log.digest, err
}
