package mysql

import (
	"context"
	"strconv"
	"strings"

	"github.com/waybillhq/waybill/store"
)

// A large payload is left to a second statement, so that no more of them travel
// than were asked for.
const maxInline = 32 << 10

const fetchColumns = queueColumns + `,
       ` + fetchedEventColumns + `, e.created_at, UTC_TIMESTAMP(6), LENGTH(e.payload)`

// fetchedEventColumns are eventColumns with a payload that is NULL where it is large.
const fetchedEventColumns = `e.event_id, e.tenant_id, e.aggregate_type, e.aggregate_id, COALESCE(e.aggregate_version, 0),
       e.event_type, e.event_version, e.topic, COALESCE(NULLIF(e.event_key, ''), e.aggregate_id),
       e.content_type, e.headers, CAST(e.occurred_at AS CHAR), IF(LENGTH(e.payload) <= 32768, e.payload, NULL)`

// The lanes are ranges of the hot index, walked in its order, and the walk ends
// at the limit. A queue row without an event does not use up the limit.
const fetchSQL = `
SELECT ` + fetchColumns + `
FROM {pending} p FORCE INDEX (hot) STRAIGHT_JOIN {event} e FORCE INDEX (PRIMARY) ON e.id = p.id
WHERE p.parked = 0 AND ({lanes}) AND p.topic_hash NOT IN ({topics})
ORDER BY p.lane, p.parked, p.id
LIMIT ?`

const laneRange = `p.lane = ? AND p.parked = 0 AND p.id > ?`

// Fetch returns hot rows, with one statement for each rising row of lanes.
func (s *Store) Fetch(ctx context.Context, request store.FetchRequest) (store.FetchResult, error) {
	var result store.FetchResult
	b := budget{rows: request.Limit, bytes: request.MaxBytes}
	for rest := request.Lanes; len(rest) > 0 && !result.Full; {
		n := 1
		for n < len(rest) && rest[n].Lane > rest[n-1].Lane {
			n++
		}
		text, args := s.fetchText(rest[:n], request.ExcludeTopics)
		rows, full, err := s.fetch(ctx, &b, text, args)
		if err != nil {
			return store.FetchResult{}, failure("fetch", "", err)
		}
		result.Rows, result.Full = append(result.Rows, rows...), full
		rest = rest[n:]
		if !full && len(rest) > 0 && b.spent() {
			// Whether the lanes that follow have more is for the next call to say.
			result.Full = true
		}
	}
	return result, nil
}

func (s *Store) fetchText(lanes []store.LaneCursor, excluded []int64) (string, []any) {
	args := make([]any, 0, 2*len(lanes)+len(excluded)+1)
	for _, cursor := range lanes {
		args = append(args, cursor.Lane, cursor.After)
	}
	topics := "NULL"
	text := s.sql(fetchSQL)
	if len(excluded) == 0 {
		text = strings.Replace(text, " AND p.topic_hash NOT IN ({topics})", "", 1)
	} else {
		topics = strings.Repeat("?, ", len(excluded)-1) + "?"
		for _, hash := range excluded {
			args = append(args, hash)
		}
	}
	ranges := "(" + strings.Repeat(laneRange+") OR (", len(lanes)-1) + laneRange + ")"
	return strings.NewReplacer("{lanes}", ranges, "{topics}", topics).Replace(text), args
}

const fetchKeySQL = `
SELECT ` + fetchColumns + `
FROM {pending} p FORCE INDEX (by_key) STRAIGHT_JOIN {event} e FORCE INDEX (PRIMARY) ON e.id = p.id
WHERE p.key_hash = ? AND p.id > ? AND p.lane = ? AND NOT (? AND p.status = 'DEAD' AND p.skip = 0)
ORDER BY p.id
LIMIT ?`

