package mysql

import (
	"context"
	"database/sql"
	"time"

	"github.com/waybillhq/waybill/store"
)

// A BLOCKED event with nothing before it that could release it has lost its
// blocker. The blockers of a key are asked for once, not once for each of its
// events: thousands may wait behind one.
const releasableKeysSQL = `
SELECT k.topic, k.event_key
FROM (
    SELECT h.topic, h.event_key, MIN(h.seq) AS seq FROM {held} h FORCE INDEX (state)
    WHERE h.consumer_group = ? AND h.state = 'RETRY' AND h.next_attempt_at <= UTC_TIMESTAMP(6)
    GROUP BY h.topic, h.event_key
    UNION ALL
    SELECT b.topic, b.event_key, b.seq
    FROM (SELECT h.topic, h.event_key, MIN(h.seq) AS seq FROM {held} h FORCE INDEX (state)
          WHERE h.consumer_group = ? AND h.state = 'BLOCKED'
          GROUP BY h.topic, h.event_key) b
    WHERE NOT EXISTS (
        SELECT 1 FROM {held} h FORCE INDEX (event_key)
        WHERE h.consumer_group = ? AND h.topic = b.topic AND h.event_key = b.event_key
          AND (h.state = 'RETRY' OR ? AND h.state = 'DEAD'))
) k
GROUP BY k.topic, k.event_key
ORDER BY MIN(k.seq)
LIMIT ?`

// ReleasableKeys returns keys that have something to do now.
func (s *Store) ReleasableKeys(ctx context.Context, group string, deadBlocks bool, limit int) ([]store.HeldKeyRef, error) {
	keys, err := collect(ctx, s.pool(), func(rows *sql.Rows) (key store.HeldKeyRef, err error) {
		err = rows.Scan(&key.Topic, &key.Key)
		key.Key = decodeText(key.Key)
		return key, err
	}, releasableKeysSQL, group, group, group, deadBlocks, atMost(limit))
	return keys, failure("releasable keys", group, err)
}

const nextRetrySQL = `
SELECT MIN(next_attempt_at), UTC_TIMESTAMP(6) FROM {held} FORCE INDEX (state) WHERE consumer_group = ? AND state = 'RETRY'`

// NextRetry returns the time until the earliest RETRY is due.
func (s *Store) NextRetry(ctx context.Context, group string) (time.Duration, bool, error) {
	var at, now moment
	_, err := s.pool().one(ctx, nextRetrySQL, []any{group}, &at, &now)
	if err != nil || at.IsZero() {
		return 0, false, failure("next retry", group, err)
	}
	return at.Sub(now.Time), true, nil
}

const listHeldSQL = `
SELECT ` + heldColumns + `
FROM {held}
WHERE consumer_group = ? AND seq > ? AND (? = '' OR event_id = ?) AND (? = '' OR event_key = ?) AND (? = '' OR state = ?)
ORDER BY seq
LIMIT ?`

// ListHeld returns held events by Seq.
func (s *Store) ListHeld(ctx context.Context, group string, filter store.HeldFilter) ([]store.Held, error) {
	limit := filter.Limit
	if limit <= 0 {
		limit = defaultLimit
	}
	id, key, state := encodeText(filter.EventID), encodeText(filter.Key), string(filter.State)
	held, err := collect(ctx, s.pool(), scanHeld, listHeldSQL, group, filter.After, id, id, key, key, state, state, limit)
	return held, failure("list held", group, err)
}

const countHeldSQL = `
SELECT COALESCE(SUM(state = 'WAITING'), 0), COALESCE(SUM(state = 'BLOCKED'), 0), COALESCE(SUM(state = 'RETRY'), 0),
       COALESCE(SUM(state = 'DEAD'), 0), MIN(held_at), UTC_TIMESTAMP(6)
FROM {held} WHERE consumer_group = ?`

// CountHeld sums up a group's held events.
func (s *Store) CountHeld(ctx context.Context, group string) (store.HeldCounts, error) {
	var c store.HeldCounts
	var oldest, now moment
	_, err := s.pool().one(ctx, countHeldSQL, []any{group}, &c.Waiting, &c.Blocked, &c.Retry, &c.Dead, &oldest, &now)
	if !oldest.IsZero() {
		c.OldestAge = max(now.Sub(oldest.Time), 0)
	}
	return c, failure("count held", group, err)
}

// The groups are found by skipping through the index: there are few of them
// and very many rows.
const findConsumedSQL = "\nSELECT c.consumer_group, c.event_id, c.event_type, c.tenant_id, c.aggregate_type, c.aggregate_id, COALESCE(c.aggregate_version, 0)," +
	"\n       c.outcome, c.topic, c.`partition`, c.position, c.consumed_at, c.duplicates" + `
FROM (SELECT DISTINCT consumer_group FROM {consumed}) g
STRAIGHT_JOIN {consumed} c ON c.consumer_group = g.consumer_group AND c.event_id = ?
ORDER BY c.consumer_group`

// FindConsumed returns the groups' rows of one event id, by group.
func (s *Store) FindConsumed(ctx context.Context, eventID string) ([]store.Consumed, error) {
	found, err := collect(ctx, s.pool(), func(rows *sql.Rows) (c store.Consumed, err error) {
		e := &c.Event
		var consumedAt moment
		err = rows.Scan(&c.Group, &e.ID, &e.Type, &e.TenantID, &e.AggregateType, &e.AggregateID, &e.AggregateVersion,
			&c.Outcome, &c.Topic, &c.Partition, &c.Position, &consumedAt, &c.Duplicates)
		e.ID, c.ConsumedAt = decodeText(e.ID), consumedAt.Time
		return c, err
	}, findConsumedSQL, encodeText(eventID))
	return found, failure("find consumed", eventID, err)
}

const groupsSQL = `
SELECT DISTINCT consumer_group FROM {consumed}
UNION SELECT DISTINCT consumer_group FROM {held}
UNION SELECT DISTINCT consumer_group FROM {progress}
UNION SELECT DISTINCT consumer_group FROM {reader}
UNION SELECT DISTINCT consumer_group FROM {member}
ORDER BY consumer_group`

// Groups returns the names of all groups, sorted.
func (s *Store) Groups(ctx context.Context) ([]string, error) {
	groups, err := collect(ctx, s.pool(), scanOne[string], groupsSQL)
	return groups, failure("groups", "", err)
}
