package mysql

import (
	"context"
	"slices"
	"time"

	"github.com/waybillhq/waybill/store"
)

const defaultCleanup = 1000

// chooseSettledSQL goes by the receipts' age, which is the order of ids but for
// late ones, and so reads no more than it returns. It locks nothing.
const chooseSettledSQL = `
SELECT r.id
FROM {receipt} r FORCE INDEX (published)
WHERE r.published_at <= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND
  AND (? = 0 OR r.id < ?)
  AND NOT EXISTS (SELECT 1 FROM {pending} p WHERE p.id = r.id)
ORDER BY r.published_at, r.id
LIMIT ?`

const lockSettledSQL = `
SELECT e.id FROM ` + listedIDs + ` STRAIGHT_JOIN {event} e FORCE INDEX (PRIMARY) ON e.id = w.id
{for update e} SKIP LOCKED`

// The queue is asked again under the locks: a requeue may have inserted a row.
const queuedAmongSQL = `
SELECT p.id FROM ` + listedIDs + ` STRAIGHT_JOIN {pending} p FORCE INDEX (PRIMARY) ON p.id = w.id`

const archiveSQL = `
INSERT INTO {archive} (id, event_id, tenant_id, aggregate_type, aggregate_id, aggregate_version, event_type, event_version,
                       topic, event_key, payload, content_type, headers, occurred_at, created_at,
                       outcome, via, published_at, published_to, note)
SELECT e.id, e.event_id, e.tenant_id, e.aggregate_type, e.aggregate_id, e.aggregate_version, e.event_type, e.event_version,
       e.topic, e.event_key, e.payload, e.content_type, e.headers, e.occurred_at, e.created_at,
       r.outcome, r.via, r.published_at, r.published_to, r.note
FROM ` + listedIDs + `
STRAIGHT_JOIN {event} e FORCE INDEX (PRIMARY) ON e.id = w.id
STRAIGHT_JOIN {receipt} r FORCE INDEX (PRIMARY) ON r.id = w.id
WHERE NOT EXISTS (SELECT 1 FROM {archive} a WHERE a.id = w.id)`

// Cleanup removes settled events whose receipt is older than the retention.
func (s *Store) Cleanup(ctx context.Context, request store.CleanupRequest) (int, error) {
	limit := request.Limit
	if limit <= 0 {
		limit = defaultCleanup
	}
	chosen, err := collect(ctx, s.pool(), scanOne[int64], chooseSettledSQL, micros(request.Retention), request.Below, request.Below, limit)
	if err != nil || len(chosen) == 0 {
		return 0, failure("cleanup", "", err)
	}
	slices.Sort(chosen)
	var removed int
	err = s.inTx(ctx, func(tx ownTx) error {
		removed = 0
		ids, err := collect(ctx, tx, scanOne[int64], lockSettledSQL, list(chosen))
		if err != nil {
			return err
		}
		if ids, err = tx.removable(ctx, ids); err != nil || len(ids) == 0 {
			return err
		}
		if request.Archive {
			if _, err := tx.exec(ctx, archiveSQL, list(ids)); err != nil {
				return err
			}
		}
		if _, err := tx.exec(ctx, deleteReceiptsSQL, list(ids)); err != nil {
			return err
		}
		_, err = tx.exec(ctx, deleteEventsSQL, list(ids))
		removed = len(ids)
		return err
	})
	if err != nil {
		return 0, failure("cleanup", "", err)
	}
	return removed, nil
}

const receiptsAmongSQL = `
SELECT r.id FROM ` + listedIDs + ` STRAIGHT_JOIN {receipt} r FORCE INDEX (PRIMARY) ON r.id = w.id`

// removable returns those of the locked events that are settled still: neither
// queued again nor removed and inserted anew since they were chosen.
func (t ownTx) removable(ctx context.Context, ids []int64) ([]int64, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	settled, err := collect(ctx, t, scanOne[int64], receiptsAmongSQL, list(ids))
	if err != nil {
		return nil, err
	}
	queued, err := collect(ctx, t, scanOne[int64], queuedAmongSQL, list(ids))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(settled, func(id int64) bool { return slices.Contains(queued, id) }), nil
}

// The newest position of a partition stays, so that there is always something
// to compare with.
const chooseConsumedSQL = "\nSELECT c.event_id" + `
FROM {consumed} c FORCE INDEX (age)
WHERE c.consumer_group = ?
  AND c.consumed_at <= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND
  AND EXISTS (SELECT 1 FROM {consumed} later FORCE INDEX (position)
              WHERE later.consumer_group = c.consumer_group AND later.topic = c.topic` + "\n                AND later.`partition` = c.`partition`" + ` AND later.position > c.position)
ORDER BY c.consumer_group, c.consumed_at
LIMIT ?`

const deleteConsumedSQL = `
DELETE c FROM ` + listedEventIDs + ` STRAIGHT_JOIN {consumed} c FORCE INDEX (PRIMARY) ON c.consumer_group = ? AND c.event_id = w.event_id COLLATE {collation}`

const deleteEffectsSQL = `
DELETE c FROM ` + listedEventIDs + ` STRAIGHT_JOIN {effect} c FORCE INDEX (PRIMARY) ON c.consumer_group = ? AND c.event_id = w.event_id COLLATE {collation}`

// CleanupConsumed removes old rows of consumed_event.
func (s *Store) CleanupConsumed(ctx context.Context, group string, retention time.Duration, limit int) (int, error) {
	chosen, err := collect(ctx, s.pool(), scanOne[string], chooseConsumedSQL, group, micros(retention), atMost(limit))
	if err != nil {
		return 0, failure("cleanup consumed", group, err)
	}
	slices.Sort(chosen)
	var removed int64
	for part := range slices.Chunk(chosen, defaultCleanup) {
		var n int64
		err := s.inTx(ctx, func(tx ownTx) (err error) {
			if err = tx.lockHorizon(ctx, group); err != nil {
				return err
			}
			if n, err = tx.exec(ctx, deleteConsumedSQL, list(part), group); err != nil || n == 0 {
				return err
			}
			if _, err = tx.exec(ctx, deleteEffectsSQL, list(part), group); err != nil {
				return err
			}
			_, err = tx.exec(ctx, moveHorizonSQL, micros(retention), group)
			return err
		})
		if err != nil {
			return int(removed), failure("cleanup consumed", group, err)
		}
		removed += n
	}
	return int(removed), nil
}
