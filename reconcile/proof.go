package reconcile

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"
)

// proof compares the sheets of a page. It knows the two cases that have no
// verdict, and no others: all arms have the key at one version, the event of
// which was sent and is the latest, with the same content; or the latest event
// is a delete that was sent, and the key is nowhere else. Whatever is not proved
// is left to Judge, with facts that are read for it.
type proof struct {
	check            *Check
	rules            Rules
	write, log, read *sheet
	paths            [][]string
	members          []column // how they are read as the compared columns
	literals         []literal
	kinds            []KeyKind

	found page
	noted []note // of the key at hand
	sent  string // a word for the state of an event that was sent
}

func newProof(t *tables, write, log, read *sheet) proof {
	p := proof{check: t.check, rules: t.check.rules(), write: write, log: log, read: read, kinds: t.kinds, literals: make([]literal, len(t.check.Compare))}
	for i := range t.check.Compare {
		var path []string
		if c := &t.check.Compare[i]; t.check.Log != nil && c.in(c.Log) != "" {
			path = strings.Split(strings.TrimPrefix(c.in(c.Log), "$."), ".")
		}
		p.paths = append(p.paths, path)
		p.members = append(p.members, t.as(column{digits: -1}, i))
	}
	return p
}

// mark is what a page keeps of a key's events beside the latest.
type mark struct {
	events int64
	odd    bool // the latest alone does not prove the key right
}

// newer decides which of two events of a key stands for all, and marks keys of
// which one alone is not enough.
func (p *proof) newer(old, last int) (replace bool, err error) {
	l := p.log
	if old < 0 {
		l.marks = append(l.marks[:last], mark{1, l.absent(last, l.version) || p.rules.EveryVersion && !p.first(last)})
		return false, nil
	}
	m := &l.marks[old]
	m.events++
	was, err := l.versionOf(old)
	if err != nil {
		return false, err
	}
	is, err := l.versionOf(last)
	if err != nil {
		return false, err
	}
	m.odd = m.odd || l.absent(last, l.version) || was == is || p.rules.EveryVersion && (is != was+1 || !p.isSent(last))
	return is > was, nil
}

// first reports whether a key's history, without gaps, may begin by an event.
func (p *proof) first(i int) bool {
	version, err := p.log.versionOf(i)
	return err == nil && (version == p.rules.FirstVersion || p.check.LogRetention > 0) && p.isSent(i)
}

func (p *proof) isSent(i int) bool {
	if p.log.state < 0 {
		return true
	}
	if p.log.texts.on {
		word := p.log.texts.cell(i*p.log.width + p.log.state)
		if p.sent != "" && string(word) == p.sent {
			return true
		}
	}
	word := textOf(p.log.cell(i, p.log.state))
	if p.check.Log.state(word) != StateSent {
		return false
	}
	p.sent = word
	return true
}

func (p *proof) isDelete(i int) bool {
	return p.log.event >= 0 && slices.Contains(p.check.Log.Deletes, textOf(p.log.cell(i, p.log.event)))
}

// page merges the sheets of a range, but for those of an arm whose digest is as
// the log says.
func (p *proof) page(whole Range, write, read *digested) page {
	counted := RowCounts{Write: write.counted(), Read: read.counted()}
	p.found = page{whole: whole, notes: make(map[note]int), rows: counted}
	p.rules.HasWrite, p.rules.HasRead = p.check.Write != nil && !write.matched, p.check.Read != nil && !read.matched
	w, l, r := newCursor(p.write, p.rules.HasWrite), newCursor(p.log, p.rules.HasLog), newCursor(p.read, p.rules.HasRead)
	for _, c := range []*cursor{&w, &l, &r} {
		if p.found.err = c.within(whole, p.kinds); p.found.err != nil {
			return p.found
		}
	}
	for {
		least := w.head
		if least == nil || l.head != nil && bytes.Compare(l.head, least) < 0 {
			least = l.head
		}
		if least == nil || r.head != nil && bytes.Compare(r.head, least) < 0 {
			least = r.head
		}
		if least == nil {
			return p.found
		}
		write, log, read := w.take(least), l.take(least), r.take(least)
		if p.proved(write, log, read) {
			p.count(write, log, read)
			continue
		}
		if log >= 0 && !p.log.marks[log].odd && !p.isDelete(log) { // its rows are counted when it is read by itself
			p.found.rows.Write -= min(counted.Write, 1)
			p.found.rows.Read -= min(counted.Read, 1)
		}
		from, at := p.write, write
		if at < 0 {
			from, at = p.log, log
		}
		if at < 0 {
			from, at = p.read, read
		}
		key, err := from.key(at, p.kinds)
		if err != nil {
			p.found.err = err
			return p.found
		}
		p.found.doubtful = append(p.found.doubtful, key)
	}
}

