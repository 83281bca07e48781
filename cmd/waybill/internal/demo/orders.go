package demo

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/store"
)

// refused_order records, in a transaction of its own, what was rolled back, and
// demo_incident what was done to the system: so that every figure of the demo
// can be counted in the databases.
const ordersTables = `
CREATE TABLE orders (
  order_id   {text} NOT NULL PRIMARY KEY,
  product    {text} NOT NULL,
  qty        INTEGER NOT NULL,
  status     {text} NOT NULL,
  version    INTEGER NOT NULL,
  updated_at {time} NOT NULL
);
CREATE TABLE refused_order (
  order_id   {text} NOT NULL PRIMARY KEY,
  refused_at {time} NOT NULL
);
CREATE TABLE demo_incident (
  id   {serial},
  at   {time} NOT NULL,
  kind {text} NOT NULL,
  note {text} NOT NULL
);`

// orderService owns the orders' database.
type orderService struct {
	*arm
	topic   string
	writer  *outbox.Writer[store.SQLTx]
	written atomic.Int64 // events, for the display alone
}

func openOrders(ctx context.Context, at *site, topic string) (*orderService, error) {
	a, err := openArm(ctx, at.kind, at.orders)
	if err != nil {
		return nil, err
	}
	if err := a.create(ctx, store.MigrateOptions{SkipInbox: true}, ordersTables); err != nil {
		return nil, errors.Join(err, a.close())
	}
	return &orderService{arm: a, topic: topic, writer: outbox.NewWriter(a.appender, &outbox.Config{Source: "demo/orders"})}, nil
}

// Transactions are at least so far apart. SQLite has one writer, and a process
// that waits for it looks only now and then whether the file is free: without
// gaps the relay, another process, would never find one.
const transactionEvery = 5 * time.Millisecond

// start writes the steps at a steady rate over the given time.
func (s *orderService) start(ctx context.Context, fail context.CancelCauseFunc, steps []step, over time.Duration) *task {
	return begin(ctx, fail, func(ctx context.Context) error {
		began := now()
		for done := 0; done < len(steps); {
			due := int(int64(len(steps))*int64(now().Sub(began))/int64(over)) + 1
			for done < min(due, len(steps)) {
				part := transaction(steps[done:min(due, len(steps))])
				if err := s.do(ctx, part); err != nil {
					return err
				}
				if done += len(part); !pause(ctx, transactionEvery) {
					return ctx.Err()
				}
			}
			if !pause(ctx, max(transactionEvery, over/time.Duration(4*len(steps)))) {
				return ctx.Err()
			}
		}
		return nil
	})
}

// transaction returns the first steps that go into one transaction: those that
// are due, but a refused one is alone in its own.
func transaction(steps []step) []step {
	for i := range steps {
		if steps[i].refused {
			return steps[:max(i, 1)]
		}
	}
	return steps
}

// do is one business transaction: orders and their events, all or nothing.
func (s *orderService) do(ctx context.Context, steps []step) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	events := make([]waybill.Event, len(steps))
	for i := range steps {
		if err := s.writeOrder(ctx, tx, &steps[i]); err != nil {
			return err
		}
		events[i] = eventOf(&steps[i], s.topic)
	}
	if err := s.writer.Append(ctx, tx, events...); err != nil {
		return err
	}
	if steps[0].refused {
		return s.refuse(ctx, tx, &steps[0])
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	s.written.Add(int64(len(steps)))
	return nil
}

const insertOrder = `INSERT INTO orders (order_id, product, qty, status, version, updated_at) VALUES (?, ?, ?, ?, ?, {now})`

const updateOrder = `UPDATE orders SET status = ?, version = ?, updated_at = {now} WHERE order_id = ? AND version = ?`

func (s *orderService) writeOrder(ctx context.Context, tx *sql.Tx, step *step) error {
	var err error
	if step.newOrder {
		_, err = tx.ExecContext(ctx, s.dialect.sql(insertOrder), step.orderID, step.product, step.qty, step.status, step.version)
	} else {
		_, err = tx.ExecContext(ctx, s.dialect.sql(updateOrder), step.status, step.version, step.orderID, step.version-1)
	}
	return err
}

const insertRefused = `INSERT INTO refused_order (order_id, refused_at) VALUES (?, {now})`

// refuse rolls the order and its event back, as a service does when the last
// check fails.
func (s *orderService) refuse(ctx context.Context, tx *sql.Tx, step *step) error {
	if err := tx.Rollback(); err != nil {
		return err
	}
	return s.exec(ctx, insertRefused, step.orderID)
}

const insertIncident = `INSERT INTO demo_incident (at, kind, note) VALUES ({now}, ?, ?)`

func (s *orderService) incident(ctx context.Context, kind, note string) error {
	return s.exec(ctx, insertIncident, kind, note)
}

func (s *orderService) pending(ctx context.Context) (int64, error) {
	counts, err := s.store.Counts(ctx)
	return counts.Pending + counts.Dead, err
}

// orderData is the payload of an order's events.
type orderData struct {
	OrderID string `json:"order_id"`
	Product string `json:"product"`
	Qty     int    `json:"qty"`
	Status  string `json:"status"`
}

func eventOf(step *step, topic string) waybill.Event {
	data, _ := json.Marshal(orderData{step.orderID, step.product, step.qty, step.status}) // cannot fail: strings and a number
	return waybill.Event{
		ID: waybill.NewID(), Type: eventTypes[step.status], Topic: topic,
		AggregateType: "order", AggregateID: step.orderID, AggregateVersion: step.version, Data: data,
	}
}
