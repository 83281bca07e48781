package strategies

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/inbox/guard"
)

var payments = guard.Unique{Table: "payment", Key: []string{"payment_no"}, Same: []string{"amount"}}

// CreditPayment gives points for a payment, whichever event reports it.
func CreditPayment(ctx context.Context, tx *sql.Tx, e waybill.Event) error {
	var p struct {
		No       string `json:"paymentNo"`
		Customer string `json:"customer"`
		Amount   int64  `json:"amount"`
	}
	if err := json.Unmarshal(e.Data, &p); err != nil {
		return inbox.Dead(err)
	}
	first, err := payments.Insert(ctx, guard.Over(tx, guard.SQLite), guard.Row{"payment_no": p.No, "customer": p.Customer, "amount": p.Amount})
	if err != nil || !first { // an error: the number is there with another amount
		return err
	}
	_, err = tx.ExecContext(ctx, `UPDATE account SET points = points + ? WHERE customer = ?`, p.Amount, p.Customer)
	return err
}
