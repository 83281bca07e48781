package store

import (
	"context"
	"time"

	"github.com/waybillhq/waybill"
)

// Counts sums up the queue.
type Counts struct {
	Pending   int64         // PENDING rows, Failed included
	Failed    int64         // PENDING rows with retry_count > 0
	Dead      int64         // DEAD rows
	Parked    int64         // rows out of the hot index, of any state
	OldestAge time.Duration // age of the oldest PENDING event; 0 when none
}

// Receipt tells how an event was settled.
type Receipt struct {
	Outcome     Status
	Via         string
	PublishedAt time.Time
	PublishedTo string
	Note        string
}

// Tracked is an event with all that the outbox knows of it.
type Tracked struct {
	ID        int64
	Status    Status
	CreatedAt time.Time
	Archived  bool // the event is in the archive only
	Event     waybill.Event
	Row       *Row     // nil when settled or never queued
	Receipt   *Receipt // nil when unsettled or forgotten
}

// Queued reports whether the event has a queue row.
func (t *Tracked) Queued() bool { return t.Row != nil }

// Filter selects events. All conditions that are set must hold. An event's
// status is DEAD or PENDING when it has a queue row, else that of its receipt;
// an event with neither is PENDING.
type Filter struct {
	EventIDs    []string
	Key         string // event_key or aggregate_id
	TenantID    *string
	Topic       string
	Type        string
	Status      Status
	Unqueued    bool      // only events with neither queue row nor receipt
	From, Until time.Time // on created_at, half open
	After       int64     // only greater ids
	Limit       int       // 0 means 100
	Newest      bool      // greatest ids first; After is then an upper bound, exclusive, 0 meaning none
}

// Inspector answers questions about the outbox. It takes no locks.
type Inspector interface {
	Counts(ctx context.Context) (Counts, error)
	// Find returns events by id. Ids are looked up in the archive too.
	Find(ctx context.Context, filter Filter) ([]Tracked, error)
	// Orphans returns queue rows whose event does not exist; Event is empty.
	Orphans(ctx context.Context, limit int) ([]*Row, error)
}
