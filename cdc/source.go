package cdc

import (
	"context"
	"time"
)

// Position is a place in a database's log between two transactions: text that
// only its source can read, as an LSN or a set of GTIDs. Empty means none.
type Position string

// MaxIDs is the most ids of one [Batch].
const MaxIDs = 8192

// Batch is what was read from the log since the batch before. Any of its fields
// may be empty; a batch with a Position alone says that what was logged is of no
// concern.
type Batch struct {
	// IDs are those of rows inserted into outbox_event by committed transactions:
	// in the order of their commits, and within a transaction in that of the log.
	// What was undone by a rollback, to a savepoint too, is not among them.
	IDs []int64
	// Position is the place after the last whole transaction. Empty while the
	// batch ends within one, which is told in parts when it has many ids.
	Position Position
	// Committed is when the last whole transaction of the batch committed, by the
	// database's clock. Zero where there is none, or the log does not tell.
	Committed time.Time
	// Marks are the texts of [Source.Mark] that were read, in order; those of other
	// processes too. What committed before the call of Mark began, and was not
	// shown by an earlier stream, has been shown by then: in this batch or before.
	Marks []string
	// Truncates counts TRUNCATEs of outbox_event. Ids may begin anew after one.
	Truncates int
	// Undecodable counts inserts whose id could not be read, as when the table's
	// shape in the log is not known. The caller finds such events in the queue.
	Undecodable int
}

// Source is the log of one database. Its methods may be called from several
// goroutines, and by several processes on one database.
//
// Each makes one attempt; the caller repeats. Errors are classified with [Lost],
// [Busy] and [Refused]; what is not classified counts as [Unreachable].
type Source interface {
	// Name tells this source from others on the same database, and names the row
	// that keeps its position: "postgres:waybill". It does not change.
	Name() string
	// Setup creates and checks what a stream needs apart from its position: a
	// publication, the server's settings, privileges. It is repeatable, harmless
	// beside a stream of another process, and waits for no lock longer than a few
	// seconds: an error names what is in the way. It is called before each Open.
	Setup(ctx context.Context) error
	// Open begins to read the log after a position, or a little before it. With
	// none it begins where the source itself has kept its place, or else at the
	// log's end as of some moment during the call; what the log pinned and lost
	// for this source before is removed.
	//
	// Where the log has no such position any more, the error is [Lost], each time
	// until Open is called without a position. Where another process reads, and
	// only one may, it is [Busy].
	//
	// The stream outlives ctx, which bounds the opening alone.
	Open(ctx context.Context, from Position) (Stream, error)
	// Mark writes a text of at most 128 characters into the log for all streams to
	// show, in a transaction of its own.
	Mark(ctx context.Context, text string) error
	// Status looks at the log from outside of any stream; it works while another
	// process reads, and where none does.
	Status(ctx context.Context) (Status, error)
	// Drop removes what makes the database keep its log for this source, as a
	// replication slot does. It is repeatable. While a stream is open it is [Busy].
	Drop(ctx context.Context) error
}

// Stream is a reader of the log. Next is called by one goroutine; Ack and Close
// may be called from others meanwhile.
type Stream interface {
	// Next waits for the next batch. While nothing is committed to the outbox it
	// returns now and then a batch that only has a Position, so that the rest of
	// the log can be released; at least after each Mark.
	//
	// The batch belongs to the caller. An error ends the stream, unless it is that
	// of ctx: Next may then be called again and has lost nothing.
	Next(ctx context.Context) (Batch, error)
	// Ack says that all up to the position of a batch has been dealt with and need
	// not be shown again. It notes that and returns; the log is told beside the
	// work, soon and again, so that a slow caller does not lose its connection.
	Ack(Position)
	// Close tells the log what was acknowledged last, ends the stream and frees it
	// for another process. Next, if it is waiting, returns an error. What cannot be
	// told before ctx ends is given up. Closing twice is allowed.
	Close(ctx context.Context) error
}

// Status is what can be seen of a log. Numbers that are not known are -1.
type Status struct {
	// State is Lost's when the position is not there any more, Waiting when it is
	// and no process reads, Streaming when one does. Empty where the log does not tell.
	State State
	// Holder says who reads, for people: "pid 4711 of 10.0.0.7". May be empty.
	Holder string
	// Position is the place that the log keeps for this source; empty where it
	// keeps none. End is the log's end.
	Position, End Position
	// LagBytes is the log between both. RetainedBytes is what the log keeps for
	// this source's sake, LimitBytes how much of it at most.
	LagBytes, RetainedBytes, LimitBytes int64
	// Headroom is how long a reader may stay away until its position is lost: by
	// the limit and the rate of writing seen so far, or by the log's expiry.
	Headroom time.Duration
	// Detail is anything else worth a line, may be empty.
	Detail string
}

// Check is one answer of a [Checker].
type Check struct {
	Name   string // "wal_level", "binlog_format", "privileges"
	OK     bool
	Detail string // what was found
	Hint   string // what to do when not OK
}

// Checker is what a source offers whose server can be examined by the doctor.
// It changes nothing.
type Checker interface {
	Check(ctx context.Context) []Check
}

// Ordered is implemented by a source whose transactions become visible to other
// sessions in the order in which the log has them. Where one of them is visible,
// the relay need not look any longer for those before it.
type Ordered interface {
	// VisibleInOrder is asked after Setup.
	VisibleInOrder() bool
}
