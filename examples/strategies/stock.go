package strategies

import (
	"context"
	"database/sql"
	"errors"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/inbox/guard"
)

var errSoldOut = errors.New("sold out")

var stock = guard.Versioned{Table: "stock", Key: "sku", Version: "version"}

// TakeOne takes a piece from the stock, which web requests change too.
func TakeOne(ctx context.Context, tx *sql.Tx, e waybill.Event) error {
	var pieces, version int64
	err := tx.QueryRowContext(ctx, `SELECT pieces, version FROM stock WHERE sku = ?`, e.AggregateID).Scan(&pieces, &version)
	if err != nil {
		return err
	}
	if pieces == 0 {
		return errSoldOut
	}
	// A conflict is an error like any other: the event is tried again.
	return stock.Update(ctx, guard.Over(tx, guard.SQLite), e.AggregateID, version, guard.Row{"pieces": pieces - 1})
}
