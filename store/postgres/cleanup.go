package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill/store"
)

const defaultCleanup = 1000

const lockSettledSQL = `
SELECT e.id
FROM {event} e JOIN {receipt} r ON r.id = e.id
WHERE r.published_at <= statement_timestamp() - $1::bigint * interval '1 microsecond'
  AND ($2::bigint = 0 OR e.id < $2)
  AND NOT EXISTS (SELECT FROM {pending} p WHERE p.id = e.id)
ORDER BY e.id
LIMIT $3
FOR UPDATE OF e SKIP LOCKED`

// The queue is asked again, by a statement of its own: a requeue may have
// inserted a row between the first one's snapshot and its locks.
const removableSQL = `
SELECT w.id FROM unnest($1::bigint[]) AS w (id)
WHERE NOT EXISTS (SELECT FROM {pending} p WHERE p.id = w.id)
ORDER BY w.id`

const archiveSQL = `
INSERT INTO {archive} (id, event_id, tenant_id, aggregate_type, aggregate_id, aggregate_version, event_type, event_version,
                       topic, event_key, payload, content_type, headers, occurred_at, created_at,
                       outcome, via, published_at, published_to, note)
SELECT e.id, e.event_id, e.tenant_id, e.aggregate_type, e.aggregate_id, e.aggregate_version, e.event_type, e.event_version,
       e.topic, e.event_key, e.payload, e.content_type, e.headers, e.occurred_at, e.created_at,
       r.outcome, r.via, r.published_at, r.published_to, r.note
FROM {event} e JOIN {receipt} r ON r.id = e.id
WHERE e.id = ANY ($1::bigint[])
ON CONFLICT (id) DO NOTHING`

const deleteReceiptsSQL = `DELETE FROM {receipt} WHERE id = ANY ($1::bigint[])`

const deleteEventsSQL = `DELETE FROM {event} WHERE id = ANY ($1::bigint[])`

// Cleanup removes settled events whose receipt is older than the retention.
func (s *Store) Cleanup(ctx context.Context, request store.CleanupRequest) (int, error) {
	limit := request.Limit
	if limit <= 0 {
		limit = defaultCleanup
	}
	var removed int
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		removed = 0
		rows, err := tx.Query(ctx, s.sql(lockSettledSQL), s.planned, micros(request.Retention), request.Below, limit)
		if err != nil {
			return err
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil || len(ids) == 0 {
			return err
		}
		rows, err = tx.Query(ctx, s.sql(removableSQL), ids)
		if err != nil {
			return err
		}
		if ids, err = pgx.CollectRows(rows, pgx.RowTo[int64]); err != nil || len(ids) == 0 {
			return err
		}
		batch := &pgx.Batch{}
		if request.Archive {
			batch.Queue(s.sql(archiveSQL), ids)
		}
		batch.Queue(s.sql(deleteReceiptsSQL), ids)
		batch.Queue(s.sql(deleteEventsSQL), ids)
		removed = len(ids)
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return 0, failure("cleanup", "", err)
	}
	return removed, nil
}

// The newest position of a partition stays, so that there is always something
// to compare with. A subquery in the place of the CTE might be run again for
// every row, and would then find other rows each time.
const cleanupConsumedSQL = `
WITH old AS MATERIALIZED (
    SELECT c.event_id FROM {consumed} c
    WHERE c.consumer_group = $1
      AND c.consumed_at <= statement_timestamp() - $2::bigint * interval '1 microsecond'
      AND EXISTS (SELECT FROM {consumed} later
                  WHERE later.consumer_group = c.consumer_group AND later.topic = c.topic
                    AND later.partition = c.partition AND later.position > c.position)
    LIMIT $3
    FOR UPDATE OF c SKIP LOCKED
)
DELETE FROM {consumed} c USING old WHERE c.consumer_group = $1 AND c.event_id = old.event_id
RETURNING c.event_id`

const cleanupEffectsSQL = `
DELETE FROM {effect} WHERE consumer_group = $1 AND event_id = ANY ($2::text[])`

// CleanupConsumed removes old rows of consumed_event.
func (s *Store) CleanupConsumed(ctx context.Context, group string, retention time.Duration, limit int) (int, error) {
	removed := 0
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		batch.Queue(s.sql(makeHorizonSQL), group)
		batch.Queue(s.sql(lockHorizonSQL), group)
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, s.sql(cleanupConsumedSQL), s.planned, group, micros(retention), atMost(limit))
		if err != nil {
			return err
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if removed = len(ids); err != nil || removed == 0 {
			return err
		}
		batch = &pgx.Batch{}
		batch.Queue(s.sql(cleanupEffectsSQL), group, ids)
		batch.Queue(s.sql(moveHorizonSQL), group, micros(retention))
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return 0, failure("cleanup consumed", group, err)
	}
	return removed, nil
}
