package strategies

import (
	"context"
	"database/sql"
	"errors"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/inbox/guard"
)

var orders = guard.Machine{
	Table: "orders", Key: "id", Status: "status", Version: "version",
	Moves: map[string][]string{"CREATED": {"PAID", "CANCELLED"}, "PAID": {"SHIPPED"}},
}

// MarkPaid moves an order from CREATED to PAID, and ships it if it did.
func MarkPaid(ctx context.Context, tx *sql.Tx, e waybill.Event) error {
	step, err := orders.Move(ctx, guard.Over(tx, guard.SQLite), e.AggregateID, "CREATED", "PAID", nil)
	if errors.Is(err, guard.ErrState) {
		return inbox.Park(err) // paid, but cancelled before: a person gives the money back
	}
	if err != nil || !step.Moved {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO shipment (order_id) VALUES (?)`, e.AggregateID)
	return err
}
