package reconcile

import (
	"context"
	"iter"
	"slices"
	"strings"
	"sync"
)

// prover is implemented by arms that can tell at about the speed of a scan
// which keys are beyond doubt.
type prover interface {
	// pages walks over the keys from one on. Each page begins where the one
	// before ended; one that could not be read is the last. So many are in work
	// at once, the one that is looked at included.
	pages(ctx context.Context, from *Key, rows, atOnce int) iter.Seq[page]
	// unordered names the arms that cannot be read in the order of their keys,
	// each with what would help.
	unordered(ctx context.Context) ([]string, error)
	// parts walks over all keys in no order.
	parts(ctx context.Context) iter.Seq[page]
}

// page is a range of keys of which most are proved to have no verdict.
type page struct {
	whole    Range
	keys     int64 // proved; their rows alone are counted
	rows     RowCounts
	notes    map[note]int
	doubtful []Key // ascending; to be read and judged by themselves
	err      error
}

// While one page waits for a database, others are read and compared. With fewer
// there are moments in which all of them wait.
const pagesInWork = 5

// Connections is how many connections an engine uses at once of one database:
// one for each range in work, and one for the range that is about to be.
const Connections = pagesInWork + 1

// pages has one goroutine read the arm that leads, page after page, and one for
// each page to read the other arms and compare. What they make of a page comes
// out in the order of the keys. Memory holds as many pages as are in work.
func (t *tables) pages(ctx context.Context, from *Key, rows, atOnce int) iter.Seq[page] {
	return func(yield func(page) bool) {
		if err := t.ask(ctx); err != nil {
			yield(page{whole: Range{From: from}, err: err})
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		var working sync.WaitGroup
		defer working.Wait()
		defer cancel()
		taken := make(chan *desk, atOnce) // in the order of the keys
		free := make(chan *desk, atOnce)
		for range atOnce {
			free <- newDesk(t)
		}
		working.Go(func() {
			defer close(taken)
			for next := from; ; {
				var d *desk
				select {
				case d = <-free:
				case <-ctx.Done():
					return
				}
				taken <- d // has room for all there are
				follow := d.lead(ctx, Range{From: next}, rows, true)
				next = d.whole.To
				working.Go(func() { d.done <- follow() })
				if next == nil {
					return
				}
			}
		})
		for d := range taken {
			select {
			case p := <-d.done:
				if !yield(p) || p.err != nil {
					return
				}
				free <- d
			case <-ctx.Done():
				return
			}
		}
	}
}

// desk is where a page is read and compared.
type desk struct {
	*tables
	whole            Range
	write, log, read sheet
	prover           proof
	byWrite, byRead  digested
	byLog            digested  // all arms by digests alone
	before           int       // events up to the first of the page\'s end,
	version          any       // which has this version, left out
	done             chan page // what became of it, one at a time
}

func newDesk(t *tables) *desk {
	d := &desk{tables: t, done: make(chan page, 1)}
	d.prover = newProof(t, &d.write, &d.log, &d.read)
	d.byWrite, d.byRead = digested{side: WriteSide, sheet: &d.write}, digested{side: ReadSide, sheet: &d.read}
	return d
}

// lead finds out where the page ends, within a range. Where no digest stands for
// the write side, or there is none, the rows or events that say so are read. What is
// left to do is returned, to be done while the next page begins.
func (d *desk) lead(ctx context.Context, within Range, rows int, glances bool) (follow func() page) {
	d.whole = within
	failed := func(err error) func() page { return func() page { return page{whole: within, err: err} } }
	d.byWrite.begin()
	d.byRead.begin()
	if glances {
		d.byLog.begin()
		glances = d.byLog.wanted && d.byWrite.wanted && (d.check.Read == nil || d.byRead.wanted)
	}
	leader := d.tables.write
	if d.check.Write == nil {
		leader = d.tables.log
	}
	snapshot, err := leader.begin(ctx)
	if err != nil {
		return failed(err)
	}
	switch {
	case glances:
		err = d.cutLog(ctx, snapshot, glanceRows*rows)
	case d.byWrite.wanted:
		err = d.cutRows(ctx, snapshot, rows)
	default:
		err = d.first(ctx, snapshot, rows)
	}
	if err != nil {
		snapshot.end()
		d.whole = within
		return failed(err)
	}
	return func() page {
		if glances {
			return d.atAGlance(ctx, snapshot, rows)
		}
		if err := d.rest(ctx, snapshot, rows); err != nil {
			return page{whole: d.whole, err: err}
		}
		return d.prover.page(d.whole, &d.byWrite, &d.byRead)
	}
}

// atAGlance compares a page by digests alone. Where they differ it is read in
// pages of the usual size.
func (d *desk) atAGlance(ctx context.Context, snapshot *snapshot, rows int) page {
	sum, alike, err := d.glance(ctx, snapshot)
	if alike {
		return sum
	}
	sum = page{whole: d.whole, err: err, notes: make(map[note]int)}
	for rest := d.whole; sum.err == nil; rest.From = d.whole.To {
		sum.add(d.lead(ctx, rest, rows, false)())
		if d.whole.To == sum.whole.To {
			break
		}
	}
	return sum
}

// add adds what became of a part of the page.
func (p *page) add(part page) {
	p.err = part.err
	p.keys += part.keys
	p.rows.Write += part.rows.Write
	p.rows.Log += part.rows.Log
	p.rows.Read += part.rows.Read
	for n, count := range part.notes {
		p.notes[n] += count
	}
	p.doubtful = append(p.doubtful, part.doubtful...)
}

// first reads the rows of the arm that says where the page ends: the write side,
// or the log of a check without one.
func (d *desk) first(ctx context.Context, snapshot *snapshot, rows int) (err error) {
	var first *sheet
	if d.check.Write != nil {
		first, err = &d.write, d.readRows(ctx, snapshot, d.tables.write.Dialect, d.check.Write, &d.write, writeColumn, rows+1)
	} else {
		first, err = &d.log, d.readEvents(ctx, snapshot, rows+1)
	}
	if err != nil || first.read <= int64(rows) {
		return err
	}
	to, err := first.cut(d.kinds)
	if err == nil && first.len() == 0 {
		err = errCrowded // one key fills the page
	}
	d.whole.To = &to
	return err
}

// rest reads the arms that follow: row and event in one snapshot, if they are in
// one database, and the read side after both.
func (d *desk) rest(ctx context.Context, snapshot *snapshot, rows int) error {
	odd, err := d.together(ctx, snapshot, rows)
	if c := d.check; err == nil && c.Read != nil {
		err = d.tables.read.snapshot(ctx, func(q queryer) error { return d.fetch(ctx, q, &d.byRead, c.Read, readColumn, odd, rows) })
	}
	if err == nil {
		d.learn(&d.byWrite, d.check.Write)
		d.learn(&d.byRead, d.check.Read)
		d.learnLog()
	}
	return err
}

// crowd is how many times as many keys as the leading arm another may have.
const crowd = 4

// together reads what is still to be read of rows and events, in the snapshot of
// the arm that leads as far as they are there. It returns the keys of which no
// digest can tell.
func (d *desk) together(ctx context.Context, snapshot *snapshot, rows int) (odd []Key, err error) {
	defer snapshot.end()
	c, cut := d.check, d.byWrite.wanted
	switch {
	case c.Log == nil:
		return nil, nil
	case c.Write == nil:
	case c.Write.Database == c.Log.Database:
		err = d.readEvents(ctx, snapshot, -crowd*rows)
	default:
		snapshot.end()
		err = d.tables.log.snapshot(ctx, func(q queryer) error { return d.readEvents(ctx, q, -crowd*rows) })
	}
	if err == nil {
		odd, err = d.expect()
	}
	if err == nil && cut {
		err = d.fetch(ctx, snapshot, &d.byWrite, c.Write, writeColumn, odd, rows)
	}
	return odd, err
}

// fetch reads the digest of an arm, and its rows if that is not what it should be.
func (d *desk) fetch(ctx context.Context, q queryer, as *digested, table *Table, compared func(*Column) string, odd []Key, rows int) error {
	if as.wanted {
		found, err := d.digestOf(ctx, q, d.digestStatement(table, compared, odd))
		if err != nil {
			return err
		}
		if as.note(found == as.digest); as.matched {
			return nil
		}
	}
	dialect := d.tables.read.Dialect
	if as.side == WriteSide {
		dialect = d.tables.write.Dialect
	}
	return d.readRows(ctx, q, dialect, table, as.sheet, compared, -crowd*rows)
}

func writeColumn(c *Column) string { return c.in(c.Write) }

func readColumn(c *Column) string { return c.in(c.Read) }

// readRows reads rows of the page: so many at most, or, where negative, all
// and no more keys than that.
func (d *desk) readRows(ctx context.Context, q queryer, dialect Dialect, table *Table, into *sheet, compared func(*Column) string, most int) error {
	return into.fill(ctx, d.tables, q, d.rowStatement(dialect, table, into, compared, most), max(most, -most), nil)
}

// readEvents reads the events of the page, and keeps of each key the one of the
// highest version.
func (d *desk) readEvents(ctx context.Context, q queryer, most int) error {
	return d.log.fill(ctx, d.tables, q, d.eventStatement(most), max(most, -most), d.prover.newer)
}

// rowStatement reads the rows of the page, and lays out the sheet for them.
// With 0 for most it reads all rows in any order.
func (d *desk) rowStatement(dialect Dialect, table *Table, into *sheet, compared func(*Column) string, most int) *statement {
	s := &statement{dialect: dialect}
	k := dialect.keys(table, d.kinds)
	p := projection{dialect: dialect, columns: slices.Clone(k.columns)}
	into.version, into.removed = p.take(table.Version), p.take(table.Deleted)
	into.compared = into.compared[:0]
	for i := range d.check.Compare {
		into.compared = append(into.compared, p.take(compared(&d.check.Compare[i])))
	}
	d.ordered(s, &p, k, table, "", most)
	return s
}

// eventStatement does the same for events.
func (d *desk) eventStatement(most int) *statement {
	log, dialect, into := d.check.Log, d.tables.log.Dialect, &d.log
	s := &statement{dialect: dialect}
	k := dialect.keys(&log.Table, d.kinds)
	p := projection{dialect: dialect, columns: slices.Clone(k.columns)}
	into.version, into.state, into.event, into.payload = p.take(log.Version), p.take(log.State), -1, -1
	if len(log.Deletes) > 0 {
		into.event = p.take(log.Type)
	}
	into.compared = into.compared[:0]
	for i := range d.check.Compare {
		at, column := -1, &d.check.Compare[i]
		switch {
		case d.check.Events == "delta": // an event alone says nothing
		case log.Payload == "":
			at = p.take(column.in(column.Log))
		case column.in(column.Log) != "" && into.payload < 0:
			into.payload = p.take(log.Payload)
		}
		into.compared = append(into.compared, at)
	}
	then := ""
	if d.check.Density == "every_version" {
		then = ", " + dialect.quote(log.Version)
	}
	d.ordered(s, &p, k, &log.Table, then, most)
	return s
}

// ordered writes the statement that reads an arm's rows of the page.
func (d *desk) ordered(s *statement, p *projection, k keys, table *Table, then string, most int) {
	s.add("SELECT %s FROM %s", strings.Join(p.columns, ", "), s.dialect.table(table))
	k.where(s, d.whole)
	filter(s, table)
	if most != 0 {
		s.add(" ORDER BY %s%s", k.orderBy(), then)
	}
	if most > 0 {
		s.add(" LIMIT %d", most)
	}
}
