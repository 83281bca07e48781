package store

import (
	"context"
	"errors"
	"time"

	"github.com/waybillhq/waybill"
)

// Outcome is how a consumer settled an event.
type Outcome string

// The outcomes of consumption.
const (
	Applied         Outcome = "APPLIED"
	Stale           Outcome = "STALE"
	ConsumedSkipped Outcome = "SKIPPED"
)

// Consumed is a row of consumed_event: one event settled by one group.
type Consumed struct {
	Group      string
	Event      waybill.Event // identity only: ID, Type, TenantID, Aggregate...
	Outcome    Outcome
	Topic      string
	Partition  int32
	Position   int64
	ConsumedAt time.Time // when read
	Duplicates int64     // deliveries after the first, when read
}

// HeldState is why a consumer keeps an event aside.
type HeldState string

// The states of a held event.
const (
	HeldWaiting HeldState = "WAITING" // for a lower version
	HeldBlocked HeldState = "BLOCKED" // behind another held event of its key
	HeldRetry   HeldState = "RETRY"   // for its next attempt
	HeldDead    HeldState = "DEAD"    // for a person
)

// Held is a row of held_event.
type Held struct {
	Group     string
	Seq       int64 // given by the store; order of arrival
	Topic     string
	Key       string
	Partition int32
	Position  int64
	Event     waybill.Event // identity; the whole is in Record
	State     HeldState
	Attempts  int
	RetryIn   time.Duration // for RETRY: until next_attempt_at, <= 0 when due
	FirstErr  string
	LastErr   string
	Stack     string         // of the last panic, bounded
	Record    waybill.Record // as received
	// Forced lets it be applied though its version is known to be stale: a
	// person wants it. UpdateHeld writes it.
	Forced bool
	// Read only:
	HeldAt         time.Time
	HeldFor        time.Duration // since HeldAt, by the database's clock
	FirstFailedAt  time.Time     // zero when it never failed
	LastFailedAt   time.Time     // zero when it never failed
	DeadLetterAt   time.Time     // when its dead letter was confirmed, or zero
	DeadLetterNote string        // why it has none, and will have none
}

// HeldKeyRef names a key of a group that has held events.
type HeldKeyRef struct {
	Topic string
	Key   string
}

// ErrAborted is returned by a transaction's methods after Abort.
var ErrAborted = errors.New("the transaction was aborted")

// ErrEnded is what Sound says after a statement of a handler's that ended the
// transaction, and that could not be told beforehand: whatever was done until
// then, marks of events whose handlers have not run included, may be committed.
var ErrEnded = errors.New("a statement ended the transaction")

// Inbox opens consumer transactions. TX is the transaction as the handler sees it.
type Inbox[TX any] interface {
	// BeginInbox starts a transaction at READ COMMITTED, or immediately
	// exclusive where the database has one writer. The transaction ends with ctx.
	BeginInbox(ctx context.Context) (InboxTx[TX], error)
}

// InboxTx is one consumer transaction. Only Abort may be called from another
// goroutine.
type InboxTx[TX any] interface {
	// Handle returns the transaction for the handler. After Abort its methods fail.
	Handle() TX
	// Abort makes the transaction unusable at once, whatever the handler is
	// doing with it; nothing of it will be committed. Rollback is still due.
	Abort()
	TxControl
	ConsumedTx
	ProgressTx
	HeldTx
	EffectTx
	HorizonTx
	AuditTx
}

// TxControl ends a transaction or a part of it. There is one savepoint at a time.
type TxControl interface {
	Savepoint(ctx context.Context) error
	// Release keeps what was done since Savepoint.
	Release(ctx context.Context) error
	// RollbackTo undoes what was done since Savepoint. An error means that the
	// transaction died underneath: MySQL rolls back all of it on a deadlock.
	RollbackTo(ctx context.Context) error
	// Sound says why the transaction cannot be used any more as it is, or nil: a
	// statement has failed in a way that ended it, or that only RollbackTo mends, or
	// has ended it by itself: [ErrEnded]. The server is asked only after statements
	// that may do that. It must not be called while a handler is at work.
	Sound() error
	Commit(ctx context.Context) error
	// Rollback may be called after Commit, and then does nothing.
	Rollback(ctx context.Context) error
}

// ConsumedTx writes consumed_event.
type ConsumedTx interface {
	// MarkConsumed inserts the row and reports true. If the group has consumed
	// the id before, it counts the duplicate and reports false. It waits for
	// another transaction that is inserting the same id.
	MarkConsumed(ctx context.Context, consumed Consumed) (first bool, err error)
	// MarkAll is MarkConsumed for several events of one group with different ids,
	// in one statement. It returns first for each, in their order.
	MarkAll(ctx context.Context, consumed []Consumed) (first []bool, err error)
	// Unmark takes back marks: those that this transaction has made, and others
	// where they were committed against the consumer's will.
	Unmark(ctx context.Context, group string, eventIDs []string) error
	// IsConsumed reports whether the group has consumed the id. With count set a
	// true answer also counts as a duplicate delivery.
	IsConsumed(ctx context.Context, group, eventID string, count bool) (bool, error)
}

