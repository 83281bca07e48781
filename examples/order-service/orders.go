package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/store"
)

const topic = "orders"

const ordersTable = `
CREATE TABLE IF NOT EXISTS orders (
  id          TEXT PRIMARY KEY,
  customer    TEXT NOT NULL,
  total_cents BIGINT NOT NULL,
  status      TEXT NOT NULL,
  version     BIGINT NOT NULL
)`

// order is an order as the API and the events show it.
type order struct {
	ID         string `json:"id"`
	Customer   string `json:"customer"`
	TotalCents int64  `json:"totalCents"`
	Status     string `json:"status"`
	Version    int64  `json:"version"`
}

var (
	errExists  = errors.New("an order of this id exists")
	errMissing = errors.New("no such order")
)

// service is the order service.
type service struct {
	db        *sql.DB
	writer    *outbox.Writer[store.SQLTx]
	shipments *sql.DB // the read model of the consumer
	wake      func()  // tells the relay that something was committed
}

const insertOrder = `
INSERT INTO orders (id, customer, total_cents, status, version)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (id) DO NOTHING`

// place stores a new order and says so.
func (s *service) place(ctx context.Context, o order) error {
	return s.change(ctx, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, insertOrder, o.ID, o.Customer, o.TotalCents, o.Status, o.Version)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, errExists)
		}
		return s.tell(ctx, tx, "OrderPlaced", o)
	})
}

const payOrder = `
UPDATE orders SET status = 'PAID', version = version + 1
WHERE id = $1 AND status = 'PLACED'
RETURNING id, customer, total_cents, status, version`

// pay marks an order as paid and says so. Who pays twice, because the first
// answer was lost, is answered the same way, and no second event is written.
func (s *service) pay(ctx context.Context, id string) error {
	return s.change(ctx, func(tx *sql.Tx) error {
		// The UPDATE locks the order, so two changes of one order append their
		// events in the order in which they commit.
		o, err := scanOrder(tx.QueryRowContext(ctx, payOrder, id))
		if errors.Is(err, sql.ErrNoRows) {
			_, err := find(ctx, tx, id)
			return err // nil: it was paid before
		}
		if err != nil {
			return err
		}
		return s.tell(ctx, tx, "OrderPaid", o)
	})
}

// change runs do in a transaction.
func (s *service) change(ctx context.Context, do func(tx *sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := do(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	s.wake()
	return nil
}

// tell appends an event in the transaction of the change. Its id follows from
// what it says, so the same change can never be told twice.
func (s *service) tell(ctx context.Context, tx *sql.Tx, eventType string, o order) error {
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return s.writer.Append(ctx, tx, waybill.Event{
		ID:   waybill.KeyID("", "order", o.ID, o.Version, eventType),
		Type: eventType, Topic: topic,
		AggregateType: "order", AggregateID: o.ID, AggregateVersion: o.Version,
		Data: data,
	})
}

const selectOrder = `SELECT id, customer, total_cents, status, version FROM orders WHERE id = $1`

type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func find(ctx context.Context, db querier, id string) (order, error) {
	o, err := scanOrder(db.QueryRowContext(ctx, selectOrder, id))
	if errors.Is(err, sql.ErrNoRows) {
		return o, fmt.Errorf("%w: %s", errMissing, id)
	}
	return o, err
}

func scanOrder(row *sql.Row) (o order, err error) {
	err = row.Scan(&o.ID, &o.Customer, &o.TotalCents, &o.Status, &o.Version)
	return o, err
}
