package mysql

import (
	"context"
	"strings"

	"github.com/waybillhq/waybill/store"
)

// The rows of one lane: a walk is as many of these as it has lanes, one after the
// other. The index hot has all of their columns.
const walkLaneSQL = `
(SELECT p.id, p.lane, p.key_hash, p.topic_hash
 FROM {pending} p FORCE INDEX (hot)
 WHERE p.lane = ? AND p.parked = 0 AND p.id > ? AND p.topic_hash NOT IN ({topics})
 ORDER BY p.id
 LIMIT ?)`

// See [store.QueueWalk].
const walkQueueSQL = `
SELECT p.id, p.lane, p.key_hash, p.topic_hash, p.parked
FROM {pending} p FORCE INDEX (PRIMARY)
WHERE p.id > ?
ORDER BY p.id
LIMIT ?`

// Walk finds hot rows.
func (s *Store) Walk(ctx context.Context, request store.WalkRequest) (store.WalkResult, error) {
	if len(request.Lanes) == 0 {
		return store.WalkResult{}, nil
	}
	result, err := s.walk.Walk(request,
		func(after int64, limit int, add func(store.Ref, bool)) error {
			return s.walkQueue(ctx, after, limit, add)
		},
		func() (store.WalkResult, error) { return s.walkLanes(ctx, request) })
	return result, failure("walk", "", err)
}

func (s *Store) walkQueue(ctx context.Context, after int64, limit int, add func(ref store.Ref, hot bool)) error {
	rows, err := s.pool().query(ctx, walkQueueSQL, after, limit)
	if err != nil {
		return err
	}
	var id, lane, key, topic, parked number
	targets := []any{&id, &lane, &key, &topic, &parked}
	return each(rows, func() error {
		err := rows.Scan(targets...)
		if err == nil {
			add(store.Ref{ID: id.n, Lane: int(lane.n), KeyHash: key.n, TopicHash: topic.n}, parked.n == 0)
		}
		return err
	})
}

func (s *Store) walkLanes(ctx context.Context, request store.WalkRequest) (store.WalkResult, error) {
	var result store.WalkResult
	text, args := s.walkText(request)
	rows, err := s.db.QueryContext(ctx, text, args...)
	if err != nil {
		return result, err
	}
	var id, lane, key, topic number
	targets := []any{&id, &lane, &key, &topic}
	err = each(rows, func() error {
		if request.Limit > 0 && len(result.Refs) == request.Limit {
			result.Full = true // this is the one that was not asked for
			return nil
		}
		err := rows.Scan(targets...)
		result.Refs = append(result.Refs, store.Ref{ID: id.n, Lane: int(lane.n), KeyHash: key.n, TopicHash: topic.n})
		return err
	})
	if err != nil {
		return store.WalkResult{}, err
	}
	return result, nil
}

func (s *Store) walkText(request store.WalkRequest) (string, []any) {
	one, topics := s.sql(walkLaneSQL), make([]any, len(request.ExcludeTopics))
	for i, hash := range request.ExcludeTopics {
		topics[i] = hash
	}
	if len(topics) == 0 {
		one = strings.Replace(one, " AND p.topic_hash NOT IN ({topics})", "", 1)
	} else {
		one = strings.Replace(one, "{topics}", strings.Repeat("?, ", len(topics)-1)+"?", 1)
	}
	most := oneMore(request.Limit)
	args := make([]any, 0, len(request.Lanes)*(3+len(topics))+1)
	for _, cursor := range request.Lanes {
		args = append(append(args, cursor.Lane, cursor.After), topics...)
		if cursor.Limit > 0 {
			args = append(args, min(int64(cursor.Limit), most))
		} else {
			args = append(args, most)
		}
	}
	return strings.Repeat(one+" UNION ALL ", len(request.Lanes)-1) + one + " LIMIT ?", append(args, most)
}

// oneMore is a limit that lets the answer tell whether a row followed.
func oneMore(limit int) int64 {
	if limit <= 0 {
		return 1 << 62
	}
	return int64(limit) + 1
}

// The rows are chosen in the index, and only those that are chosen are read. The
// lanes are written into the statement: joined with a list that is a table, both
// servers search by the lane alone, and go through all that waits in it.
const fetchDueSQL = `
SELECT ` + rowColumns + `
FROM (SELECT q.id
      FROM {pending} q FORCE INDEX (due)
      WHERE q.lane IN ({ids})
        AND q.next_retry_at <= UTC_TIMESTAMP(6)
        AND EXISTS (SELECT 1 FROM {event} x WHERE x.id = q.id)
      ORDER BY q.next_retry_at, q.id
      LIMIT ?) d
STRAIGHT_JOIN {pending} p FORCE INDEX (PRIMARY) ON p.id = d.id
STRAIGHT_JOIN {event} e FORCE INDEX (PRIMARY) ON e.id = d.id
ORDER BY p.next_retry_at, p.id`

// FetchDue returns the rows whose next attempt is due.
func (s *Store) FetchDue(ctx context.Context, lanes []int, limit int) ([]*store.Row, error) {
	if len(lanes) == 0 {
		return nil, nil
	}
	rows, err := s.db.QueryContext(ctx, withIDs(s.sql(fetchDueSQL), lanes), atMost(limit))
	if err != nil {
		return nil, failure("fetch due", "", err)
	}
	due, err := collectRows(rows, scanRow)
	return due, failure("fetch due", "", err)
}

const heldKeysSQL = `
SELECT p.lane, p.key_hash, MIN(p.topic_hash), MIN(e.topic)
FROM JSON_TABLE(?, '$[*]' COLUMNS (lane TINYINT PATH '$')) w
STRAIGHT_JOIN {pending} p FORCE INDEX (hot) ON p.lane = w.lane AND p.parked = 1
STRAIGHT_JOIN {event} e FORCE INDEX (PRIMARY) ON e.id = p.id
GROUP BY p.lane, p.key_hash
ORDER BY p.lane, p.key_hash`

// HeldKeys returns each key that has a parked row.
func (s *Store) HeldKeys(ctx context.Context, lanes []int) ([]store.HeldKey, error) {
	rows, err := s.pool().query(ctx, heldKeysSQL, list(lanes))
	if err != nil {
		return nil, failure("held keys", "", err)
	}
	var keys []store.HeldKey
	err = each(rows, func() error {
		var key store.HeldKey
		err := rows.Scan(&key.Lane, &key.KeyHash, &key.TopicHash, &key.Topic)
		keys = append(keys, key)
		return err
	})
	return keys, failure("held keys", "", err)
}

// atMost returns a limit for LIMIT.
func atMost(limit int) int64 {
	if limit <= 0 {
		return 1 << 62
	}
	return int64(limit)
}
