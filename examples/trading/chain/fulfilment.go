package chain

import (
	"context"
	"encoding/json"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/inbox/guard"
)

// FulfilmentTables are the statements that make the table of fulfilments.
var FulfilmentTables = []string{
	`CREATE TABLE fulfilment (order_id VARCHAR(64) PRIMARY KEY, status VARCHAR(16) NOT NULL, version BIGINT NOT NULL, coupon VARCHAR(128))`,
}

var (
	fulfilments     = guard.Fulfilment("fulfilment", "order_id", "status", "")
	fulfilmentStart = guard.Unique{Table: "fulfilment", Key: []string{"order_id"}}
)

// Fulfil grants a coupon for each paid order, and tells that it did. The call of
// the coupon service carries the event's id: when this transaction fails after
// it, the repetition gets the same coupon. topic is where fulfilments are told.
func Fulfil(coupons Coupons, topic string) Handle {
	return func(ctx context.Context, tx Tx, e waybill.Event) error {
		o, err := readOrder(&e)
		if err != nil || e.Type != "OrderPaid" {
			return err
		}
		if _, err := fulfilmentStart.Insert(ctx, tx.Tx, guard.Row{"order_id": o.ID, "status": "INIT", "version": 1}); err != nil {
			return err
		}
		if _, err := fulfilments.Move(ctx, tx.Tx, o.ID, "INIT", "DOING", nil); err != nil {
			return err
		}
		code, err := coupons.Grant(ctx, e.ID, o.Customer)
		if err != nil {
			return err
		}
		step, err := fulfilments.Move(ctx, tx.Tx, o.ID, "DOING", "DONE", guard.Row{"coupon": code})
		if err != nil || !step.Moved {
			return err
		}
		data, err := json.Marshal(map[string]any{"orderId": o.ID, "customer": o.Customer, "amount": o.Amount, "coupon": code})
		if err != nil {
			return err
		}
		return tx.Append(ctx, follow(&e, waybill.Event{
			ID: waybill.KeyID("", "fulfilment", o.ID, 1, "OrderFulfilled"), Type: "OrderFulfilled", Topic: topic,
			AggregateType: "fulfilment", AggregateID: o.ID, AggregateVersion: 1, Data: data,
		}))
	}
}
