package reconcile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
)

// sheet holds the rows of one arm in one range as the driver gave them, each
// key once. Nothing in it is canonical: most rows are equal as they stand, and
// are never looked at again.
type sheet struct {
	layout
	width  int
	cells  []any  // width of each row, the key's parts first; none where it has texts
	texts  texts  // the same as the server wrote it
	orders []byte // what the keys compare by, one after another
	ends   []int  // where each ends in orders
	read   int64  // rows that were read; of a log more than keys
	marks  []mark // of a log, by key
	latest []byte // of the row at hand
}

// layout is where the columns of an arm are in a row, -1 for none.
type layout struct {
	types                 []column
	version, removed      int
	state, event, payload int   // of a log
	compared              []int // by compared column
	columns               []column
	kinds                 []Kind
}

// resolve settles, once for all rows, as what each compared column is read.
func (l *layout) resolve(t *tables) {
	l.columns, l.kinds = l.columns[:0], l.kinds[:0]
	for i, at := range l.compared {
		c := column{digits: -1}
		if at >= 0 {
			c = l.types[at]
		}
		c = t.as(c, i)
		c.as = c.kind()
		l.columns, l.kinds = append(l.columns, c), append(l.kinds, c.as)
	}
}

// gone reports whether a row is marked as deleted.
func (s *sheet) gone(i int) bool { return s.removed >= 0 && markAt(s.types, s.row(i), s.removed) }

// absent reports whether a cell is NULL.
func (s *sheet) absent(i, at int) bool {
	if s.texts.on {
		return s.texts.cell(i*s.width+at) == nil
	}
	return s.cells[i*s.width+at] == nil
}

// versionOf returns the version of a row.
func (s *sheet) versionOf(i int) (int64, error) {
	if !s.texts.on {
		return versionOf(s.cells[i*s.width+s.version])
	}
	text := s.texts.cell(i*s.width + s.version)
	if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		return n, nil
	}
	return versionOf(s.cell(i, s.version))
}

func (s *sheet) len() int { return len(s.ends) }

// cell returns a cell as a driver would.
func (s *sheet) cell(i, at int) any {
	if !s.texts.on {
		return s.cells[i*s.width+at]
	}
	text := s.texts.cell(i*s.width + at)
	switch {
	case text == nil:
		return nil
	case s.types[at].kind() == KindBinary:
		return text
	}
	return string(text)
}

// row returns a row as a driver would.
func (s *sheet) row(i int) []any {
	if !s.texts.on {
		return s.cells[i*s.width : (i+1)*s.width]
	}
	row := make([]any, s.width)
	for at := range row {
		row[at] = s.cell(i, at)
	}
	return row
}

func (s *sheet) order(i int) []byte {
	if i == 0 {
		return s.orders[:s.ends[0]]
	}
	return s.orders[s.ends[i-1]:s.ends[i]]
}

// key makes the key of a row.
func (s *sheet) key(i int, kinds []KeyKind) (Key, error) { return NewKey(kinds, s.row(i)[:len(kinds)]) }

// errCrowded is a range that holds far more keys of one arm than of another,
// so that they are better read in smaller ranges.
var errCrowded = errors.New("more keys than fit into memory")

// fold says of the last row of a log's sheet, which has the same key as the one
// before or, where that is -1, a new one, whether it takes that one's place.
type fold func(old, last int) (replace bool, err error)

// fill reads a statement's rows; with more than so many keys it fails. Of a log,
// fold decides which row stands for a key.
func (s *sheet) fill(ctx context.Context, t *tables, q queryer, text *statement, most int, fold fold) (err error) {
	ctx, cancel := t.limit(ctx)
	defer cancel()
	s.read = 0
	s.cells, s.orders, s.ends = s.cells[:0], s.orders[:0], s.ends[:0]
	if read, err := s.fillTexts(ctx, t, q, text, most, fold); read || err != nil {
		return err
	}
	rows, err := q.QueryContext(ctx, text.bounded(ctx), text.args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	if s.types, err = columnsOf(rows); err != nil {
		return err
	}
	s.resolve(t)
	s.width = len(s.types)
	if text.dialect.family() == MySQL && textual(s.types) {
		return s.fillRaw(t, rows, most, fold)
	}
	targets := make([]any, s.width)
	for rows.Next() {
		if s.len() > most {
			return errCrowded
		}
		at := len(s.cells)
		s.grow(at + s.width)
		row := s.cells[at:]
		for i := range row {
			targets[i] = &row[i]
		}
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		s.read++
		if s.latest, err = appendOrder(s.latest[:0], t.kinds, row); err != nil {
			return err
		}
		if err := s.keep(s.latest, fold); err != nil {
			return err
		}
	}
	return rows.Err()
}

// keep takes over the row whose cells were added last; keys must come in
// ascending order.
func (s *sheet) keep(order []byte, fold fold) error {
	n, compared := s.len(), 1
	if n > 0 {
		compared = bytes.Compare(order, s.order(n-1))
	}
	switch {
	case compared < 0:
		return disorder(fmt.Errorf("a key of %s comes too late", s.name(n)))
	case compared == 0 && fold == nil:
		return disorder(fmt.Errorf("the key of %s comes twice", s.name(n)))
	case compared == 0: // one of a key's events stands for all
		replace, err := fold(n-1, n)
		s.drop(n, replace)
		return err
	}
	s.orders = append(s.orders, order...)
	s.ends = append(s.ends, len(s.orders))
	if fold != nil {
		_, err := fold(-1, n)
		return err
	}
	return nil
}

// drop takes the last row's cells off, or lets them take the place of the row
// before.
func (s *sheet) drop(last int, replace bool) {
	if s.texts.on {
		s.texts.drop(last*s.width, s.width, replace)
		return
	}
	at := last * s.width
	if replace {
		copy(s.cells[at-s.width:at], s.cells[at:])
	}
	s.cells = s.cells[:at]
}

// name tells a row from others in an error.
func (s *sheet) name(i int) string { return fmt.Sprintf("%.80q", textOf(s.cell(i, 0))) }

func (s *sheet) grow(n int) {
	if cap(s.cells) < n {
		larger := make([]any, len(s.cells), max(2*cap(s.cells), n, 1024))
		copy(larger, s.cells)
		s.cells = larger
	}
	s.cells = s.cells[:n]
}

// cut takes the last key off, and returns it: a statement with a limit may have
// left the rest of it behind.
func (s *sheet) cut(kinds []KeyKind) (Key, error) {
	n := s.len() - 1
	key, err := s.key(n, kinds)
	s.drop(n, false)
	s.ends = s.ends[:n]
	s.orders = s.orders[:0]
	if n > 0 {
		s.orders = s.orders[:s.ends[n-1]]
	}
	if s.marks != nil {
		s.marks = s.marks[:n]
	}
	return key, err
}
