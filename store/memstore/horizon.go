package memstore

import (
	"context"
	"time"
)

// Horizon returns what the group may have forgotten, and locks it.
func (tx inboxTx) Horizon(ctx context.Context, group string) (at time.Time, err error) {
	err = tx.callLocked(ctx, "horizon", group, lockKey{"horizon", group, "", ""}, func() error {
		if err := tx.store.needInbox(); err != nil {
			return err
		}
		at = tx.store.inbox.horizons[group]
		return nil
	})
	return at, err
}
