package ops

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
)

// desk is a store with hands: it puts events into any state without a relay
// or a consumer.
type desk struct {
	*memstore.Store
	t   *testing.T
	at  time.Time
	own map[int]store.Lease
}

const owner = "relay-1"

func newDesk(t *testing.T, config memstore.Config) *desk {
	d := &desk{t: t, at: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), own: make(map[int]store.Lease)}
	config.Now = func() time.Time { return d.at }
	d.Store = memstore.New(&config)
	return d
}

func (d *desk) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

// lead makes a relay live with all lanes for a minute.
func (d *desk) lead(report string) {
	d.t.Helper()
	_, _, err := d.Renew(d.t.Context(), store.Heartbeat{Owner: owner, Host: "host:1", Mode: "poll", TTL: time.Minute, Report: []byte(report)})
	d.must(err)
	leases, err := d.Claim(d.t.Context(), owner, time.Minute, store.Lanes)
	d.must(err)
	for _, l := range leases {
		d.own[l.Lane] = l
	}
}

func order(id string, version int64) waybill.Event {
	return waybill.Event{
		ID: id, Type: "OrderPlaced", Topic: "orders", AggregateType: "order", AggregateID: "O-1", AggregateVersion: version,
		OccurredAt: time.Date(2026, 3, 1, 11, 59, 59, 0, time.UTC), Data: []byte(`{}`),
	}
}

func (d *desk) add(events ...waybill.Event) {
	d.t.Helper()
	tx, err := d.Begin(d.t.Context())
	d.must(err)
	for _, e := range events {
		d.must(d.InsertPlain(d.t.Context(), tx, 0, e))
	}
	d.must(tx.Commit(d.t.Context()))
}

func (d *desk) find(id string) store.Tracked {
	d.t.Helper()
	found, err := d.Find(d.t.Context(), store.Filter{EventIDs: []string{id}})
	d.must(err)
	if len(found) != 1 {
		d.t.Fatalf("event %s: found %d", id, len(found))
	}
	return found[0]
}

func (d *desk) apply(id string, change func(at store.Change, c *store.Changes)) {
	d.t.Helper()
	t := d.find(id)
	var changes store.Changes
	change(store.Change{ID: t.ID, EventID: id}, &changes)
	d.must(d.Apply(d.t.Context(), store.Guard{Owner: owner, Lanes: []store.Lease{d.own[t.Row.Lane]}}, changes))
}

func (d *desk) send(id string) {
	d.t.Helper()
	d.apply(id, func(at store.Change, c *store.Changes) {
		c.Settled = append(c.Settled, store.SettledChange{Change: at, Outcome: store.StatusSent, Via: "poll", PublishedTo: "orders[3]@17"})
	})
}

func (d *desk) fail(id string, dead bool, retries int, in time.Duration) {
	d.t.Helper()
	d.apply(id, func(at store.Change, c *store.Changes) {
		c.Failed = append(c.Failed, store.FailedChange{Change: at, Dead: dead, Retries: retries, RetryIn: in, Error: fmt.Sprintf("refused %s", id)})
	})
}

// consume lets a group settle or hold an event.
func (d *desk) consume(do func(ctx context.Context, tx store.InboxTx[*memstore.Tx]) error) {
	d.t.Helper()
	tx, err := d.BeginInbox(d.t.Context())
	d.must(err)
	d.must(do(d.t.Context(), tx))
	d.must(tx.Commit(d.t.Context()))
}

func (d *desk) applied(group, id string) { d.appliedAt(group, id, 17) }

func (d *desk) appliedAt(group, id string, position int64) {
	d.t.Helper()
	d.consume(func(ctx context.Context, tx store.InboxTx[*memstore.Tx]) error {
		_, err := tx.MarkConsumed(ctx, store.Consumed{Group: group, Event: order(id, 1), Outcome: store.Applied, Topic: "orders", Partition: 3, Position: position})
		return err
	})
}

func (d *desk) hold(group, id string, state store.HeldState, attempts int, reason string) {
	d.t.Helper()
	d.consume(func(ctx context.Context, tx store.InboxTx[*memstore.Tx]) error {
		_, err := tx.Hold(ctx, store.Held{
			Group: group, Topic: "orders", Key: "O-1", Partition: 3, Position: 18, Event: order(id, 1),
			State: state, Attempts: attempts, RetryIn: 5 * time.Second, FirstErr: reason, LastErr: reason,
		})
		return err
	})
}
