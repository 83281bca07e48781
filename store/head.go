package store

import (
	"context"
	"time"
)

// Head is the event of an aggregate's highest version, kept beside the facts so
// that it outlives them.
type Head struct {
	TenantID, AggregateType, AggregateID string

	Version   int64
	EventID   string
	OutboxID  int64 // outbox_event.id
	EventType string
	Data      []byte // the whole payload
	CreatedAt time.Time
}

// HeadReader reads heads. A head is written in the transaction of its event, by
// the trigger or, without one, by Append with an adapter's Config.Head. Only a
// higher version replaces it: an event that is late, or has the same version,
// or none, leaves it alone. It takes no locks.
type HeadReader interface {
	// Head returns the head of an aggregate; false where it has none. Without the
	// table it fails.
	Head(ctx context.Context, tenantID, aggregateType, aggregateID string) (Head, bool, error)
}