// FetchKey returns rows of one key.
func (s *Store) FetchKey(ctx context.Context, request store.KeyRequest) (store.FetchResult, error) {
	b := budget{rows: request.Limit, bytes: request.MaxBytes}
	rows, full, err := s.fetch(ctx, &b, s.sql(fetchKeySQL), []any{request.KeyHash, request.After, request.Lane, request.SkipDead})
	if err != nil {
		return store.FetchResult{}, failure("fetch key", strconv.FormatInt(request.KeyHash, 10), err)
	}
	return store.FetchResult{Rows: rows, Full: full}, nil
}

// budget is what may still be returned; 0 at the beginning means no bound.
type budget struct {
	rows, bytes int
	takenRows   int
	takenBytes  int
}

func (b *budget) spent() bool {
	return b.rows > 0 && b.takenRows >= b.rows || b.bytes > 0 && b.takenBytes > b.bytes
}

// limit is one more than may be taken, so that it tells whether a row followed.
func (b *budget) limit() int64 {
	if b.rows <= 0 {
		return 1 << 62
	}
	return int64(b.rows-b.takenRows) + 1
}

const largePayloadsSQL = `
SELECT e.id, e.payload FROM ` + listedIDs + ` STRAIGHT_JOIN {event} e FORCE INDEX (PRIMARY) ON e.id = w.id`

// fetch returns rows within the budget, and whether it cut them.
func (s *Store) fetch(ctx context.Context, b *budget, text string, args []any) (found []store.Row, full bool, err error) {
	rows, err := s.db.QueryContext(ctx, text, append(args, b.limit())...)
	if err != nil {
		return nil, false, err
	}
	var large []int64
	err = each(rows, func() error {
		if full = full || b.spent(); full {
			return nil
		}
		var queue queueScan
		var event eventScan
		var created, now moment
		var size int
		targets := append(queue.targets(), event.targets()...)
		if err := rows.Scan(append(targets, &created, &now, &size)...); err != nil {
			return err
		}
		row := queue.finish(created.Time, now.Time)
		row.Event = event.finish()
		if size > maxInline {
			large = append(large, row.ID)
		}
		b.takenRows++
		b.takenBytes += size
		found = append(found, row)
		return nil
	})
	if err == nil && len(large) > 0 {
		found, err = s.fillPayloads(ctx, found, large)
	}
	return found, full, err
}

// fillPayloads reads what was left out. A row whose event went away meanwhile
// is settled.
func (s *Store) fillPayloads(ctx context.Context, found []store.Row, large []int64) ([]store.Row, error) {
	payloads := make(map[int64][]byte, len(large))
	rows, err := s.pool().query(ctx, largePayloadsSQL, list(large))
	if err != nil {
		return nil, err
	}
	err = each(rows, func() error {
		var id int64
		var payload []byte
		err := rows.Scan(&id, &payload)
		payloads[id] = payload
		return err
	})
	if err != nil {
		return nil, err
	}
	isLarge := make(map[int64]bool, len(large))
	for _, id := range large {
		isLarge[id] = true
	}
	kept := found[:0]
	for _, row := range found {
		if isLarge[row.ID] {
			payload, there := payloads[row.ID]
			if !there {
				continue
			}
			row.Event.Data = payload
		}
		kept = append(kept, row)
	}
	return kept, nil
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

const frontierSQL = `
SELECT COALESCE((SELECT MAX(id) FROM {event}), 0), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`

// Frontier returns times of the database's clock. The server does not tell
// which ids running transactions have; that those of one window ago have ended
// is assumed, and the relay's sweep makes good for the others.
func (s *Store) Frontier(ctx context.Context) (store.Frontier, error) {
	var f store.Frontier
	_, err := s.pool().one(ctx, frontierSQL, nil, &f.MaxID, &f.Opened)
	f.Closed = f.Opened - uint64(micros(s.config.CommitWindow))
	return f, failure("frontier", "", err)
}

// atMost returns a limit for LIMIT.
func atMost(limit int) int64 {
	if limit <= 0 {
		return 1 << 62
	}
	return int64(limit)
}
