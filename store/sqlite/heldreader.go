package sqlite

import (
	"context"
	"time"

	"github.com/waybillhq/waybill/store"
)

// releasableKeysSQL asks about the blockers of a key once, not once for each
// of its events: thousands may wait behind one.
const releasableKeysSQL = `
WITH due (topic, event_key, seq) AS (
  SELECT topic, event_key, min(seq) FROM {held} INDEXED BY {held_state}
  WHERE consumer_group = ?1 AND state = 'RETRY' AND next_attempt_at <= {now}
  GROUP BY topic, event_key
), blocked (topic, event_key, seq) AS (
  SELECT topic, event_key, min(seq) FROM {held} INDEXED BY {held_state}
  WHERE consumer_group = ?1 AND state = 'BLOCKED'
  GROUP BY topic, event_key
)
SELECT topic, event_key, seq FROM due
UNION ALL
SELECT b.topic, b.event_key, b.seq FROM blocked AS b
WHERE NOT EXISTS (
  SELECT 1 FROM {held} AS h INDEXED BY {held_key}
  WHERE h.consumer_group = ?1 AND h.topic = b.topic AND h.event_key = b.event_key
    AND (h.state = 'RETRY' OR (?2 AND h.state = 'DEAD')))
ORDER BY 3
LIMIT ?3`

// ReleasableKeys returns keys that have something to do now.
func (s *Store) ReleasableKeys(ctx context.Context, group string, deadBlocks bool, limit int) ([]store.HeldKeyRef, error) {
	rows, err := s.query(ctx, releasableKeysSQL, group, deadBlocks, noLimit(limit))
	if err != nil {
		return nil, s.failed("releasable keys", group, err)
	}
	defer rows.Close()
	var keys []store.HeldKeyRef
	for rows.Next() {
		var key store.HeldKeyRef
		var seq int64
		if err := rows.Scan(&key.Topic, &key.Key, &seq); err != nil {
			return nil, s.failed("releasable keys", group, err)
		}
		keys = append(keys, key)
	}
	return keys, s.failed("releasable keys", group, rows.Err())
}

const nextRetrySQL = `
SELECT COALESCE(min(next_attempt_at), ''), {now}
FROM {held} INDEXED BY {held_state}
WHERE consumer_group = ?1 AND state = 'RETRY'`

// NextRetry returns the time until the earliest RETRY is due.
func (s *Store) NextRetry(ctx context.Context, group string) (time.Duration, bool, error) {
	var next, now string
	if err := s.scan(ctx, nextRetrySQL, []any{group}, &next, &now); err != nil {
		return 0, false, s.failed("next retry", group, err)
	}
	return until(next, now), next != "", nil
}

const listHeldSQL = `
SELECT ` + heldColumns + `
FROM {held}
WHERE consumer_group = ?1 AND seq > ?2 AND (?3 = '' OR event_id = ?3) AND (?4 = '' OR event_key = ?4) AND (?5 = '' OR state = ?5)
ORDER BY seq
LIMIT ?6`

// ListHeld returns held events by Seq.
func (s *Store) ListHeld(ctx context.Context, group string, filter store.HeldFilter) ([]store.Held, error) {
	limit := filter.Limit
	if limit <= 0 {
		limit = 100
	}
	rows, err := s.query(ctx, listHeldSQL, group, filter.After, filter.EventID, filter.Key, string(filter.State), limit)
	found, err := scanHeld(rows, err)
	return found, s.failed("list held", group, err)
}

const countHeldSQL = `
SELECT count(*) FILTER (WHERE state = 'WAITING'), count(*) FILTER (WHERE state = 'BLOCKED'),
       count(*) FILTER (WHERE state = 'RETRY'), count(*) FILTER (WHERE state = 'DEAD'),
       COALESCE(min(held_at), ''), {now}
FROM {held}
WHERE consumer_group = ?1`

// CountHeld sums up a group's held events.
func (s *Store) CountHeld(ctx context.Context, group string) (store.HeldCounts, error) {
	var counts store.HeldCounts
	var oldest, now string
	err := s.scan(ctx, countHeldSQL, []any{group}, &counts.Waiting, &counts.Blocked, &counts.Retry, &counts.Dead, &oldest, &now)
	if err != nil {
		return store.HeldCounts{}, s.failed("count held", group, err)
	}
	counts.OldestAge = max(-until(oldest, now), 0)
	return counts, nil
}

// There are few groups and many events: to search for the event in each group
// takes no longer than an index over event ids, which would be written each time.
const findConsumedSQL = `
WITH RECURSIVE consuming (name) AS (
  SELECT min(consumer_group) FROM {consumed}
  UNION ALL
  SELECT (SELECT min(consumer_group) FROM {consumed} WHERE consumer_group > name) FROM consuming WHERE name IS NOT NULL
)
SELECT consumer_group, event_id, event_type, tenant_id, aggregate_type, aggregate_id, COALESCE(aggregate_version, 0), outcome,
  topic, partition, position, consumed_at, duplicates
FROM consuming
CROSS JOIN {consumed} ON consumer_group = name AND event_id = ?1
ORDER BY consumer_group`

// FindConsumed returns the groups' rows of one event id, by group.
func (s *Store) FindConsumed(ctx context.Context, eventID string) ([]store.Consumed, error) {
	rows, err := s.query(ctx, findConsumedSQL, eventID)
	if err != nil {
		return nil, s.failed("find consumed", eventID, err)
	}
	defer rows.Close()
	var found []store.Consumed
	for rows.Next() {
		var c store.Consumed
		var consumedAt string
		if err := rows.Scan(&c.Group, &c.Event.ID, &c.Event.Type, &c.Event.TenantID, &c.Event.AggregateType, &c.Event.AggregateID,
			&c.Event.AggregateVersion, &c.Outcome, &c.Topic, &c.Partition, &c.Position, &consumedAt, &c.Duplicates); err != nil {
			return nil, s.failed("find consumed", eventID, err)
		}
		c.ConsumedAt = parseTime(consumedAt)
		found = append(found, c)
	}
	return found, s.failed("find consumed", eventID, rows.Err())
}

// groupsSQL jumps from group to group in the large tables' indexes.
const groupsSQL = `
WITH RECURSIVE consuming (name) AS (
  SELECT min(consumer_group) FROM {consumed}
  UNION ALL
  SELECT (SELECT min(consumer_group) FROM {consumed} WHERE consumer_group > name) FROM consuming WHERE name IS NOT NULL
), holding (name) AS (
  SELECT min(consumer_group) FROM {held}
  UNION ALL
  SELECT (SELECT min(consumer_group) FROM {held} WHERE consumer_group > name) FROM holding WHERE name IS NOT NULL
)
SELECT name FROM consuming WHERE name IS NOT NULL
UNION SELECT name FROM holding WHERE name IS NOT NULL
UNION SELECT consumer_group FROM {progress}
UNION SELECT consumer_group FROM {reader}
UNION SELECT consumer_group FROM {member}
ORDER BY 1`

// Groups returns the names of all groups, sorted.
func (s *Store) Groups(ctx context.Context) ([]string, error) {
	rows, err := s.query(ctx, groupsSQL)
	if err != nil {
		return nil, s.failed("groups", "", err)
	}
	defer rows.Close()
	var groups []string
	for rows.Next() {
		var group string
		if err := rows.Scan(&group); err != nil {
			return nil, s.failed("groups", "", err)
		}
		groups = append(groups, group)
	}
	return groups, s.failed("groups", "", rows.Err())
}
