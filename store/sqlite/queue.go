package sqlite

import (
	"context"
	"math"
	"strconv"

	"github.com/waybillhq/waybill/store"
)

// walkSQL walks the hot index once for each lane, in the order given, and so
// needs no sorting: CROSS JOIN keeps the planner from another order. The limit is
// the same for all lanes, because a subquery cannot have one that differs.
const walkSQL = `
SELECT p.id, p.lane, p.key_hash, p.topic_hash
FROM json_each(?1) AS l
CROSS JOIN {pending} AS p ON p.id IN (
  SELECT q.id FROM {pending} AS q INDEXED BY {pending_hot}
  WHERE q.parked = 0 AND q.lane = l.value ->> 0 AND q.id > l.value ->> 1
    AND q.status = 'PENDING' AND q.topic_hash NOT IN (SELECT value FROM json_each(?2))
  ORDER BY q.id
  LIMIT ?3)`

// Walk finds hot rows, lane by lane.
func (s *Store) Walk(ctx context.Context, request store.WalkRequest) (store.WalkResult, error) {
	var result store.WalkResult
	most, limits := 0, make(map[int]int, len(request.Lanes))
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
		limits[cursor.Lane] = noLimit(cursor.Limit)
		if most = max(most, cursor.Limit); cursor.Limit == 0 {
			most = math.MaxInt
		}
	}
	lanes = append(lanes, ']')
	if request.Limit > 0 {
		most = min(most, request.Limit+1)
	}
	rows, err := s.query(ctx, walkSQL, string(lanes), jsonInts(request.ExcludeTopics), most)
	if err != nil {
		return result, s.failed("walk", "", err)
	}
	defer rows.Close()
	for rows.Next() {
		var ref store.Ref
		if err := rows.Scan(&ref.ID, &ref.Lane, &ref.KeyHash, &ref.TopicHash); err != nil {
			return store.WalkResult{}, s.failed("walk", "", err)
		}
		if limits[ref.Lane] == 0 {
			continue
		}
		if request.Limit > 0 && len(result.Refs) == request.Limit {
			result.Full = true
			break
		}
		limits[ref.Lane]--
		result.Refs = append(result.Refs, ref)
	}
	if err := rows.Err(); err != nil {
		return store.WalkResult{}, s.failed("walk", "", err)
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
func (s *Store) FetchDue(ctx context.Context, lanes []int, limit int) ([]*store.Row, error) {
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
