package mysql

import (
	"context"
	"time"
)

// An INSERT over a row that exists would keep other consumers waiting, so it is
// tried only where there is none.
const (
	horizonSQL = `
SELECT e.horizon FROM {horizon} e WHERE e.consumer_group = ? {for share e}`

	makeHorizonSQL = `
INSERT IGNORE INTO {horizon} (consumer_group, horizon) VALUES (?, '1970-01-01')`
)

// Horizon returns what the group may have forgotten, and keeps it so.
func (t *inboxTx) Horizon(ctx context.Context, group string) (time.Time, error) {
	var at moment
	found, err := t.one(ctx, horizonSQL, []any{group}, &at)
	if err == nil && !found {
		if _, err = t.exec(ctx, makeHorizonSQL, group); err == nil {
			_, err = t.one(ctx, horizonSQL, []any{group}, &at)
		}
	}
	if err != nil || at.Year() <= 1970 {
		return time.Time{}, t.failed("horizon", group, err)
	}
	return at.Time, nil
}

const lockHorizonSQL = `
SELECT e.horizon FROM {horizon} e WHERE e.consumer_group = ? {for update e}`

const moveHorizonSQL = `
UPDATE {horizon} SET horizon = GREATEST(horizon, UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND)
WHERE consumer_group = ?`

func (t ownTx) lockHorizon(ctx context.Context, group string) error {
	if _, err := t.exec(ctx, makeHorizonSQL, group); err != nil {
		return err
	}
	var at moment
	_, err := t.one(ctx, lockHorizonSQL, []any{group}, &at)
	return err
}
