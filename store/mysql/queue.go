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

// Walk finds hot rows.
func (s *Store) Walk(ctx context.Context, request store.WalkRequest) (store.WalkResult, error) {
	var result store.WalkResult
	if len(request.Lanes) == 0 {
		return result, nil
	}
	text, args := s.walkText(request)
	rows, err := s.db.QueryContext(ctx, text, args...)
	if err != nil {
		return result, failure("walk", "", err)
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
		return store.WalkResult{}, failure("walk", "", err)
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

// The rows are chosen in the index, and only those that are chosen are read.
const fetchDueSQL = `
SELECT ` + rowColumns + `
FROM (SELECT q.id
      FROM {pending} q FORCE INDEX (due)
      WHERE q.lane IN (SELECT w.lane FROM JSON_TABLE(?, '$[*]' COLUMNS (lane TINYINT PATH '$')) w)
        AND q.next_retry_at <= UTC_TIMESTAMP(6)
        AND EXISTS (SELECT 1 FROM {event} x WHERE x.id = q.id)
      ORDER BY q.next_retry_at, q.id
      LIMIT ?) d
STRAIGHT_JOIN {pending} p FORCE INDEX (PRIMARY) ON p.id = d.id
STRAIGHT_JOIN {event} e FORCE INDEX (PRIMARY) ON e.id = d.id
ORDER BY p.next_retry_at, p.id`

// FetchDue returns the rows whose next attempt is due.
func (s *Store) FetchDue(ctx context.Context, lanes []int, limit int) ([]store.Row, error) {
	due, err := collect(ctx, s.pool(), scanRow, fetchDueSQL, list(lanes), atMost(limit))
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
