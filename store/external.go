package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// ViaExternal is what a receipt calls an event that another program has sent.
const ViaExternal = "external"

// Rows of the meta table that say who sends; there are none while relays do.
const (
	MetaDelivery = "delivery"     // Delivery.Mode
	MetaCut      = "delivery_cut" // Delivery.Cut, in decimal digits

	DeliveryExternal  = ViaExternal
	DeliveryReturning = "returning"
)

// Delivery says who sends the events of an outbox.
type Delivery struct {
	// External means that inserted events are not queued: another program reads
	// them from the database's log and sends them.
	External bool
	// Cut is the greatest id that was queued before the hand-over. What is greater
	// is the other program's; what is not, the relays'.
	Cut int64
	// Returning means that a take-back has begun and not ended: new events are
	// queued again, those of the time before may not be yet.
	Returning bool
}

// Mode names it for people and their programs.
func (d Delivery) Mode() string {
	switch {
	case d.Returning:
		return DeliveryReturning
	case d.External:
		return DeliveryExternal
	}
	return "relay"
}

// Describe tells the audit of it, in JSON.
func (d Delivery) Describe() string { return fmt.Sprintf(`{"mode":%q,"cut":%d}`, d.Mode(), d.Cut) }

// DeliveryOf reads it from the rows of the meta table.
func DeliveryOf(rows map[string]string) (d Delivery, err error) {
	if rows[MetaDelivery] == "" {
		return d, nil
	}
	d.External, d.Returning = true, rows[MetaDelivery] == DeliveryReturning
	d.Cut, err = strconv.ParseInt(rows[MetaCut], 10, 64)
	return d, err
}

// Confirmation says that an event was found in its topic.
type Confirmation struct {
	EventID     string
	PublishedTo string // as in a [SettledChange]
}

// Unconfirmed sums up the events that another program is to send and that have
// no receipt, among the newest [UnconfirmedSpan].
type Unconfirmed struct {
	Events    int64
	OldestAge time.Duration // 0 when none
}

// UnconfirmedSpan is how many of the newest ids [External.Unconfirmed] looks at,
// so that it may be asked often.
const UnconfirmedSpan = 100_000

var (
	// ErrNoTrigger refuses a hand-over where producers queue their events
	// themselves: they would go on to.
	ErrNoTrigger = errors.New("there is no queue trigger to remove: producers queue their events themselves")
	// ErrReturning refuses a hand-over before a take-back has come to its end.
	ErrReturning = errors.New("the delivery is being taken back, and that has not ended")
)

// External is implemented by stores whose events another program, such as
// Debezium, can send by reading the database's log. The events stay the same
// rows, and receipts are written by whoever reads the topics.
type External interface {
	// Delivery returns who sends.
	Delivery(ctx context.Context) (Delivery, error)
	// HandOver removes the queue trigger and notes the cut, between two
	// transactions that insert events: each event is either queued and not above
	// the cut, or above it and not queued. It may be repeated, also after it was
	// interrupted, and changes nothing when it is done. [ErrNoTrigger],
	// [ErrReturning].
	HandOver(ctx context.Context, action Action) (Delivery, error)
	// TakeBack installs the trigger again and then queues, due at once, what is
	// above the cut and has no receipt. The other program must have stopped, and
	// what it sent must be confirmed, or it is sent twice. It may be repeated
	// after it was interrupted, and returns how many events it queued.
	TakeBack(ctx context.Context, action Action) (queued int, err error)
	// Confirm writes a receipt for each event above the cut that has none, and
	// returns how many it wrote. Events that are unknown, or the relays', are
	// passed over.
	Confirm(ctx context.Context, confirmations []Confirmation) (int, error)
	// Unconfirmed sums up what was not confirmed yet.
	Unconfirmed(ctx context.Context) (Unconfirmed, error)
	// EventTopics returns the topics of the events above an id, and the greatest
	// id there is.
	EventTopics(ctx context.Context, above int64) (topics []string, last int64, err error)
}
