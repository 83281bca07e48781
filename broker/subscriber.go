package broker

import (
	"context"
	"time"

	"github.com/waybillhq/waybill"
)

// Partition names one ordered partition of a topic.
type Partition struct {
	Topic string
	ID    int32
}

// Delivery is a record as a consumer receives it.
type Delivery struct {
	Record    waybill.Record
	Partition int32
	// Position is the record's place in its partition; later records have
	// greater positions, not necessarily by one.
	Position int64
	// Timestamp is when the broker stored the record, by its own clock.
	Timestamp time.Time
}

// Position says that everything in a partition up to and including Settled is done with.
type Position struct {
	Partition Partition
	Settled   int64
}

// SubscribeRequest says who reads what.
type SubscribeRequest struct {
	Group  string
	Topics []string
}

// Subscriber opens subscriptions on one broker.
type Subscriber interface {
	// Subscribe joins a group. A group that has no committed position in a
	// partition starts at that partition's oldest record.
	Subscribe(ctx context.Context, request SubscribeRequest) (Subscription, error)
	Close() error
}

// Subscription reads the partitions that one member of a group owns.
//
// Poll, Commit and Assign are called from one goroutine at a time. What Poll
// returned and Commit has not covered comes again after a restart: delivery is
// at least once. Within a partition records come in order of position, and a
// record is not returned twice by one subscription unless its partition was
// taken away and given back. Between two calls of Poll no partition moves to
// another member, unless this one lost its session; its Commit then fails.
type Subscription interface {
	// Poll waits for records and returns at most limit of them, from any number
	// of partitions. It returns an empty slice and no error when wait passes
	// without one. The deliveries belong to the caller.
	Poll(ctx context.Context, limit int, wait time.Duration) ([]Delivery, error)
	// Commit stores the positions. It returns after the broker has them.
	// Lower than what was committed before is ignored.
	Commit(ctx context.Context, positions []Position) error
	// Close leaves the group. It commits nothing.
	Close() error
}

// Assigner is implemented by a subscription whose broker does not share
// partitions among the members of a group. The caller then decides, by leases
// in the consumer's database, which member reads which partition.
type Assigner interface {
	// Partitions lists all partitions of the subscribed topics.
	Partitions(ctx context.Context) ([]Partition, error)
	// Assign makes Poll read exactly these partitions, newly given ones from
	// their committed position on. It is empty after Subscribe.
	Assign(ctx context.Context, partitions []Partition) error
}
