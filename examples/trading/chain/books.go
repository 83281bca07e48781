package chain

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/inbox/guard"
)

// PointsTables and LedgerTables are the statements that make the tables of both.
// Nothing in them would stop a second effect: that is the inbox's work alone.
var (
	PointsTables = []string{
		`CREATE TABLE points (customer VARCHAR(64) PRIMARY KEY, points BIGINT NOT NULL, events BIGINT NOT NULL)`,
	}
	LedgerTables = []string{
		`CREATE TABLE ledger (order_id VARCHAR(64) NOT NULL, kind VARCHAR(16) NOT NULL, amount BIGINT NOT NULL, events BIGINT NOT NULL, hash VARCHAR(64) NOT NULL, PRIMARY KEY (order_id, kind))`,
	}
)

var accounts = guard.Unique{Table: "points", Key: []string{"customer"}}

// AddPoints gives a customer a point for each cent paid, and counts his events.
func AddPoints(ctx context.Context, tx Tx, e waybill.Event) error {
	o, err := readOrder(&e)
	if err != nil {
		return err
	}
	var points int64
	if e.Type == "OrderPaid" {
		points = o.Amount
	}
	const add = `UPDATE points SET points = points + ?, events = events + 1 WHERE customer = ?`
	n, err := tx.Exec(ctx, add, points, o.Customer)
	if err != nil || n > 0 {
		return err
	}
	if _, err := accounts.Insert(ctx, tx.Tx, guard.Row{"customer": o.Customer, "points": 0, "events": 0}); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, add, points, o.Customer)
	return err
}

// Chain returns the hash of a history to which an event is added: it tells every
// loss, repetition and change of order.
func Chain(hash, eventID string) string {
	sum := sha256.Sum256([]byte(hash + eventID))
	return hex.EncodeToString(sum[:])
}

// Book adds each event of an order to the order's page of the ledger.
func Book(ctx context.Context, tx Tx, e waybill.Event) error {
	o, err := readOrder(&e)
	if err != nil {
		return err
	}
	page := guard.Unique{Table: "ledger", Key: []string{"order_id", "kind"}}
	first, err := page.Insert(ctx, tx.Tx, guard.Row{"order_id": o.ID, "kind": e.AggregateType, "amount": o.Amount, "events": 1, "hash": Chain("", e.ID)})
	if err != nil || first {
		return err
	}
	var hash string
	if err := tx.Scan(ctx, `SELECT hash FROM ledger WHERE order_id = ? AND kind = ?`, []any{o.ID, e.AggregateType}, []any{&hash}); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `UPDATE ledger SET amount = amount + ?, events = events + 1, hash = ? WHERE order_id = ? AND kind = ?`,
		o.Amount, Chain(hash, e.ID), o.ID, e.AggregateType)
	return err
}
