// Package orders is a small order service that tells others what it does.
package orders

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/store"
)

// PayOrder marks an order as paid and says so, in one transaction.
func PayOrder(ctx context.Context, db *sql.DB, writer *outbox.Writer[store.SQLTx], orderID string, version int64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, `UPDATE orders SET status = 'PAID', version = ? WHERE id = ?`, version, orderID); err != nil {
		return err
	}
	if err := writer.Append(ctx, tx, waybill.Event{
		ID: waybill.NewID(), Type: "OrderPaid", Topic: "orders",
		AggregateType: "order", AggregateID: orderID, AggregateVersion: version,
		Data: fmt.Appendf(nil, `{"orderId":%q,"status":"PAID"}`, orderID),
	}); err != nil {
		return err
	}
	return tx.Commit() // the order is paid and the event exists, or neither
}
