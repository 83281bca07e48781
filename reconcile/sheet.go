package reconcile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
)

// sheet holds the rows of one arm in one range as the driver gave them, each
// key once. Nothing in it is canonical: most rows are equal as they stand, and
// are never looked at again.
type sheet struct {
	layout
	width  int
	cells  []any  // width of each row, the key's parts first
	orders []byte // what the keys compare by, one after another
	ends   []int  // where each ends in orders
	read   int64  // rows that were read; of a log more than keys
	marks  []mark // of a log, by key
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

func (s *sheet) len() int { return len(s.ends) }

func (s *sheet) row(i int) []any { return s.cells[i*s.width : (i+1)*s.width] }

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

// fill reads a statement's rows; with more than so many keys it fails. Of a
// log, fold is handed each row, with the one of the same key that was kept so
// far, if any, and says whether it takes that one's place.
func (s *sheet) fill(ctx context.Context, t *tables, q queryer, text *statement, most int, fold func(old, row []any) (replace bool, err error)) (err error) {
	ctx, cancel := t.limit(ctx)
	defer cancel()
	rows, err := q.QueryContext(ctx, text.bounded(ctx), text.args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	if s.types, err = columnsOf(rows); err != nil {
		return err
	}
	s.resolve(t)
	s.width, s.read = len(s.types), 0
	s.cells, s.orders, s.ends = s.cells[:0], s.orders[:0], s.ends[:0]
	targets := make([]any, s.width)
	var order []byte
	for rows.Next() {
		if s.len() > most {
			return errCrowded
		}
		at := len(s.cells)
		s.grow(at + s.width)
		row := s.cells[at : at+s.width]
		for i := range row {
			targets[i] = &row[i]
		}
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		s.read++
		if order, err = appendOrder(order[:0], t.kinds, row); err != nil {
			return err
		}
		// The row is where it belongs already: append finds it there.
		s.cells = s.cells[:at]
		if err := s.append(order, row, fold); err != nil {
			return err
		}
	}
	return rows.Err()
}

// append takes a row over; keys must come in ascending order.
func (s *sheet) append(order []byte, row []any, fold func(old, row []any) (replace bool, err error)) error {
	n, compared := s.len(), 1
	if n > 0 {
		compared = bytes.Compare(order, s.order(n-1))
	}
	switch {
	case compared < 0:
		return disorder(fmt.Errorf("a key of %s comes too late", s.name(row)))
	case compared == 0 && fold == nil:
		return disorder(fmt.Errorf("the key of %s comes twice", s.name(row)))
	case compared == 0: // one of a key's events stands for all
		old := s.row(n - 1)
		replace, err := fold(old, row)
		if replace {
			copy(old, row)
		}
		return err
	}
	s.cells = append(s.cells, row...)
	s.orders = append(s.orders, order...)
	s.ends = append(s.ends, len(s.orders))
	if fold != nil {
		_, err := fold(nil, s.row(n))
		return err
	}
	return nil
}

// name tells a row from others in an error.
func (s *sheet) name(row []any) string { return fmt.Sprintf("%.80q", textAt(row, 0)) }

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
	s.cells = s.cells[:n*s.width]
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
