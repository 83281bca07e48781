package reconcile

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
)

// texts are the cells of a sheet as the server wrote them, one after another.
type texts struct {
	on      bool
	refused bool // this arm's columns cannot be read so
	whole   bool // versions are integers, so those with one text are equal
	content []byte
	places  []place // of each cell
}

// place is where a cell is; NULL is where nothing can be.
type place struct{ from, to uint32 }

var null = place{1, 0}

// most of a sheet's texts, in bytes.
const mostTexts = 1 << 31

func (x *texts) cell(n int) []byte {
	s := x.places[n]
	if s == null {
		return nil
	}
	return x.content[s.from:s.to:s.to]
}

// add adds the cells of a row.
func (x *texts) add(values [][]byte) error {
	x.places = slices.Grow(x.places, len(values))
	for _, value := range values {
		if value == nil {
			x.places = append(x.places, null)
			continue
		}
		if len(x.content)+len(value) > mostTexts {
			return errCrowded
		}
		from := len(x.content)
		x.content = append(x.content, value...)
		x.places = append(x.places, place{uint32(from), uint32(len(x.content))})
	}
	return nil
}

// drop takes a row's cells off that begin at n and are the last ones, or lets
// them take the place of those before.
func (x *texts) drop(n, width int, replace bool) {
	if replace {
		copy(x.places[n-width:n], x.places[n:])
	}
	x.places = x.places[:n]
}

// fillTexts does what fill does, where the database has a reader of texts and
// the columns allow for it.
func (s *sheet) fillTexts(ctx context.Context, t *tables, q queryer, text *statement, most int, fold fold) (read bool, err error) {
	s.texts.on = false
	tx, ok := q.(*snapshot)
	if !ok || tx.texts == nil || s.texts.refused {
		return false, nil
	}
	begin := func(names []string) error {
		s.types = s.types[:0:0]
		for _, name := range names {
			s.types = append(s.types, column{database: name, digits: -1})
		}
		s.resolve(t)
		s.width = len(s.types)
		s.texts.begin(strings.HasPrefix(names[s.version], "INT"))
		return nil
	}
	row := func(values [][]byte) error { return s.addTexts(t, values, most, fold) }
	var failed error // kept from database/sql, which drops connections for some errors
	err = tx.conn.Raw(func(driverConn any) error {
		read, failed = tx.texts(ctx, driverConn, text.bounded(ctx), text.args, begin, row)
		return nil
	})
	if err == nil {
		err = failed
	}
	if err == nil && !read {
		s.texts.refused, s.texts.on = true, false
	}
	return read, err
}

// begin empties the texts for the rows of a statement.
func (x *texts) begin(whole bool) {
	x.on, x.whole = true, whole
	x.content, x.places = x.content[:0], x.places[:0]
}

// addTexts takes over a row.
func (s *sheet) addTexts(t *tables, values [][]byte, most int, fold fold) (err error) {
	if s.len() > most {
		return errCrowded
	}
	s.read++
	if err := s.texts.add(values); err != nil {
		return err
	}
	if s.latest, err = appendTextOrder(s.latest[:0], t.kinds, values); err != nil {
		return err
	}
	return s.keep(s.latest, fold)
}

// textual reports whether the text of every column is what the driver's value
// says: MySQL's driver makes times and floating point numbers anew.
func textual(types []column) bool {
	for i := range types {
		switch strings.TrimPrefix(types[i].database, "UNSIGNED ") {
		case "TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT", "DECIMAL", "CHAR", "VARCHAR", "TEXT", "BLOB", "BINARY", "VARBINARY", "JSON":
		default:
			return false
		}
	}
	return true
}

// fillRaw reads rows whose columns are textual without making values of them.
func (s *sheet) fillRaw(t *tables, rows *sql.Rows, most int, fold fold) error {
	s.texts.begin(strings.HasSuffix(s.types[s.version].database, "INT"))
	raw, targets, values := make([]sql.RawBytes, s.width), make([]any, s.width), make([][]byte, s.width)
	for i := range raw {
		targets[i] = &raw[i]
	}
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		for i := range raw {
			values[i] = raw[i]
		}
		if err := s.addTexts(t, values, most, fold); err != nil {
			return err
		}
	}
	return rows.Err()
}

// appendTextOrder does for texts what appendOrder does.
func appendTextOrder(order []byte, kinds []KeyKind, values [][]byte) ([]byte, error) {
	for i, kind := range kinds {
		part := values[i]
		switch {
		case part == nil:
		case kind == KeyInteger:
			n, err := strconv.ParseInt(string(part), 10, 64)
			if err != nil {
				break
			}
			sign := byte(1)
			if n < 0 {
				sign = 0
			}
			order = binary.BigEndian.AppendUint64(append(order, sign), uint64(n))
			continue
		case kind == KeyText && bytes.IndexByte(part, 0) < 0:
			order = append(append(order, part...), 0, 0)
			continue
		}
		var cell any
		if part != nil {
			cell = string(part)
		}
		var err error
		if order, err = appendOrder(order, kinds[i:i+1], []any{cell}); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// sameText reports whether a text and another arm's value are equal as they
// stand; false says nothing.
func sameText(text []byte, other any, kind Kind) bool {
	switch x := other.(type) {
	case nil:
		return text == nil
	case string:
		return text != nil && string(text) == x
	case []byte:
		return text != nil && kind != KindAuto && bytes.Equal(text, x)
	case int64:
		var digits [20]byte
		return text != nil && bytes.Equal(text, strconv.AppendInt(digits[:0], x, 10))
	}
	return false
}
