package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/waybillhq/waybill/store"
)

const (
	cleanupLookSQL = `
SELECT EXISTS (SELECT 1 FROM {receipt} WHERE published_at <= strftime({iso}, 'now', ?1))`

	// cleanupChooseSQL goes by the receipts' age, which is the order of ids but
	// for late ones, and so reads no more than it returns.
	cleanupChooseSQL = `
SELECT r.id
FROM {receipt} AS r INDEXED BY {receipt_published}
WHERE r.published_at <= strftime({iso}, 'now', ?1) AND (?2 = 0 OR r.id < ?2)
  AND NOT EXISTS (SELECT 1 FROM {pending} AS p WHERE p.id = r.id)
ORDER BY r.published_at, r.id
LIMIT ?3`

	cleanupArchiveSQL = `
INSERT OR REPLACE INTO {archive} (id, event_id, tenant_id, aggregate_type, aggregate_id, aggregate_version, event_type, event_version,
  topic, event_key, payload, content_type, headers, occurred_at, created_at, outcome, via, published_at, published_to, note)
SELECT e.id, e.event_id, e.tenant_id, e.aggregate_type, e.aggregate_id, e.aggregate_version, e.event_type, e.event_version,
  e.topic, e.event_key, e.payload, e.content_type, e.headers, e.occurred_at, e.created_at,
  r.outcome, r.via, r.published_at, r.published_to, r.note
FROM json_each(?1) AS c
CROSS JOIN {event} AS e ON e.id = c.value
CROSS JOIN {receipt} AS r ON r.id = e.id`

	cleanupEventsSQL = `
DELETE FROM {event} WHERE id IN (SELECT value FROM json_each(?1))`

	cleanupReceiptsSQL = `
DELETE FROM {receipt} WHERE id IN (SELECT value FROM json_each(?1))`
)

// Cleanup removes settled events. It takes the write lock only when there is
// something to remove, and chooses under it, so that no requeue comes between.
func (s *Store) Cleanup(ctx context.Context, request store.CleanupRequest) (int, error) {
	limit := request.Limit
	if limit <= 0 {
		limit = 1000
	}
	retention := after(-request.Retention)
	var present bool
	if err := s.scan(ctx, cleanupLookSQL, []any{retention}, &present); err != nil || !present {
		return 0, s.failed("cleanup", "", err)
	}
	removed := 0
	err := s.write(ctx, "cleanup", true, func(w writing) error {
		rows, err := w.query(ctx, cleanupChooseSQL, retention, request.Below, limit)
		ids, err := scanIDs(rows, err)
		if err != nil || len(ids) == 0 {
			return err
		}
		chosen := jsonInts(ids)
		if request.Archive {
			if _, err := w.exec(ctx, cleanupArchiveSQL, chosen); err != nil {
				return err
			}
		}
		count, err := w.exec(ctx, cleanupEventsSQL, chosen)
		if err != nil {
			return err
		}
		removed = int(count)
		_, err = w.exec(ctx, cleanupReceiptsSQL, chosen)
		return err
	})
	if err != nil {
		return 0, err
	}
	return removed, nil
}

func scanIDs(rows *sql.Rows, err error) ([]int64, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, errors.Join(rows.Err(), rows.Close())
}

const (
	// The newest of a partition is the one with the greatest position. A row
	// that is not the newest never becomes it, so the choice needs no lock.
	consumedChooseSQL = `
SELECT c.rowid
FROM {consumed} AS c INDEXED BY {consumed_age}
WHERE c.consumer_group = ?1 AND c.consumed_at <= strftime({iso}, 'now', ?2)
  AND EXISTS (
    SELECT 1 FROM {consumed} AS n INDEXED BY {consumed_age}
    WHERE n.consumer_group = c.consumer_group AND n.consumed_at >= c.consumed_at AND n.topic = c.topic AND n.partition = c.partition
      AND (n.position > c.position OR (n.position = c.position AND n.rowid > c.rowid)))
ORDER BY c.consumed_at
LIMIT ?3`

	consumedEffectsSQL = `
DELETE FROM {effect} WHERE consumer_group = ?1 AND event_id IN (
  SELECT event_id FROM {consumed} WHERE rowid IN (SELECT value FROM json_each(?2)))`

	consumedDeleteSQL = `
DELETE FROM {consumed} WHERE rowid IN (SELECT value FROM json_each(?1))`
)

// CleanupConsumed removes old consumed_event rows of a group.
func (s *Store) CleanupConsumed(ctx context.Context, group string, retention time.Duration, limit int) (int, error) {
	if limit <= 0 {
		limit = 1000
	}
	rows, err := s.query(ctx, consumedChooseSQL, group, after(-retention), limit)
	ids, err := scanIDs(rows, err)
	if err != nil || len(ids) == 0 {
		return 0, s.failed("cleanup consumed", group, err)
	}
	removed := 0
	err = s.write(ctx, "cleanup consumed", true, func(w writing) error {
		if _, err := w.exec(ctx, moveHorizonSQL, group, after(-retention)); err != nil {
			return err
		}
		if _, err := w.exec(ctx, consumedEffectsSQL, group, jsonInts(ids)); err != nil {
			return err
		}
		count, err := w.exec(ctx, consumedDeleteSQL, jsonInts(ids))
		removed = int(count)
		return err
	})
	if err != nil {
		return 0, err
	}
	return removed, nil
}
