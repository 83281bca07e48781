package strategies

import (
	"context"
	"database/sql"
	"errors"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/inbox/guard"
)

// Listen is for frameworks that bring events by themselves. It returns nil when
// the event may be acknowledged.
func Listen(ctx context.Context, db *sql.DB, e *waybill.Event, effect func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	first, err := guard.Consumed{Group: "points"}.First(ctx, guard.Over(tx, guard.SQLite), e)
	if err == nil && first {
		err = effect(tx)
	}
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
