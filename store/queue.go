package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waybillhq/waybill"
)

// Status is the state of an event's queue row.
type Status string

// The states of an event. SENT and SKIPPED are never stored in the queue: an
// event is unsettled exactly while it has a queue row.
const (
	StatusPending Status = "PENDING"
	StatusSent    Status = "SENT"
	StatusDead    Status = "DEAD"
	StatusSkipped Status = "SKIPPED"
)

// Row is an unsettled event: its queue row and, with it, the event.
//
// Rows with Parked set are out of the hot index: those in backoff, those that
// are DEAD, and those that wait behind one of these.
type Row struct {
	ID        int64 // of the event and of the queue row
	Lane      int
	KeyHash   int64 // of (topic, key)
	TopicHash int64
	Status    Status
	Parked    bool
	Skip      bool          // an operator wants a skip marker sent instead
	Retries   int           // failed attempts so far
	HasRetry  bool          // next_retry_at is set
	RetryIn   time.Duration // until next_retry_at; <= 0 when due
	FirstErr  string
	LastErr   string
	Age       time.Duration // since the event was inserted
	Event     waybill.Event
}

// Ref is what a walk tells of a hot row.
type Ref struct {
	ID        int64
	Lane      int
	KeyHash   int64
	TopicHash int64
}

// LaneCursor asks for the rows of one lane with an id greater than After.
type LaneCursor struct {
	Lane  int
	After int64
	Limit int // rows of this lane; 0 means no bound of its own
}

// WalkRequest asks for hot rows: PENDING and not parked.
type WalkRequest struct {
	// Lanes are walked in this order; within a lane rows come by id. A lane that
	// gives as many rows as its Limit, or more, may have more.
	Lanes []LaneCursor
	// ExcludeTopics are topic hashes whose rows are passed over.
	ExcludeTopics []int64
	// Limit bounds the rows of all lanes. 0 means no bound.
	Limit int
}

// WalkResult is an answer to a WalkRequest.
type WalkResult struct {
	Refs []Ref
	// Full says that the request's Limit cut the answer: the lane of the last row,
	// and the lanes after it, may have more.
	Full bool
	// Through, where it is not 0, says that the lanes were walked together, by id,
	// whatever their own limits: the answer has their rows up to this id, and all of
	// them may have more above it. It is math.MaxInt64 at the queue's end. Refs are in
	// the order of their ids then, and Full is false.
	Through int64
}

// FetchResult has rows, lowest id first.
type FetchResult struct {
	Rows []*Row
	// Full says that a bound cut the answer.
	Full bool
}

// KeyRequest asks for the unsettled rows of one (topic, key), lowest id first,
// parked or not, DEAD or not.
type KeyRequest struct {
	Lane    int
	KeyHash int64
	After   int64 // only greater ids
	// SkipDead leaves out DEAD rows that no operator wants skipped.
	SkipDead bool
	// Limit bounds the number of rows, MaxBytes the sum of their data in bytes:
	// the row that passes MaxBytes is the last one returned. 0 means no bound.
	Limit    int
	MaxBytes int
}

// HeldKey is a (topic, key) that has parked rows.
type HeldKey struct {
	Lane      int
	KeyHash   int64
	TopicHash int64
	Topic     string
}

// Frontier tells which ids can no longer appear from under a running
// transaction: the ids <= MaxID are all visible or gone for ever once a later
// Frontier's Closed is >= this one's Opened. A store whose writers are serial
// returns zero for both, closing MaxID at once.
type Frontier struct {
	MaxID  int64 // the greatest visible event id
	Opened uint64
	Closed uint64
}

// Change is what to do with one row of the queue.
type Change struct {
	ID      int64
	EventID string
}

// SettledChange removes a queue row because its event was delivered or skipped.
type SettledChange struct {
	Change
	Outcome     Status // StatusSent or StatusSkipped
	Via         string // "poll", "cdc", "external"
	PublishedTo string // topic, and what the broker said of the place
	Note        string
}

// FailedChange parks a queue row because its event was refused.
type FailedChange struct {
	Change
	Dead    bool          // else it stays PENDING
	Retries int           // new value of retry_count
	RetryIn time.Duration // for PENDING: when to try again
	Error   string        // becomes last_error, and first_error where that is empty
}

// Changes are written together or not at all. An id whose queue row is gone is
// passed over; so is a settled or failed one that belongs to another event by
// now, as after a TRUNCATE that lets ids begin anew: that one was never sent.
type Changes struct {
	Settled []SettledChange
	Failed  []FailedChange
	Parked  []int64
	// Forget deletes the settled events themselves and writes no receipt.
	Forget bool
}

// Guard names the leases under which a change is made.
type Guard struct {
	Owner string
	Lanes []Lease // those of all rows of the change
}

// ErrStale says that a lease of the guard is no longer held by its owner with
// its fence, or has expired. Nothing was changed.
var ErrStale = errors.New("the lane's lease was lost")

// StaleError is the ErrStale that names the lanes.
type StaleError struct{ Lanes []int }

func (e *StaleError) Error() string { return fmt.Sprintf("%v: lanes %v", ErrStale, e.Lanes) }

// Unwrap returns ErrStale.
func (e *StaleError) Unwrap() error { return ErrStale }

// Queue is the relay's view of the outbox. Reads take no locks.
type Queue interface {
	// Walk finds hot rows, lane by lane or by id, walking an index and never
	// sorting. It reads nothing but the queue: what it finds may be known to the caller, and
	// a row whose event is gone is found too.
	Walk(ctx context.Context, request WalkRequest) (WalkResult, error)
	// Load returns the rows of these ids, which rise, in the order of ids, whatever
	// their state by now; those whose queue row or event is gone are left out.
	// maxBytes bounds the answer as in KeyRequest.
	Load(ctx context.Context, ids []int64, maxBytes int) (FetchResult, error)
	// FetchKey returns rows of one key.
	FetchKey(ctx context.Context, request KeyRequest) (FetchResult, error)
	// FetchDue returns the rows of these lanes whose next_retry_at has passed,
	// earliest first: those in backoff, and those an operator retried or wants
	// skipped. Event is filled, but its Data and Headers may be left out: the rows
	// tell which keys to read, and are asked for every fraction of a second.
	FetchDue(ctx context.Context, lanes []int, limit int) ([]*Row, error)
	// HeldKeys returns each key of these lanes that has a parked row.
	HeldKeys(ctx context.Context, lanes []int) ([]HeldKey, error)
	// Frontier returns the present frontier.
	Frontier(ctx context.Context) (Frontier, error)
	// Apply makes the changes in one transaction that first locks the guard's
	// leases, shared, and compares owner, fence and expiry; on a mismatch it
	// changes nothing and returns a *StaleError. An existing receipt of a settled
	// event is replaced. The commit may be relaxed: losing it repeats a send.
	// With empty changes it proves that the queue can be written.
	Apply(ctx context.Context, guard Guard, changes Changes) error
}
