package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/store"
)

// inventory_effect is the record of every effect, in order. Nothing in it
// forbids a second effect of one event, so that one would be seen.
const inventoryTables = `
CREATE TABLE inventory_effect (
  id       {serial},
  event_id {text} NOT NULL,
  order_id {text} NOT NULL,
  version  INTEGER NOT NULL,
  qty      INTEGER NOT NULL
);
CREATE TABLE inventory_order (
  order_id      {text} NOT NULL PRIMARY KEY,
  product       {text} NOT NULL,
  qty           INTEGER NOT NULL,
  status        {text} NOT NULL,
  version       INTEGER NOT NULL,
  last_event_id {text} NOT NULL
);`

// inventory owns the inventory's database and reads the orders' topic.
type inventory struct {
	*arm
	topic, group string
	broker       broker.Subscriber
	processor    processor
	applied      atomic.Int64 // these three for the display alone
	duplicates   atomic.Int64
	dead         atomic.Int64
}

func openInventory(ctx context.Context, at *site, house brokerHouse) (*inventory, error) {
	a, err := openArm(ctx, at.kind, at.inventory)
	if err != nil {
		return nil, err
	}
	v := &inventory{arm: a, topic: house.topic(), group: house.group()}
	if err = a.create(ctx, store.MigrateOptions{SkipOutbox: true}, inventoryTables); err == nil {
		v.broker, err = house.subscriber(ctx)
	}
	if err == nil {
		v.processor, err = a.consume(v.broker, v.handle, v.config())
	}
	if err != nil {
		return nil, errors.Join(err, v.shut())
	}
	return v, nil
}

func (v *inventory) config() *inbox.Config {
	return &inbox.Config{
		Group: v.group, Topics: []string{v.topic},
		// Short, so that the poison event is dead before the demo ends.
		Schedule:  []time.Duration{300 * time.Millisecond, 600 * time.Millisecond, 1200 * time.Millisecond},
		ReaderTTL: 2 * time.Second,
		Logger:    slog.New(slog.DiscardHandler),
		Events: inbox.Events{
			Applied:   func(inbox.AppliedInfo) { v.applied.Add(1) },
			Duplicate: func(inbox.DuplicateInfo) { v.duplicates.Add(1) },
			Held: func(i inbox.HeldInfo) {
				if i.State == store.HeldDead {
					v.dead.Add(1)
				}
			},
		},
	}
}

func (v *inventory) shut() error {
	var err error
	if v.broker != nil {
		err = v.broker.Close()
	}
	return errors.Join(err, v.close())
}

func (v *inventory) start(ctx context.Context, fail context.CancelCauseFunc) *task {
	return begin(ctx, fail, v.processor.Run)
}

const insertEffect = `INSERT INTO inventory_effect (event_id, order_id, version, qty) VALUES (?, ?, ?, ?)`

const upsertOrder = `INSERT INTO inventory_order (order_id, product, qty, status, version, last_event_id) VALUES (?, ?, ?, ?, ?, ?)
{upsert}`

// handle applies one event. It trusts the inbox for order and duplicates and
// guards against neither: the examination at the end would show it.
func (v *inventory) handle(ctx context.Context, exec execute, event waybill.Event) error {
	var order orderData
	if err := json.Unmarshal(event.Data, &order); err != nil {
		return inbox.Dead(err)
	}
	if err := exec(ctx, v.dialect.sql(insertEffect), event.ID, order.OrderID, event.AggregateVersion, order.Qty); err != nil {
		return err
	}
	err := exec(ctx, v.dialect.sql(upsertOrder), order.OrderID, order.Product, order.Qty, order.Status, event.AggregateVersion, event.ID)
	if err != nil {
		return err
	}
	if order.Product == poisonProduct { // after the writes: they must vanish
		return fmt.Errorf("no such product: %s", order.Product)
	}
	return nil
}

const countArrived = `SELECT (SELECT count(*) FROM consumed_event) + (SELECT count(*) FROM held_event WHERE state = 'DEAD')`

func (v *inventory) arrived(ctx context.Context) (n int, err error) {
	err = v.db.QueryRowContext(ctx, countArrived).Scan(&n)
	return n, err
}
