package mybinlog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/klauspost/compress/zstd"
)

const (
	headerSize   = replication.EventHeaderSize
	checksumSize = replication.BinlogChecksumLength
)

// heartbeat events of servers that count files in 64 bits.
const heartbeatLarge = replication.HEARTBEAT_LOG_EVENT_V2

// tables are the names of what is read.
type tables struct {
	schema, event, meta string
	// fold tells that the server compares them without regard to case.
	fold bool
}

func (t tables) same(a, b string) bool {
	return a == b || t.fold && strings.EqualFold(a, b)
}

// piece is what the decoder hands over: a whole transaction, or a part of one.
type piece struct {
	ids         []int64
	marks       []string
	truncates   int
	undecodable int
	// whole tells that the transaction ends with this piece.
	whole     bool
	id        gtid
	committed time.Time
	// prepared is the branch that was prepared in this transaction and has ids,
	// which are told when it commits; resolved is the one that was ended by it.
	prepared, resolved string
}

// decoder turns the events of a binlog into pieces. It looks only into those
// that concern the outbox: of others it reads as much as tells whose they are.
type decoder struct {
	// ctx ends with the stream.
	ctx    context.Context
	flavor string
	names  tables
	ask    catalogue
	// put takes a piece. It waits while the reader is slow.
	put func(piece) error
	// at is told of each place in the files.
	at func(file string, position uint64)

	parser   *replication.BinlogParser
	checksum bool
	shapes   map[uint64]*shape // of our tables, by the log's number of them
	branches branches
	zstd     *zstd.Decoder
	inner    []byte // the buffer for events of compressed transactions
	packed   bool   // reading such events

	group group
	next  piece
}

// group is the transaction that is being read.
type group struct {
	open       bool
	id         gtid
	began      bool
	standalone bool // MariaDB: one statement, and the transaction ends with it
	committed  time.Time
	prepares   bool // a branch of a distributed transaction
	ids        int  // told already
	savepoints map[string]int
}

// close ends what the decoder has running besides.
func (d *decoder) close() {
	if d.zstd != nil {
		d.zstd.Close()
	}
}

// event reads one event, from its header on.
func (d *decoder) event(raw []byte) error {
	if len(raw) < headerSize {
		return errors.New("an event has no header")
	}
	kind := replication.EventType(raw[4])
	if kind == replication.FORMAT_DESCRIPTION_EVENT {
		return d.format(raw)
	}
	if d.checksum && !d.packed {
		if len(raw) < headerSize+checksumSize {
			return errors.New("an event has no checksum")
		}
		raw = raw[:len(raw)-checksumSize]
		binary.LittleEndian.PutUint32(raw[9:], uint32(len(raw)))
	}
	body := raw[headerSize:]
	if !d.packed {
		d.place(kind, raw, body)
	}
	switch kind {
	case replication.GTID_EVENT, replication.ANONYMOUS_GTID_EVENT, replication.GTID_TAGGED_LOG_EVENT, replication.MARIADB_GTID_EVENT:
		return d.begin(kind, raw)
	case replication.QUERY_EVENT, replication.MARIADB_QUERY_COMPRESSED_EVENT:
		return d.query(raw)
	case replication.XID_EVENT:
		return d.end(d.stamp(raw), false)
	case replication.XA_PREPARE_LOG_EVENT:
		return d.prepare(raw, body)
	case replication.TABLE_MAP_EVENT:
		d.guard(func() { d.tableMap(raw, body) })
	case replication.TRANSACTION_PAYLOAD_EVENT:
		return d.payload(body)
	case replication.INCIDENT_EVENT:
		d.next.undecodable++ // the server has lost something of its log
	default:
		if rows, ok := rowsKinds[kind]; ok {
			return d.rows(rows, body)
		}
	}
	return nil
}

// guard keeps what cannot be read from ending the stream: nobody could come
// past it. The queue has it.
func (d *decoder) guard(do func()) {
	defer func() {
		if recover() != nil {
			d.next.undecodable++
		}
	}()
	do()
}

func (d *decoder) format(raw []byte) error {
	d.parser = replication.NewBinlogParser()
	d.parser.SetFlavor(d.flavor)
	parsed, err := d.parser.Parse(raw)
	if err != nil {
		return fmt.Errorf("the format of the log cannot be read: %w", err)
	}
	described := parsed.Event.(*replication.FormatDescriptionEvent)
	// Taken off in event, since events within others have none.
	d.checksum = described.ChecksumAlgorithm == replication.BINLOG_CHECKSUM_ALG_CRC32
	described.ChecksumAlgorithm = replication.BINLOG_CHECKSUM_ALG_OFF
	d.shapes = make(map[uint64]*shape)
	return nil
}