func (p *proof) count(write, log, read int) {
	p.found.keys++
	if write >= 0 {
		p.found.rows.Write++
	}
	if log >= 0 {
		p.found.rows.Log += p.log.marks[log].events
	}
	if read >= 0 {
		p.found.rows.Read++
	}
	for _, n := range p.noted {
		p.found.notes[n]++
	}
}

// proved reports whether a key has no verdict; -1 is a sheet without it.
func (p *proof) proved(write, log, read int) bool {
	p.noted = p.noted[:0]
	if log >= 0 && (p.log.marks[log].odd || !p.isSent(log)) {
		return false
	}
	if log >= 0 && p.isDelete(log) {
		return (write < 0 || p.write.gone(write) && p.sameVersion(p.write, write, p.log, log)) && (read < 0 || p.read.gone(read))
	}
	if p.rules.HasWrite && (write < 0 || p.write.gone(write)) || p.rules.HasRead && (read < 0 || p.read.gone(read)) || p.rules.HasLog && log < 0 {
		return false
	}
	switch {
	case !p.rules.HasLog:
		return p.sameVersion(p.write, write, p.read, read) && p.sameRows(write, read)
	case p.rules.HasWrite && !p.sameVersion(p.write, write, p.log, log), p.rules.HasRead && !p.sameVersion(p.log, log, p.read, read):
		return false
	case p.rules.Delta:
		return !p.rules.HasWrite || !p.rules.HasRead || p.sameRows(write, read)
	}
	return p.sameContent(write, log, read)
}

func (p *proof) sameVersion(a *sheet, i int, b *sheet, j int) bool {
	if a.texts.on && b.texts.on && a.texts.whole && b.texts.whole && bytes.Equal(a.texts.cell(i*a.width+a.version), b.texts.cell(j*b.width+b.version)) {
		return true
	}
	va, errA := a.versionOf(i)
	vb, errB := b.versionOf(j)
	return errA == nil && errB == nil && va == vb
}

// sameRows compares the write side with the read side.
func (p *proof) sameRows(write, read int) bool {
	for i := range p.rules.Columns {
		if c := &p.rules.Columns[i]; c.Write && c.Read {
			if equal, _ := same(p.write, write, p.read, read, i); !equal {
				return false
			}
		}
	}
	return true
}

// sameContent compares either side with the event.
func (p *proof) sameContent(write, log, read int) bool {
	if p.log.payload >= 0 && !p.open(log) {
		return false
	}
	for i := range p.rules.Columns {
		c := &p.rules.Columns[i]
		if !c.Log {
			continue
		}
		if c.Write && p.rules.HasWrite && !p.agrees(p.write, write, log, i) || c.Read && p.rules.HasRead && !p.agrees(p.read, read, log, i) {
			return false
		}
	}
	return true
}

// agrees compares the i-th column of a row with the event, and notes how.
func (p *proof) agrees(s *sheet, at, log, i int) (equal bool) {
	var how string
	if p.log.payload >= 0 {
		equal, how = p.sameMember(s, at, i)
	} else {
		equal, how = same(s, at, p.log, log, i)
	}
	if equal && how != "" {
		p.noted = append(p.noted, note{p.rules.Columns[i].Name, how})
	}
	return equal
}