// HeldTx reads and writes held_event.
type HeldTx interface {
	// KeysHeld returns those of the keys that have held events, without a lock.
	KeysHeld(ctx context.Context, group string, keys []HeldKeyRef) ([]HeldKeyRef, error)
	// LockKey locks the key's row until the transaction ends, making it first
	// where it is missing. It is called outside of a savepoint.
	LockKey(ctx context.Context, group string, key HeldKeyRef) error
	// HeldOfKey returns the key's held events by Seq, at most limit.
	HeldOfKey(ctx context.Context, group string, key HeldKeyRef, limit int) ([]Held, error)
	// Hold inserts a held event and reports true, or false when the id is held
	// already.
	Hold(ctx context.Context, held Held) (inserted bool, err error)
	// UpdateHeld writes State, Attempts, RetryIn, LastErr, Stack, Forced, and
	// FirstErr where that is empty. A State other than DEAD forgets the dead letter.
	// It reports whether the row exists.
	UpdateHeld(ctx context.Context, held Held) (bool, error)
	// DeleteHeld removes the row and reports whether it existed.
	DeleteHeld(ctx context.Context, group, eventID string) (bool, error)
}

// AuditTx writes the audit of the consumer's database.
type AuditTx interface {
	// Record adds an entry, At aside, which the store fills. It is there once the
	// transaction is committed, and only then.
	Record(ctx context.Context, entry AuditEntry) error
}

// HeldFilter selects held events.
type HeldFilter struct {
	EventID string
	Key     string
	State   HeldState
	After   int64 // only greater Seq
	Limit   int   // 0 means 100
}

// HeldCounts sums up a group's held events by state.
type HeldCounts struct {
	Waiting, Blocked, Retry, Dead int64
	OldestAge                     time.Duration
}

// HeldReader reads what a group holds, outside of any transaction.
type HeldReader interface {
	// ReleasableKeys returns keys that have something to do now: a RETRY that is
	// due, or a BLOCKED event in a key that has no RETRY and, with deadBlocks, no
	// DEAD one (its blocker is gone). At most limit, those with the lowest Seq
	// first.
	ReleasableKeys(ctx context.Context, group string, deadBlocks bool, limit int) ([]HeldKeyRef, error)
	// NextRetry returns the time until the earliest RETRY is due, or false.
	NextRetry(ctx context.Context, group string) (time.Duration, bool, error)
	ListHeld(ctx context.Context, group string, filter HeldFilter) ([]Held, error)
	CountHeld(ctx context.Context, group string) (HeldCounts, error)
	// FindConsumed returns the groups' rows of one event id.
	FindConsumed(ctx context.Context, eventID string) ([]Consumed, error)
	// FindProgress returns the progress of each aggregate, in their order.
	FindProgress(ctx context.Context, group string, aggregates []Aggregate) ([]Progress, error)
	// Groups returns the names of all groups that have any row.
	Groups(ctx context.Context) ([]string, error)
}

// ReaderKey names one partition as read by one group.
type ReaderKey struct {
	Group     string
	Topic     string
	Partition int32
}

// ReaderState is a row of consumer_reader.
type ReaderState struct {
	ReaderKey
	Owner     string
	Fence     int64
	ExpiresIn time.Duration
	// Clean says that the reader before this one stopped in good order, or that
	// there was none.
	Clean bool
	// EventID and Tries are the crash mark: the event that was being handled
	// alone, and how often its handling was begun.
	EventID string
	Tries   int
}

// Readers is the table of partition readers: leases where the broker has none,
// and for every broker the record of unclean stops.
type Readers interface {
	// ClaimReader takes the partition for ttl if it is free, expired, the
	// owner's already, or force is set. It returns the state as it was found,
	// with the new Owner and Fence, marks the row as not clean, and reports
	// whether the claim succeeded.
	ClaimReader(ctx context.Context, key ReaderKey, owner string, ttl time.Duration, force bool) (ReaderState, bool, error)
	// RenewReaders makes the owner known to the group for ttl and extends its
	// claims by ttl. It returns those it still holds and the number of live
	// members of the group, this one included.
	RenewReaders(ctx context.Context, group, owner string, ttl time.Duration) (held []ReaderState, live int, err error)
	// MarkReader commits the crash mark: tries becomes 1 for a new event id and
	// grows by one for the same. An empty id clears it. It returns the tries, or
	// ErrStale when owner and fence do not match.
	MarkReader(ctx context.Context, key ReaderKey, owner string, fence int64, eventID string) (tries int, err error)
	// ReleaseReader frees the partition; clean says that nothing is unsettled.
	ReleaseReader(ctx context.Context, key ReaderKey, owner string, fence int64, clean bool) error
	// LeaveReaders frees the owner's partitions as not clean and forgets the owner.
	LeaveReaders(ctx context.Context, group, owner string) error
	// ListReaders returns the group's rows.
	ListReaders(ctx context.Context, group string) ([]ReaderState, error)
}
