// Package inventory is a consumer that takes stock off the shelf for each paid
// order, once.
package inventory

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/inbox"
)

// Reserve is the handler of the consumer. What it writes with tx is committed
// together with the event's id, or not at all.
func Reserve(ctx context.Context, tx *sql.Tx, event waybill.Event) error {
	if event.Type != "OrderPaid" {
		return nil // of no interest here, and settled by that
	}
	var order struct {
		OrderID string `json:"orderId"`
	}
	if err := json.Unmarshal(event.Data, &order); err != nil {
		return inbox.Dead(fmt.Errorf("read event: %w", err)) // no retry will mend it
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO reservation (order_id, event_id) VALUES (?, ?)`, order.OrderID, event.ID)
	return err // any error: tried again later, other orders go on meanwhile
}
