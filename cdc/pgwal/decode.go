package pgwal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pglogrepl"

	"github.com/waybillhq/waybill/cdc"
)

// idColumn is what the log is read for.
const idColumn = "id"

var errMalformed = errors.New("malformed message of pgoutput")

// decoder makes batches of the messages of pgoutput, protocol version 1: only
// transactions that have committed are in it, one after the other, with what
// their savepoints took back left out.
type decoder struct {
	schema, table string
	prefix        string // of the messages that are marks
	// relations are the tables that were described, by oid.
	relations map[uint32]relation
	within    bool // of a transaction
	batch     cdc.Batch
	emit      func(cdc.Batch)
}

type relation struct {
	ours bool
	id   int // the place of the column; -1 where there is none
}

func newDecoder(schema, table, prefix string, emit func(cdc.Batch)) *decoder {
	return &decoder{schema: schema, table: table, prefix: prefix, relations: make(map[uint32]relation), emit: emit}
}

// decode takes one message. What it cannot make sense of within a row is counted;
// an error means that nothing can be known from here on.
func (d *decoder) decode(data []byte) error {
	if len(data) == 0 {
		return errMalformed
	}
	switch kind := pglogrepl.MessageType(data[0]); kind {
	case pglogrepl.MessageTypeInsert:
		d.insert(data[1:])
		return nil
	case pglogrepl.MessageTypeUpdate, pglogrepl.MessageTypeDelete, pglogrepl.MessageTypeOrigin, pglogrepl.MessageTypeType:
		return nil // of publications that somebody else made
	}
	message, err := pglogrepl.Parse(data)
	if err != nil {
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	switch m := message.(type) {
	case *pglogrepl.BeginMessage:
		d.within, d.batch = true, cdc.Batch{}
	case *pglogrepl.CommitMessage:
		d.commit(m)
	case *pglogrepl.RelationMessage:
		d.describe(m)
	case *pglogrepl.TruncateMessage:
		for _, oid := range m.RelationIDs {
			if d.relations[oid].ours {
				d.batch.Truncates++
			}
		}
	case *pglogrepl.LogicalDecodingMessage:
		if m.Transactional && m.Prefix == d.prefix {
			d.batch.Marks = append(d.batch.Marks, string(m.Content))
		}
	}
	return nil
}

// commit ends a transaction. The position is the place behind the record of the
// commit: one that begins there is shown, this one is not shown again.
func (d *decoder) commit(m *pglogrepl.CommitMessage) {
	d.within = false
	d.batch.Position, d.batch.Committed = position(m.TransactionEndLSN), m.CommitTime.UTC()
	d.emit(d.batch)
	d.batch = cdc.Batch{}
}

// describe notes where a table has its id. The server describes a table again
// after each change of its shape.
func (d *decoder) describe(m *pglogrepl.RelationMessage) {
	r := relation{ours: m.Namespace == d.schema && m.RelationName == d.table, id: -1}
	for i, column := range m.Columns {
		if column.Name == idColumn {
			r.id = i
		}
	}
	d.relations[m.RelationID] = r
}

// insert reads the id and steps over all else, which may be a large payload where
// the publication has no list of columns.
func (d *decoder) insert(data []byte) {
	if len(data) < 4 {
		d.batch.Undecodable++
		return
	}
	r, known := d.relations[binary.BigEndian.Uint32(data)]
	if known && !r.ours {
		return
	}
	id, ok := int64(0), false
	if r.ours && r.id >= 0 {
		id, ok = readID(data[4:], r.id)
	}
	if !ok {
		d.batch.Undecodable++
		return
	}
	d.batch.IDs = append(d.batch.IDs, id)
	if len(d.batch.IDs) == cdc.MaxIDs {
		d.emit(d.batch)
		d.batch = cdc.Batch{}
	}
}

// readID reads the column at a place of a tuple: 'N', the number of columns, and
// for each 'n' or 'u', or 't' or 'b' with length and bytes.
func readID(data []byte, place int) (int64, bool) {
	if len(data) < 3 || data[0] != 'N' {
		return 0, false
	}
	columns := int(binary.BigEndian.Uint16(data[1:]))
	data = data[3:]
	for i := range columns {
		if len(data) < 1 {
			return 0, false
		}
		kind := data[0]
		data = data[1:]
		if kind == 'n' || kind == 'u' {
			if i == place {
				return 0, false
			}
			continue
		}
		if len(data) < 4 {
			return 0, false
		}
		size := int(binary.BigEndian.Uint32(data))
		data = data[4:]
		if len(data) < size {
			return 0, false
		}
		if i == place {
			id, err := strconv.ParseInt(string(data[:size]), 10, 64)
			return id, err == nil && kind == 't'
		}
		data = data[size:]
	}
	return 0, false
}

func position(lsn pglogrepl.LSN) cdc.Position { return cdc.Position(lsn.String()) }

// parsePosition reads strictly, which [pglogrepl.ParseLSN] does not.
func parsePosition(p cdc.Position) (pglogrepl.LSN, error) {
	lsn, err := pglogrepl.ParseLSN(string(p))
	if err == nil && position(lsn) != p {
		err = errors.New("not an LSN")
	}
	if err != nil {
		return 0, fmt.Errorf("position %q: %w", p, err)
	}
	return lsn, nil
}
