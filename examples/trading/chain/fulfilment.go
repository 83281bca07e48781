package chain

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/inbox"
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

// couponEffect is the name of the call.
const couponEffect = "coupon"

// CouponEffect is the call of the coupon service for each paid order. The inbox
// commits that it is under way, makes it with no transaction open, and commits
// its answer together with what [Fulfil] does. Where a process dies in between,
// the call is made again under the same key, which the service recognises.
func CouponEffect(coupons Coupons) inbox.Effect {
	return inbox.Effect{
		Name: couponEffect, Types: []string{"OrderPaid"}, Idempotent: true,
		Call: func(ctx context.Context, key string, e waybill.Event) ([]byte, error) {
			o, err := readOrder(&e)
			if err != nil {
				return nil, inbox.NotDone(err)
			}
			code, err := coupons.Grant(ctx, key, o.Customer)
			return []byte(code), err
		},
	}
}

// Fulfil notes the coupon of each paid order, and tells that the order is
// fulfilled. topic is where it tells so.
func Fulfil(topic string) Handle {
	return func(ctx context.Context, tx Tx, e waybill.Event) error {
		o, err := readOrder(&e)
		if err != nil || e.Type != "OrderPaid" {
			return err
		}
		code, ok := inbox.EffectResult(ctx, couponEffect)
		if !ok {
			return errNoCoupon
		}
		if _, err := fulfilmentStart.Insert(ctx, tx.Tx, guard.Row{"order_id": o.ID, "status": "DOING", "version": 1}); err != nil {
			return err
		}
		step, err := fulfilments.Move(ctx, tx.Tx, o.ID, "DOING", "DONE", guard.Row{"coupon": string(code)})
		if err != nil || !step.Moved {
			return err
		}
		data, err := json.Marshal(map[string]any{"orderId": o.ID, "customer": o.Customer, "amount": o.Amount, "coupon": string(code)})
		if err != nil {
			return err
		}
		return tx.Append(ctx, follow(&e, waybill.Event{
			ID: waybill.KeyID("", "fulfilment", o.ID, 1, "OrderFulfilled"), Type: "OrderFulfilled", Topic: topic,
			AggregateType: "fulfilment", AggregateID: o.ID, AggregateVersion: 1, Data: data,
		}))
	}
}

var errNoCoupon = errors.New("fulfilment needs the effect of the coupon")
