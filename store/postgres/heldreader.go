package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill/store"
)

// A BLOCKED event with nothing before it that could release it has lost its
// blocker.
const releasableKeysSQL = `
SELECT topic, event_key
FROM (
    SELECT h.topic, h.event_key, h.seq FROM {held} h
    WHERE h.consumer_group = $1 AND h.state = 'RETRY' AND h.next_attempt_at <= statement_timestamp()
    UNION ALL
    SELECT h.topic, h.event_key, h.seq FROM {held} h
    WHERE h.consumer_group = $1 AND h.state = 'BLOCKED' AND NOT EXISTS (
        SELECT FROM {held} b
        WHERE b.consumer_group = h.consumer_group AND b.topic = h.topic AND b.event_key = h.event_key
          AND (b.state = 'RETRY' OR $2 AND b.state = 'DEAD'))
) keys
GROUP BY topic, event_key
ORDER BY min(seq)
LIMIT $3`

// ReleasableKeys returns keys that have something to do now.
func (s *Store) ReleasableKeys(ctx context.Context, group string, deadBlocks bool, limit int) ([]store.HeldKeyRef, error) {
	var keys []store.HeldKeyRef
	err := s.read(ctx, readSettingsSQL, func(rows pgx.Rows) (err error) {
		keys, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (key store.HeldKeyRef, err error) {
			err = row.Scan(&key.Topic, &key.Key)
			key.Key = decodeText(key.Key)
			return key, err
		})
		return err
	}, s.sql(releasableKeysSQL), group, deadBlocks, atMost(limit))
	return keys, failure("releasable keys", group, err)
}

const nextRetrySQL = `
SELECT min(next_attempt_at), clock_timestamp() FROM {held} WHERE consumer_group = $1 AND state = 'RETRY'`

// NextRetry returns the time until the earliest RETRY is due.
func (s *Store) NextRetry(ctx context.Context, group string) (time.Duration, bool, error) {
	var at *time.Time
	var now time.Time
	err := s.pool.QueryRow(ctx, s.sql(nextRetrySQL), group).Scan(&at, &now)
	if err != nil || at == nil {
		return 0, false, failure("next retry", group, err)
	}
	return at.Sub(now), true, nil
}

const listHeldSQL = `
SELECT ` + heldColumns + `
FROM {held}
WHERE consumer_group = $1 AND seq + 0 > $2
  AND ($3::text = '' OR event_id = $3) AND ($4::text = '' OR event_key = $4) AND ($5::text = '' OR state = $5)
ORDER BY seq + 0
LIMIT $6`

// ListHeld returns held events by Seq.
func (s *Store) ListHeld(ctx context.Context, group string, filter store.HeldFilter) ([]store.Held, error) {
	limit := filter.Limit
	if limit <= 0 {
		limit = defaultLimit
	}
	rows, err := s.pool.Query(ctx, s.sql(listHeldSQL), s.planned, group, filter.After,
		encodeText(filter.EventID), encodeText(filter.Key), string(filter.State), limit)
	if err != nil {
		return nil, failure("list held", group, err)
	}
	held, err := pgx.CollectRows(rows, scanHeld)
	return held, failure("list held", group, err)
}

const countHeldSQL = `
SELECT count(*) FILTER (WHERE state = 'WAITING'), count(*) FILTER (WHERE state = 'BLOCKED'),
       count(*) FILTER (WHERE state = 'RETRY'), count(*) FILTER (WHERE state = 'DEAD'),
       min(held_at), clock_timestamp()
FROM {held} WHERE consumer_group = $1`

// CountHeld sums up a group's held events.
func (s *Store) CountHeld(ctx context.Context, group string) (store.HeldCounts, error) {
	var c store.HeldCounts
	var oldest *time.Time
	var now time.Time
	err := s.pool.QueryRow(ctx, s.sql(countHeldSQL), group).Scan(&c.Waiting, &c.Blocked, &c.Retry, &c.Dead, &oldest, &now)
	if oldest != nil {
		c.OldestAge = max(now.Sub(*oldest), 0)
	}
	return c, failure("count held", group, err)
}

// The groups are found by skipping through the index: there are few of them
// and very many rows.
const allGroups = `
WITH RECURSIVE consumed AS (
    (SELECT consumer_group FROM {consumed} ORDER BY consumer_group LIMIT 1)
    UNION ALL
    SELECT next.consumer_group
    FROM consumed g
    CROSS JOIN LATERAL (SELECT c.consumer_group FROM {consumed} c WHERE c.consumer_group > g.consumer_group
                        ORDER BY c.consumer_group LIMIT 1) next
)`

const findConsumedSQL = allGroups + `
SELECT c.consumer_group, c.event_id, c.event_type, c.tenant_id, c.aggregate_type, c.aggregate_id, COALESCE(c.aggregate_version, 0),
       c.outcome, c.topic, c.partition, c.position, c.consumed_at, c.duplicates
FROM consumed g JOIN {consumed} c ON c.consumer_group = g.consumer_group AND c.event_id = $1
ORDER BY c.consumer_group`

// FindConsumed returns the groups' rows of one event id, by group.
func (s *Store) FindConsumed(ctx context.Context, eventID string) ([]store.Consumed, error) {
	rows, err := s.pool.Query(ctx, s.sql(findConsumedSQL), s.planned, encodeText(eventID))
	if err != nil {
		return nil, failure("find consumed", eventID, err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c store.Consumed, err error) {
		e := &c.Event
		err = row.Scan(&c.Group, &e.ID, &e.Type, &e.TenantID, &e.AggregateType, &e.AggregateID, &e.AggregateVersion,
			&c.Outcome, &c.Topic, &c.Partition, &c.Position, &c.ConsumedAt, &c.Duplicates)
		e.ID, c.ConsumedAt = decodeText(e.ID), c.ConsumedAt.UTC()
		return c, err
	})
	return found, failure("find consumed", eventID, err)
}

const groupsSQL = allGroups + `
SELECT consumer_group FROM consumed
UNION SELECT DISTINCT consumer_group FROM {held}
UNION SELECT consumer_group FROM {progress}
UNION SELECT consumer_group FROM {reader}
UNION SELECT consumer_group FROM {member}
ORDER BY consumer_group`

// Groups returns the names of all groups, sorted.
func (s *Store) Groups(ctx context.Context) ([]string, error) {
	rows, err := s.pool.Query(ctx, s.sql(groupsSQL), s.planned)
	if err != nil {
		return nil, failure("groups", "", err)
	}
	groups, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return groups, failure("groups", "", err)
}
