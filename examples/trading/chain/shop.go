package chain

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/inbox/guard"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/store"
)

// The topics, unless a service is given others.
const (
	OrdersTopic      = "trading-orders"
	FulfilmentsTopic = "trading-fulfilments"
)

// ShopTables are the statements that make the shop's tables.
var ShopTables = []string{
	`CREATE TABLE shop_order (id VARCHAR(64) PRIMARY KEY, customer VARCHAR(64) NOT NULL, amount BIGINT NOT NULL, status VARCHAR(16) NOT NULL, version BIGINT NOT NULL)`,
	`CREATE TABLE payment (payment_no VARCHAR(64) PRIMARY KEY, order_id VARCHAR(64) NOT NULL, amount BIGINT NOT NULL, use_of VARCHAR(16))`,
}

var (
	orders = guard.Machine{
		Table: "shop_order", Key: "id", Status: "status", Version: "version",
		Moves: map[string][]string{"PAYING": {"PAID", "CANCELLED"}, "PAID": {"SHIPPED"}},
	}
	payments = guard.Unique{Table: "payment", Key: []string{"payment_no"}, Same: []string{"order_id", "amount"}}
)

// Shop takes orders and their payments.
type Shop struct {
	DB      *sql.DB
	Dialect guard.Dialect
	Writer  *outbox.Writer[store.SQLTx]
	// Topic is where the events of orders go; empty means OrdersTopic.
	Topic string
	// Wake, if set, tells a relay in this process that there is something to send.
	Wake func()
}

// Place notes an order whose customer is on the way to the payment page.
func (s *Shop) Place(ctx context.Context, o Order) error {
	return s.within(ctx, func(tx Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO shop_order (id, customer, amount, status, version) VALUES (?, ?, ?, 'PAYING', 1)`, o.ID, o.Customer, o.Amount)
		if err != nil {
			return err
		}
		return tx.Append(ctx, s.event(o, 1, "OrderPlaced"))
	})
}

// Amend changes the amount of an order that is not paid yet, once for each of the
// changes, all in one transaction.
func (s *Shop) Amend(ctx context.Context, changes ...Order) error {
	return s.within(ctx, func(tx Tx) error {
		for _, o := range changes {
			n, err := tx.Exec(ctx, `UPDATE shop_order SET amount = ?, version = version + 1 WHERE id = ? AND status = 'PAYING'`, o.Amount, o.ID)
			if err != nil {
				return err
			}
			if n == 0 {
				return fmt.Errorf("order %s: %w", o.ID, guard.ErrState)
			}
			var version int64
			if err := tx.Scan(ctx, `SELECT version FROM shop_order WHERE id = ?`, []any{o.ID}, []any{&version}); err != nil {
				return err
			}
			if err := tx.Append(ctx, s.event(o, version, "OrderAmended")); err != nil {
				return err
			}
		}
		return nil
	})
}

// Payment is what the provider says. Amount is in cents.
type Payment struct {
	No      string `json:"paymentNo"`
	OrderID string `json:"orderId"`
	Amount  int64  `json:"amount"`
}

// Pay notes a payment and reports whether this call did it: the provider calls
// until it gets an answer, sometimes twice at once. A second payment for an
// order that is paid already is kept, to be given back.
func (s *Shop) Pay(ctx context.Context, p Payment) (first bool, err error) {
	err = s.within(ctx, func(tx Tx) error {
		first, err = payments.Insert(ctx, tx.Tx, guard.Row{"payment_no": p.No, "order_id": p.OrderID, "amount": p.Amount})
		if err != nil || !first {
			return err
		}
		step, err := orders.Move(ctx, tx.Tx, p.OrderID, "PAYING", "PAID", nil)
		if err != nil {
			return err
		}
		if !step.Moved {
			_, err = tx.Exec(ctx, `UPDATE payment SET use_of = 'TO REFUND' WHERE payment_no = ?`, p.No)
			return err
		}
		o := Order{ID: p.OrderID}
		if err := tx.Scan(ctx, `SELECT customer, amount FROM shop_order WHERE id = ?`, []any{o.ID}, []any{&o.Customer, &o.Amount}); err != nil {
			return err
		}
		return tx.Append(ctx, s.event(o, step.Version, "OrderPaid"))
	})
	return first && err == nil, err
}

// event is what all events of an order have in common. What happens to an order
// is caused by its having been placed.
func (s *Shop) event(o Order, version int64, kind string) waybill.Event {
	data, _ := json.Marshal(o) // two texts, a number and a flag
	e := waybill.Event{
		ID: waybill.KeyID("", "order", o.ID, version, kind), Type: kind, Topic: cmp.Or(s.Topic, OrdersTopic), AggregateType: "order", AggregateID: o.ID,
		AggregateVersion: version, Data: data, CorrelationID: "checkout-" + o.ID,
	}
	if kind != "OrderPlaced" {
		e.CausationID = waybill.KeyID("", "order", o.ID, 1, "OrderPlaced")
	}
	return e
}

func (s *Shop) within(ctx context.Context, do func(tx Tx) error) error {
	tx, err := s.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	own := Tx{Tx: guard.Over(tx, s.Dialect), Append: func(ctx context.Context, events ...waybill.Event) error {
		return s.Writer.Append(ctx, tx, events...)
	}}
	if err := do(own); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	if s.Wake != nil {
		s.Wake()
	}
	return nil
}
