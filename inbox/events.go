package inbox

import (
	"fmt"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/store"
)

// Events are told what a processor does. Each may be nil. They are called from
// several goroutines, must return soon, and must not change what they are
// given. What they hear of an event's fate is committed by then.
type Events struct {
	// Handled: the handler ran. It may run again for the same event: the
	// transaction can still fail.
	Handled func(HandledInfo)
	// Applied: an event was settled for the first time.
	Applied func(AppliedInfo)
	// Duplicate: an event came that is consumed or held already.
	Duplicate func(DuplicateInfo)
	// Held: an event was set aside, or failed again, or is DEAD.
	Held func(HeldInfo)
	// OutOfOrder: an aggregate's version came after a higher one.
	OutOfOrder func(OutOfOrderInfo)
	// Gap: an event has waited for a lower version for longer than
	// [Config.GapDeadline]. Told once for each gap by each process.
	Gap func(GapInfo)
	// Conflict: a transaction died, and its events are done again.
	Conflict func(ConflictInfo)
	// Batch: the events of one transaction were committed.
	Batch func(BatchInfo)
	// Committed: the broker stored positions.
	Committed func(CommittedInfo)
	// Counted: what the group holds, every [Config.CountEvery].
	Counted func(CountedInfo)
	// DeadLettered: a dead letter was sent, or could not be.
	DeadLettered func(DeadLetterInfo)
	// Called: an effect's call was made.
	Called func(CalledInfo)
	// Paused: the handler fails for every key, or did so until now.
	Paused func(PausedInfo)
	// Readers: the partitions that this process reads have changed.
	Readers func(ReadersInfo)
	// Trouble: the database or the broker does not answer as it should.
	Trouble func(TroubleInfo)
}

// HandledInfo is one run of the handler.
type HandledInfo struct {
	Event    waybill.Event
	Attempt  int // 1 for the first
	Took     time.Duration
	Err      error // nil when it succeeded
	Panicked bool
	TimedOut bool
}

func (i HandledInfo) String() string {
	if i.Err != nil {
		return fmt.Sprintf("handled %s attempt %d: %v", i.Event.ID, i.Attempt, i.Err)
	}
	return fmt.Sprintf("handled %s attempt %d", i.Event.ID, i.Attempt)
}

// AppliedInfo is an event that was settled.
type AppliedInfo struct {
	Event     waybill.Event
	Outcome   store.Outcome
	Partition broker.Partition
	Position  int64
	// Age is the time since the broker stored the record, by this process's
	// clock; 0 for an event that was held.
	Age time.Duration
	// FromHeld says that the event was held before.
	FromHeld bool
}

func (i AppliedInfo) String() string {
	if i.FromHeld {
		return fmt.Sprintf("%s %s (held before)", i.Outcome, i.Event.ID)
	}
	return fmt.Sprintf("%s %s", i.Outcome, i.Event.ID)
}

// DuplicateInfo is an event that came again.
type DuplicateInfo struct {
	Event     waybill.Event
	Partition broker.Partition
	Position  int64
	// IsHeld says that the event is held; else it is consumed.
	IsHeld bool
}

func (i DuplicateInfo) String() string { return "duplicate " + i.Event.ID }

// HeldInfo is an event that is set aside.
type HeldInfo struct {
	Event    waybill.Event
	Key      string // the key that is kept back
	State    store.HeldState
	Attempts int
	RetryIn  time.Duration
	Parked   bool
	Err      error // nil for BLOCKED
}

func (i HeldInfo) String() string {
	if i.Err == nil {
		return fmt.Sprintf("%s %s", i.State, i.Event.ID)
	}
	return fmt.Sprintf("%s %s attempt %d: %v", i.State, i.Event.ID, i.Attempts, i.Err)
}

// OutOfOrderInfo is an event whose aggregate was further already.
type OutOfOrderInfo struct {
	Event waybill.Event
	Seen  int64 // the aggregate's highest version so far
}

func (i OutOfOrderInfo) String() string {
	return fmt.Sprintf("out of order %s: version %d after %d", i.Event.ID, i.Event.AggregateVersion, i.Seen)
}

// ConflictInfo is a transaction that died.
type ConflictInfo struct {
	Events int
	Err    error
}

func (i ConflictInfo) String() string { return fmt.Sprintf("conflict: %d events: %v", i.Events, i.Err) }

// BatchInfo is one committed transaction of the stream.
type BatchInfo struct {
	Events int
	Took   time.Duration
	// OldestAge is the time since the broker stored the oldest of them.
	OldestAge time.Duration
}

func (i BatchInfo) String() string { return fmt.Sprintf("batch of %d", i.Events) }

// CommittedInfo is progress that the broker knows of.
type CommittedInfo struct{ Positions []broker.Position }

func (i CommittedInfo) String() string { return fmt.Sprintf("committed %v", i.Positions) }

// CountedInfo is the length of the queues of held events.
type CountedInfo struct{ store.HeldCounts }

func (i CountedInfo) String() string {
	return fmt.Sprintf("held: %d waiting, %d blocked, %d retry, %d dead", i.Waiting, i.Blocked, i.Retry, i.Dead)
}

// PausedInfo is the beginning or the end of a pause.
type PausedInfo struct{ On bool }

func (i PausedInfo) String() string {
	if i.On {
		return "paused"
	}
	return "resumed"
}

// ReadersInfo is what this process reads.
type ReadersInfo struct {
	Partitions []broker.Partition
	Lost       []broker.Partition // taken away without having been given up
}

func (i ReadersInfo) String() string {
	return fmt.Sprintf("reading %d partitions, lost %d", len(i.Partitions), len(i.Lost))
}

// TroubleInfo is a failure of what the processor stands on.
type TroubleInfo struct {
	Source string // "database", "broker", "position", "held events", "partition readers", "sharing of partitions"
	Err    error
}

func (i TroubleInfo) String() string { return i.Source + ": " + i.Err.Error() }

func tell[I any](hook func(I), info I) {
	if hook != nil {
		hook(info)
	}
}
