package mybinlog

import (
	"errors"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/waybillhq/waybill/cdc"
)

// tableMap notes what a table of ours looks like in the events that follow.
func (d *decoder) tableMap(raw, body []byte) {
	if len(body) < 10 {
		return
	}
	number := tableID(body)
	rest := body[9:]
	length := int(body[8])
	if len(rest) < length+2 {
		return
	}
	schema := string(rest[:length])
	rest = rest[length+1:]
	length = int(rest[0])
	if len(rest) < 1+length {
		return
	}
	table := string(rest[1 : 1+length])
	outbox := d.names.same(table, d.names.event)
	if !d.names.same(schema, d.names.schema) || !outbox && !d.names.same(table, d.names.meta) {
		delete(d.shapes, number)
		return
	}
	if known := d.shapes[number]; known != nil && known.text == string(body) {
		return
	}
	delete(d.shapes, number)
	event, err := d.parse(raw)
	if err != nil {
		d.shapes[number] = &shape{outbox: outbox, wanted: [2]int{-1, -1}}
		return
	}
	names := []string{"id"}
	if !outbox {
		names = []string{"key", "value"}
	}
	made := newShape(d.ctx, event.(*replication.TableMapEvent), names, outbox, d.ask)
	if made.wanted[0] >= 0 {
		made.text = string(body) // or else it is looked for again
	}
	d.shapes[number] = made
}

// rowsKind is a kind of event with rows.
type rowsKind struct {
	version      int
	two          bool // images before and after
	inserts      bool
	partial      bool // documents may be told by their changes
	isCompressed bool
}

var rowsKinds = map[replication.EventType]rowsKind{
	replication.WRITE_ROWS_EVENTv1:                      {version: 1, inserts: true},
	replication.WRITE_ROWS_EVENTv2:                      {version: 2, inserts: true},
	replication.MARIADB_WRITE_ROWS_COMPRESSED_EVENT_V1:  {version: 1, inserts: true, isCompressed: true},
	replication.UPDATE_ROWS_EVENTv1:                     {version: 1, two: true},
	replication.UPDATE_ROWS_EVENTv2:                     {version: 2, two: true},
	replication.MARIADB_UPDATE_ROWS_COMPRESSED_EVENT_V1: {version: 1, two: true, isCompressed: true},
	replication.PARTIAL_UPDATE_ROWS_EVENT:               {version: 2, two: true, partial: true},
}

// rows takes ids and marks out of an event of rows.
func (d *decoder) rows(kind rowsKind, body []byte) error {
	if len(body) < 6 {
		return nil
	}
	s := d.shapes[tableID(body)]
	if s == nil {
		return nil
	}
	var failed error
	d.guard(func() { failed = d.readRows(s, kind, body) })
	if errors.Is(failed, errRows) {
		d.next.undecodable++
		return nil
	}
	return failed
}

func (d *decoder) readRows(s *shape, kind rowsKind, body []byte) error {
	if s.wanted[0] < 0 {
		if s.outbox && kind.inserts {
			d.next.undecodable++
		}
		return nil
	}
	header, data, err := readRowsHeader(kind, body)
	if err != nil || header.columns != len(s.kinds) {
		return errRows
	}
	if kind.isCompressed {
		if data, err = mysql.DecompressMariadbData(data); err != nil {
			return errRows
		}
	}
	for len(data) > 0 {
		var before, after image
		if before, data, err = s.readImage(header.before, data, s.wanted); err != nil {
			return err
		}
		if kind.two {
			if kind.partial {
				if data, err = s.skipChanges(data); err != nil {
					return err
				}
			}
			if after, data, err = s.readImage(header.after, data, s.wanted); err != nil {
				return err
			}
		}
		if err := d.row(s, kind, before, after); err != nil {
			return err
		}
	}
	return nil
}

// row takes what one row tells. An update that gives a row another id is a
// REPLACE, which the server may carry out so.
func (d *decoder) row(s *shape, kind rowsKind, before, after image) error {
	switch {
	case !s.outbox:
		d.mark(kind, before, after)
	case kind.inserts:
		return d.id(s, before[0])
	case after[0] != nil && string(after[0]) != string(before[0]):
		return d.id(s, after[0])
	}
	return nil
}

func (d *decoder) id(s *shape, value []byte) error {
	id, ok := int64(0), false
	if value != nil {
		id, ok = s.number(value)
	}
	if !ok {
		d.next.undecodable++
		return nil
	}
	d.next.ids = append(d.next.ids, id)
	switch {
	case d.group.prepares:
		if d.branches.tooMany(d.next.ids) {
			d.next.undecodable += len(d.next.ids)
			d.next.ids = nil
		}
	case len(d.next.ids) >= cdc.MaxIDs:
		return d.hand()
	}
	return nil
}

// mark takes the text of a mark. With a short image of the row the key stands in
// the image before alone.
func (d *decoder) mark(kind rowsKind, before, after image) {
	key, value := before[0], before[1]
	if kind.two {
		value = after[1]
		if key == nil {
			key = after[0]
		}
	}
	if string(key) != markKey || value == nil {
		return
	}
	if _, text, ok := strings.Cut(string(value), " "); ok {
		d.next.marks = append(d.next.marks, text)
	}
}

// skipChanges passes over what stands before an image in which documents may be
// told by their changes: a number of flags, and a bit for each document.
func (s *shape) skipChanges(data []byte) ([]byte, error) {
	flags, data, err := packedInt(data)
	if err != nil || flags&1 == 0 {
		return data, err
	}
	documents := 0
	for _, kind := range s.kinds {
		if kind == mysql.MYSQL_TYPE_JSON {
			documents++
		}
	}
	if bytes := (documents + 7) / 8; len(data) >= bytes {
		return data[bytes:], nil
	}
	return nil, errRows
}
