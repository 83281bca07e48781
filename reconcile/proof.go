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
func (p *proof) newer(old, row []any) (replace bool, err error) {
	l := p.log
	at := l.len() - 1
	if old == nil {
		l.marks = append(l.marks[:at], mark{1, row[l.version] == nil || p.rules.EveryVersion && !p.first(row)})
		return false, nil
	}
	m := &l.marks[at]
	m.events++
	was, err := versionOf(old[l.version])
	if err != nil {
		return false, err
	}
	is, err := versionOf(row[l.version])
	if err != nil {
		return false, err
	}
	m.odd = m.odd || row[l.version] == nil || was == is || p.rules.EveryVersion && (is != was+1 || !p.isSent(row))
	return is > was, nil
}

// first reports whether a key's history, without gaps, may begin by an event.
func (p *proof) first(row []any) bool {
	version, err := versionOf(row[p.log.version])
	return err == nil && (version == p.rules.FirstVersion || p.check.LogRetention > 0) && p.isSent(row)
}

func (p *proof) isSent(row []any) bool {
	if p.log.state < 0 {
		return true
	}
	word, ok := row[p.log.state].(string)
	if !ok {
		word = textAt(row, p.log.state)
	}
	return p.check.Log.state(word) == StateSent
}

func (p *proof) isDelete(row []any) bool {
	return p.log.event >= 0 && slices.Contains(p.check.Log.Deletes, textAt(row, p.log.event))
}

// page merges the sheets of a range.
func (p *proof) page(whole Range) page {
	p.found = page{whole: whole, notes: make(map[note]int)}
	w, l, r := newCursor(p.write, p.check.Write != nil), newCursor(p.log, p.check.Log != nil), newCursor(p.read, p.check.Read != nil)
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
	if log >= 0 && (p.log.marks[log].odd || !p.isSent(p.log.row(log))) {
		return false
	}
	if log >= 0 && p.isDelete(p.log.row(log)) {
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
	va, errA := versionOf(a.row(i)[a.version])
	vb, errB := versionOf(b.row(j)[b.version])
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
	document := p.log.payload >= 0
	if document && !p.open(p.log.row(log)[p.log.payload]) {
		return false
	}
	for i := range p.rules.Columns {
		c := &p.rules.Columns[i]
		for _, side := range []struct {
			on    bool
			sheet *sheet
			at    int
		}{{c.Write, p.write, write}, {c.Read, p.read, read}} {
			if !c.Log || !side.on {
				continue
			}
			var equal bool
			var how string
			if document {
				equal, how = p.sameMember(side.sheet, side.at, i)
			} else {
				equal, how = same(side.sheet, side.at, p.log, log, i)
			}
			if !equal {
				return false
			}
			if how != "" {
				p.noted = append(p.noted, note{c.Name, how})
			}
		}
	}
	return true
}

// open finds the compared members in an event's payload.
func (p *proof) open(payload any) bool {
	switch x := payload.(type) {
	case []byte:
		return literals(x, p.paths, p.literals)
	case string:
		return literals([]byte(x), p.paths, p.literals)
	}
	return false
}

func (p *proof) sameMember(s *sheet, at, i int) (equal bool, how string) {
	value := s.row(at)[s.compared[i]]
	if p.literals[i].same(p.members[i], s.kinds[i], value) {
		return true, ""
	}
	return Equal(p.literals[i].value(p.members[i]), s.columns[i].value(value))
}

// same compares the i-th column of two sheets, as it stands if that will do.
func same(a *sheet, i int, b *sheet, j, column int) (equal bool, how string) {
	x, y := a.row(i)[a.compared[column]], b.row(j)[b.compared[column]]
	if a.kinds[column] == b.kinds[column] && sameRaw(x, y, a.kinds[column]) {
		return true, ""
	}
	return Equal(a.columns[column].value(x), b.columns[column].value(y))
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
