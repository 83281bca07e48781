package chain

import (
	"context"
	"encoding/json"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/inbox/guard"
)

// Tx is a transaction in which a service changes its tables and says so.
type Tx struct {
	guard.Tx
	// Append adds events to the outbox of the same database. It is nil where a
	// service tells nobody.
	Append func(ctx context.Context, events ...waybill.Event) error
}

// Handle is what a service does with an event.
type Handle func(ctx context.Context, tx Tx, e waybill.Event) error

// Tell appends events in a transaction of type TX: what an outbox.Writer's Append does.
type Tell[TX any] func(ctx context.Context, tx TX, events ...waybill.Event) error

// On makes a handler of an inbox of it. guarded returns the store's transaction
// for guards; tell may be nil.
func On[TX any](handle Handle, guarded func(tx TX) guard.Tx, tell Tell[TX]) inbox.Handler[TX] {
	return func(ctx context.Context, tx TX, e waybill.Event) error {
		own := Tx{Tx: guarded(tx)}
		if tell != nil {
			own.Append = func(ctx context.Context, events ...waybill.Event) error { return tell(ctx, tx, events...) }
		}
		return handle(ctx, own, e)
	}
}

// follow notes that an event was caused by another one: it belongs to the same
// business process, and its cause has an id.
func follow(cause *waybill.Event, e waybill.Event) waybill.Event {
	e.CorrelationID, e.CausationID = cause.CorrelationID, cause.ID
	return e
}

// Order is the data of the orders' events. Amount is in cents.
type Order struct {
	ID       string `json:"orderId"`
	Customer string `json:"customer"`
	Amount   int64  `json:"amount"`
	// Poison makes every consumer fail, to show what becomes of the event.
	Poison bool `json:"poison,omitempty"`
}

func readOrder(e *waybill.Event) (o Order, err error) {
	if err := json.Unmarshal(e.Data, &o); err != nil {
		return o, inbox.Dead(err) // no further attempt reads it better
	}
	if o.Poison {
		return o, &poisonError{e.ID}
	}
	return o, nil
}

type poisonError struct{ id string }

func (p *poisonError) Error() string { return "poison in " + p.id }
