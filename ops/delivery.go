package ops

import (
	"context"
	"fmt"
	"time"

	"github.com/waybillhq/waybill/store"
)

// DeliveryStatus says who sends the events, and what is known of it. Its JSON
// form is stable.
type DeliveryStatus struct {
	Mode string `json:"mode"` // relay, external, or returning
	// Cut is the greatest id that is the relays'; 0 where all are.
	Cut int64 `json:"cut,omitempty"`
	// Unconfirmed counts the newest events that another program is to send and
	// that were not found in their topics yet.
	Unconfirmed              int64   `json:"unconfirmed,omitempty"`
	OldestUnconfirmedSeconds float64 `json:"oldest_unconfirmed_seconds,omitempty"`
}

// ReadDelivery says who sends the events of a store of any kind.
func ReadDelivery(ctx context.Context, st any) (DeliveryStatus, error) {
	d, unconfirmed, err := readDelivery(ctx, st)
	return DeliveryStatus{Mode: d.Mode(), Cut: d.Cut, Unconfirmed: unconfirmed.Events, OldestUnconfirmedSeconds: seconds(unconfirmed.OldestAge)}, err
}

func readDelivery(ctx context.Context, st any) (d store.Delivery, u store.Unconfirmed, err error) {
	external, ok := st.(store.External)
	if !ok {
		return d, u, nil
	}
	if d, err = external.Delivery(ctx); err == nil && d.External {
		u, err = external.Unconfirmed(ctx)
	}
	return d, u, err
}

// aboveCut returns the id above which events are not the relays', or 0 where all
// are.
func aboveCut(ctx context.Context, st any) (cut int64, external bool) {
	e, ok := st.(store.External)
	if !ok {
		return 0, false
	}
	d, err := e.Delivery(ctx)
	if err != nil || !d.External || d.Returning {
		return 0, false
	}
	return d.Cut, true
}

const fixExternal = "look at the connector (its task, not only itself) and at whoever reads its topics back (waybill serve); docs/guide/debezium.md"

// judgeDelivery says what is wrong with the delivery by another program.
func judgeDelivery(d store.Delivery, u store.Unconfirmed, maxAge time.Duration, found *causes) {
	switch {
	case d.Returning:
		found.add(Yellow, CauseExternal, "waybill delivery switch relay --reason TEXT", "the delivery is being taken back, and that has not come to its end")
	case d.External && maxAge > 0 && u.OldestAge > maxAge:
		found.add(Red, CauseExternal, fixExternal, "%d %s above the cut found in no topic yet, the oldest %s old, limit %s",
			u.Events, plural(u.Events, "event", "events"), round(u.OldestAge), maxAge)
	}
}

// delivery tells who delivers, where it is not the relays, and what is late.
func (d *doctor) delivery(ctx context.Context) error {
	delivery, unconfirmed, err := readDelivery(ctx, d.store)
	if err != nil || !delivery.External {
		return err
	}
	var found causes
	judgeDelivery(delivery, unconfirmed, orDefault(d.config.MaxPendingAge, time.Minute), &found)
	e := Examination{
		Check: CheckDelivery, OK: len(found.all) == 0,
		Detail: fmt.Sprintf("another program sends what is above %d; %d not confirmed yet", delivery.Cut, unconfirmed.Events),
	}
	if !e.OK {
		e.Detail, e.Hint = found.all[0].Text, found.all[0].Fix
	}
	d.found(e)
	return nil
}