// place follows the log's files. What the server makes up for this stream alone
// has no position, or that of another event.
func (d *decoder) place(kind replication.EventType, raw, body []byte) {
	const artificial = 0x20
	position := binary.LittleEndian.Uint32(raw[13:])
	switch {
	case kind == replication.ROTATE_EVENT && len(body) > 8:
		d.at(string(body[8:]), binary.LittleEndian.Uint64(body))
	case position > 0 && binary.LittleEndian.Uint16(raw[17:])&artificial == 0 && kind != heartbeatLarge:
		d.at("", uint64(position))
	}
}

func (d *decoder) parse(raw []byte) (replication.Event, error) {
	if d.parser == nil {
		return nil, errors.New("the log does not begin with its format")
	}
	parsed, err := d.parser.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("an event of kind %d cannot be read: %w", raw[4], errors.Unwrap(err))
	}
	return parsed.Event, nil
}

// stamp is the time of an event, to the second.
func (d *decoder) stamp(raw []byte) time.Time {
	seconds := binary.LittleEndian.Uint32(raw)
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(int64(seconds), 0)
}

// begin starts a transaction, and ends the one before where its end was not
// recognised: the log has whole ones only.
func (d *decoder) begin(kind replication.EventType, raw []byte) error {
	if err := d.end(time.Time{}, false); err != nil {
		return err
	}
	event, err := d.parse(raw)
	if err != nil {
		return err
	}
	d.group = group{open: true}
	switch e := event.(type) {
	case *replication.GTIDEvent:
		d.group.committed = e.ImmediateCommitTime()
		if kind == replication.GTID_EVENT {
			d.group.id = gtid{source: sourceText(e.SID, ""), number: uint64(e.GNO)}
		}
	case *replication.GtidTaggedLogEvent:
		d.group.committed = e.ImmediateCommitTime()
		d.group.id = gtid{source: sourceText(e.SID, e.Tag), number: uint64(e.GNO)}
	case *replication.MariadbGTIDEvent:
		const preparedBranch = 64
		d.group.id = gtid{domain: e.GTID.DomainID, server: e.GTID.ServerID, number: e.GTID.SequenceNumber}
		d.group.began, d.group.standalone = !e.IsStandalone(), e.IsStandalone()
		d.group.prepares = e.Flags&preparedBranch != 0
	}
	return nil
}

// end hands over what is left of a transaction. Undone are those whose end in
// the log is a rollback: they changed something that cannot be rolled back.
func (d *decoder) end(committed time.Time, undone bool) error {
	if !d.group.open {
		return nil
	}
	if undone {
		d.next.ids = nil
	}
	d.next.whole, d.next.id, d.next.committed = true, d.group.id, d.group.committed
	if d.next.committed.IsZero() {
		d.next.committed = committed
	}
	d.group = group{}
	return d.hand()
}

func (d *decoder) hand() error {
	next := d.next
	d.next = piece{}
	d.group.ids += len(next.ids)
	return d.put(next)
}

func (d *decoder) query(raw []byte) error {
	event, err := d.parse(raw)
	if err != nil {
		return err
	}
	e := event.(*replication.QueryEvent)
	q := readQuery(string(e.Query))
	switch q.verb {
	case begin:
		d.group.began = true
		return nil
	case commit:
		return d.end(d.stamp(raw), false)
	case rollback:
		return d.end(d.stamp(raw), true)
	case savepoint:
		if d.group.savepoints == nil {
			d.group.savepoints = make(map[string]int)
		}
		d.group.savepoints[q.name] = d.group.ids + len(d.next.ids)
		return nil
	case rollbackTo:
		// What was told already is not visible, and the caller finds out.
		if count, known := d.group.savepoints[q.name]; known {
			d.next.ids = d.next.ids[:max(0, count-d.group.ids)]
		}
		return nil
	case xaStart:
		d.group.began, d.group.prepares = true, true
		return nil
	case xaEnd:
		return nil
	case xaCommit, xaRollback:
		return d.resolve(q, d.stamp(raw))
	case truncate:
		if d.isEvent(q, e.Schema) {
			d.next.truncates++
		}
	case insert:
		if d.isEvent(q, e.Schema) {
			d.next.undecodable++
		}
	}
	if d.group.began || q.opens {
		d.group.began = true
		return nil
	}
	return d.end(d.stamp(raw), false)
}

func (d *decoder) isEvent(q query, current []byte) bool {
	schema := q.schema
	if schema == "" {
		schema = string(current)
	}
	return d.names.same(q.table, d.names.event) && d.names.same(schema, d.names.schema)
}
