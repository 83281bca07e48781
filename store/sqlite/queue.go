package sqlite

import (
	"context"
	"database/sql"
	"strconv"

	"github.com/waybillhq/waybill/store"
)

// fetchSQL walks the hot index once for each lane, in the order given, and so
// needs no sorting: CROSS JOIN keeps the planner from another order.
const fetchSQL = `
SELECT ` + rowColumns + `, e.created_at, {now},
  ` + eventColumns + `
FROM json_each(?1) AS l
CROSS JOIN {pending} AS p INDEXED BY {pending_hot} ON p.parked = 0 AND p.lane = l.value ->> 0 AND p.id > l.value ->> 1
CROSS JOIN {event} AS e ON e.id = p.id
WHERE p.status = 'PENDING' AND p.topic_hash NOT IN (SELECT value FROM json_each(?2))
LIMIT ?3`

// Fetch returns hot rows, lane by lane.
func (s *Store) Fetch(ctx context.Context, request store.FetchRequest) (store.FetchResult, error) {
	lanes := []byte{'['}
	for i, cursor := range request.Lanes {
		if i > 0 {
			lanes = append(lanes, ',')
		}
		lanes = append(lanes, '[')
		lanes = strconv.AppendInt(lanes, int64(cursor.Lane), 10)
		lanes = append(lanes, ',')
		lanes = strconv.AppendInt(lanes, cursor.After, 10)
		lanes = append(lanes, ']')
	}
	lanes = append(lanes, ']')
	rows, err := s.query(ctx, fetchSQL, string(lanes), jsonInts(request.ExcludeTopics), oneMore(request.Limit))
	return s.page("fetch", rows, err, request.Limit, request.MaxBytes)
}

const fetchKeySQL = `
SELECT ` + rowColumns + `, e.created_at, {now},
  ` + eventColumns + `
FROM {pending} AS p INDEXED BY {pending_key}
CROSS JOIN {event} AS e ON e.id = p.id
WHERE p.key_hash = ?1 AND p.id > ?2 AND p.lane = ?3 AND (NOT ?4 OR p.status <> 'DEAD' OR p.skip = 1)
ORDER BY p.id
LIMIT ?5`

// FetchKey returns rows of one key.
func (s *Store) FetchKey(ctx context.Context, request store.KeyRequest) (store.FetchResult, error) {
	rows, err := s.query(ctx, fetchKeySQL, request.KeyHash, request.After, request.Lane, request.SkipDead, oneMore(request.Limit))
	return s.page("fetch key", rows, err, request.Limit, request.MaxBytes)
}

// oneMore asks for a row more than the limit, which tells whether there are any.
func oneMore(limit int) int {
	if limit <= 0 {
		return -1
	}
	return limit + 1
}

// page reads rows until a bound is met.
func (s *Store) page(op string, rows *sql.Rows, err error, limit, maxBytes int) (store.FetchResult, error) {
	var result store.FetchResult
	if err != nil {
		return result, s.failed(op, "", err)
	}
	defer rows.Close()
	size := 0
	for rows.Next() {
		if limit > 0 && len(result.Rows) == limit || maxBytes > 0 && size > maxBytes {
			result.Full = true
			break
		}
		row, err := scanRow(rows)
		if err != nil {
			return store.FetchResult{}, s.failed(op, "", err)
		}
		size += len(row.Event.Data)
		result.Rows = append(result.Rows, row)
	}
	if err := rows.Err(); err != nil {
		return store.FetchResult{}, s.failed(op, "", err)
	}
	return result, nil
}

// fetchDueSQL sorts ids alone, not whole events.
const fetchDueSQL = `
SELECT ` + rowColumns + `, e.created_at, {now},
  ` + columnsWithoutData + `
FROM (
  SELECT d.id
  FROM json_each(?1) AS l
  CROSS JOIN {pending} AS d INDEXED BY {pending_due} ON d.lane = l.value AND d.next_retry_at <= {now}
  WHERE EXISTS (SELECT 1 FROM {event} AS e WHERE e.id = d.id)
  ORDER BY d.next_retry_at, d.id
  LIMIT ?2
) AS due
CROSS JOIN {pending} AS p ON p.id = due.id
CROSS JOIN {event} AS e ON e.id = p.id
ORDER BY p.next_retry_at, p.id`

// FetchDue returns the rows whose next attempt is due.
func (s *Store) FetchDue(ctx context.Context, lanes []int, limit int) ([]store.Row, error) {
	rows, err := s.query(ctx, fetchDueSQL, jsonInts(lanes), noLimit(limit))
	result, err := s.page("fetch due", rows, err, 0, 0)
	return result.Rows, err
}

func noLimit(limit int) int {
	if limit <= 0 {
		return -1
	}
	return limit
}

// heldKeysSQL relies on min: the other columns are those of the row that has it.
const heldKeysSQL = `
SELECT p.lane, p.key_hash, p.topic_hash, e.topic, min(p.id)
FROM json_each(?1) AS l
CROSS JOIN {pending} AS p INDEXED BY {pending_held} ON p.parked = 1 AND p.lane = l.value
CROSS JOIN {event} AS e ON e.id = p.id
GROUP BY p.lane, p.key_hash`

// HeldKeys returns each key that has a parked row.
func (s *Store) HeldKeys(ctx context.Context, lanes []int) ([]store.HeldKey, error) {
	rows, err := s.query(ctx, heldKeysSQL, jsonInts(lanes))
	if err != nil {
		return nil, s.failed("held keys", "", err)
	}
	defer rows.Close()
	var held []store.HeldKey
	for rows.Next() {
		var key store.HeldKey
		var first int64
		if err := rows.Scan(&key.Lane, &key.KeyHash, &key.TopicHash, &key.Topic, &first); err != nil {
			return nil, s.failed("held keys", "", err)
		}
		held = append(held, key)
	}
	return held, s.failed("held keys", "", rows.Err())
}

const frontierSQL = `
SELECT COALESCE(max(id), 0) FROM {event}`

// Frontier closes every id that it sees: SQLite has one writer at a time, so
// ids become visible in their order.
func (s *Store) Frontier(ctx context.Context) (store.Frontier, error) {
	var frontier store.Frontier
	err := s.scan(ctx, frontierSQL, nil, &frontier.MaxID)
	return frontier, s.failed("frontier", "", err)
}
