package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/inbox"
)

// No unique constraint keeps an order from being shipped twice: that the handler
// runs once for each event is what the example shows.
const shipmentTable = `
CREATE TABLE IF NOT EXISTS shipment (
  order_id TEXT NOT NULL,
  customer TEXT NOT NULL,
  event_id TEXT NOT NULL
)`

const insertShipment = `INSERT INTO shipment (order_id, customer, event_id) VALUES ($1, $2, $3)`

// ship is the consumer's handler. exec runs a statement in the transaction in
// which the event is marked as consumed.
func ship(_ context.Context, event waybill.Event, exec func(statement string, args ...any) error) error {
	if event.Type != "OrderPaid" {
		return nil // of no interest here, and settled by that
	}
	var o order
	if err := json.Unmarshal(event.Data, &o); err != nil {
		return inbox.Dead(fmt.Errorf("read event: %w", err)) // no retry will mend it
	}
	return exec(insertShipment, o.ID, o.Customer, event.ID)
}

const countShipments = `SELECT COUNT(*) FROM shipment WHERE order_id = $1`

// shipped reports how often an order was shipped.
func shipped(ctx context.Context, db *sql.DB, id string) (n int, err error) {
	err = db.QueryRowContext(ctx, countShipments, id).Scan(&n)
	return n, err
}
