package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

const makeHorizonSQL = `
INSERT INTO {horizon} (consumer_group, horizon) VALUES ($1, '-infinity')
ON CONFLICT (consumer_group) DO NOTHING`

const horizonSQL = `
SELECT CASE WHEN isfinite(horizon) THEN horizon END FROM {horizon} WHERE consumer_group = $1 FOR SHARE`

// Horizon returns what the group may have forgotten, and keeps it so.
func (t *inboxTx) Horizon(ctx context.Context, group string) (time.Time, error) {
	if err := t.tx.usable(); err != nil {
		return time.Time{}, failure("horizon", group, err)
	}
	batch := &pgx.Batch{}
	batch.Queue(t.store.sql(makeHorizonSQL), group)
	var at *time.Time
	batch.Queue(t.store.sql(horizonSQL), group).QueryRow(func(row pgx.Row) error { return row.Scan(&at) })
	if err := t.tx.reason(t.tx.SendBatch(ctx, batch).Close()); err != nil || at == nil {
		return time.Time{}, failure("horizon", group, err)
	}
	return at.UTC(), nil
}

const lockHorizonSQL = `
SELECT 1 FROM {horizon} WHERE consumer_group = $1 FOR UPDATE`

const moveHorizonSQL = `
UPDATE {horizon} SET horizon = GREATEST(horizon, statement_timestamp() - $2::bigint * interval '1 microsecond')
WHERE consumer_group = $1`