// open finds the compared members in an event's payload.
func (p *proof) open(i int) bool {
	if l := p.log; l.texts.on {
		return literals(l.texts.cell(i*l.width+l.payload), p.paths, p.literals)
	}
	switch x := p.log.cell(i, p.log.payload).(type) {
	case []byte:
		return literals(x, p.paths, p.literals)
	case string:
		return literals([]byte(x), p.paths, p.literals)
	}
	return false
}

func (p *proof) sameMember(s *sheet, at, i int) (equal bool, how string) {
	if s.texts.on && p.literals[i].sameText(p.members[i], s.kinds[i], s.texts.cell(at*s.width+s.compared[i])) {
		return true, ""
	}
	value := s.cell(at, s.compared[i])
	if p.literals[i].same(p.members[i], s.kinds[i], value) {
		return true, ""
	}
	return Equal(p.literals[i].value(p.members[i]), s.columns[i].value(value))
}

// same compares the i-th column of two sheets, as it stands if that will do.
func same(a *sheet, i int, b *sheet, j, column int) (equal bool, how string) {
	if a.kinds[column] == b.kinds[column] && sameAsItStands(a, i, b, j, column) {
		return true, ""
	}
	return Equal(a.columns[column].value(a.cell(i, a.compared[column])), b.columns[column].value(b.cell(j, b.compared[column])))
}

func sameAsItStands(a *sheet, i int, b *sheet, j, column int) bool {
	m, n, kind := i*a.width+a.compared[column], j*b.width+b.compared[column], a.kinds[column]
	switch {
	case a.texts.on && b.texts.on:
		x, y := a.texts.cell(m), b.texts.cell(n)
		return (x == nil) == (y == nil) && bytes.Equal(x, y)
	case a.texts.on:
		return sameText(a.texts.cell(m), b.cells[n], kind)
	case b.texts.on:
		return sameText(b.texts.cell(n), a.cells[m], kind)
	}
	return sameRaw(a.cells[m], b.cells[n], kind)
}

// sameRaw reports whether two values of one kind of column are equal as they
// stand; false says nothing.
func sameRaw(a, b any, kind Kind) bool {
	switch x := a.(type) {
	case nil:
		return b == nil
	case string:
		switch y := b.(type) {
		case string:
			return x == y
		case []byte:
			return kind != KindAuto && x == string(y)
		}
	case []byte:
		switch y := b.(type) {
		case []byte:
			return bytes.Equal(x, y)
		case string:
			return kind != KindAuto && string(x) == y
		}
	case int64:
		y, ok := b.(int64)
		return ok && x == y
	case time.Time:
		y, ok := b.(time.Time)
		return ok && x.Equal(y)
	case bool:
		y, ok := b.(bool)
		return ok && x == y
	}
	return false
}

// cursor walks over a sheet.
type cursor struct {
	sheet *sheet
	at    int
	head  []byte // the key it stands at; nil behind the last
}

func newCursor(s *sheet, on bool) cursor {
	c := cursor{sheet: s}
	if on && s.len() > 0 {
		c.head = s.order(0)
	}
	return c
}

// within checks that a sheet has no keys outside of its range. Its keys ascend,
// so the first and the last tell.
func (c *cursor) within(whole Range, kinds []KeyKind) error {
	if c.head == nil {
		return nil
	}
	for _, at := range []int{0, c.sheet.len() - 1} {
		key, err := c.sheet.key(at, kinds)
		if err == nil && !whole.Contains(key) {
			err = disorder(fmt.Errorf("key %s is among those of %s", key, whole))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// take returns where in the sheet the key is, and goes on; -1 for nowhere.
func (c *cursor) take(key []byte) int {
	if c.head == nil || !bytes.Equal(c.head, key) {
		return -1
	}
	at := c.at
	c.at++
	c.head = nil
	if c.at < c.sheet.len() {
		c.head = c.sheet.order(c.at)
	}
	return at
}
