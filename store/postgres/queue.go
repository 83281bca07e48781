package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill/store"
)

// The lanes are walked one after the other in the hot index, each from its
// cursor. The lane is compared as a range and stands in ORDER BY, so that no other
// index gives the order: the primary key would look as good, and be read through
// all lanes for each of them. One row more is read than was asked for, to tell
// whether one followed.
const walkSQL = `
SELECT hot.id, hot.lane, hot.key_hash, hot.topic_hash
FROM unnest($1::smallint[], $2::bigint[], $3::bigint[]) AS w (lane, after, most)
CROSS JOIN LATERAL (
    SELECT p.id, p.lane, p.key_hash, p.topic_hash
    FROM {pending} p
    WHERE (p.lane, p.id) > (w.lane, w.after) AND p.lane <= w.lane AND p.status = 'PENDING' AND NOT p.parked
      AND p.topic_hash <> ALL ($4::bigint[])
    ORDER BY p.lane, p.id
    LIMIT w.most
) hot
LIMIT $5`

// See [store.QueueWalk].
const walkQueueSQL = `
SELECT p.id, p.lane, p.key_hash, p.topic_hash, p.status = 'PENDING' AND NOT p.parked
FROM {pending} p
WHERE p.id > $1
ORDER BY p.id
LIMIT $2`

// Walk finds hot rows.
func (s *Store) Walk(ctx context.Context, request store.WalkRequest) (store.WalkResult, error) {
	result, err := s.walk.Walk(request,
		func(after int64, limit int, add func(store.Ref, bool)) error {
			return s.walkQueue(ctx, after, limit, add)
		},
		func() (store.WalkResult, error) { return s.walkLanes(ctx, request) })
	return result, failure("walk", "", err)
}

func (s *Store) walkQueue(ctx context.Context, after int64, limit int, add func(ref store.Ref, hot bool)) error {
	return s.read(ctx, readSettingsSQL, func(rows pgx.Rows) error {
		var ref store.Ref
		var hot bool
		_, err := pgx.ForEachRow(rows, []any{&ref.ID, &ref.Lane, &ref.KeyHash, &ref.TopicHash, &hot}, func() error {
			add(ref, hot)
			return nil
		})
		return err
	}, s.sql(walkQueueSQL), after, limit)
}

func (s *Store) walkLanes(ctx context.Context, request store.WalkRequest) (store.WalkResult, error) {
	lanes := make([]int16, len(request.Lanes))
	after := make([]int64, len(request.Lanes))
	most := make([]*int64, len(request.Lanes))
	limits := make([]int64, len(request.Lanes))
	for i, cursor := range request.Lanes {
		lanes[i], after[i] = int16(cursor.Lane), cursor.After
		if limits[i] = int64(cursor.Limit); cursor.Limit > 0 {
			most[i] = &limits[i]
		}
	}
	excluded := request.ExcludeTopics
	if excluded == nil {
		excluded = []int64{} // <> ALL (NULL) would hold for no row
	}
	var result store.WalkResult
	err := s.read(ctx, readSettingsSQL, func(rows pgx.Rows) error {
		var ref store.Ref
		targets := []any{&ref.ID, &ref.Lane, &ref.KeyHash, &ref.TopicHash}
		for rows.Next() {
			if request.Limit > 0 && len(result.Refs) == request.Limit {
				result.Full = true // this is the one that was not asked for
				break
			}
			if err := rows.Scan(targets...); err != nil {
				return err
			}
			result.Refs = append(result.Refs, ref)
		}
		return rows.Err()
	}, s.sql(walkSQL), lanes, after, most, excluded, oneMore(request.Limit))
	return result, err
}

// A prepared plan may be from a time when the queue was empty and reading all
// of it was best; a bitmap has no order, so it reads all of a lane before the first
// row; and compiling a walk over 64 lanes takes longer than walking.
const readSettingsSQL = `SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true)`

// read runs one hot query with settings for it. Both go in one trip and are, as
// all that is sent together, one transaction: no session keeps the settings.
func (s *Store) read(ctx context.Context, settings string, collect func(pgx.Rows) error, sql string, args ...any) error {
	batch := &pgx.Batch{}
	batch.Queue(s.sql(settings))
	batch.Queue(sql, args...).Query(collect)
	return s.pool.SendBatch(ctx, batch).Close()
}

// oneMore returns a limit for LIMIT, where NULL means none.
func oneMore(limit int) *int64 {
	if limit <= 0 {
		return nil
	}
	return new(int64(limit) + 1)
}

// atMost returns a limit for LIMIT, where NULL means none.
func atMost(limit int) *int64 {
	if limit <= 0 {
		return nil
	}
	return new(int64(limit))
}

// The time is taken once: a function that changes with every row could not be
// looked up in an index.
const fetchDueSQL = `
SELECT ` + rowColumns + `
FROM (
    SELECT q.*
    FROM unnest($1::smallint[]) AS w (lane)
    CROSS JOIN LATERAL (
        SELECT p.* FROM {pending} p
        WHERE p.lane = w.lane AND p.next_retry_at <= statement_timestamp()
          AND EXISTS (SELECT FROM {event} x WHERE x.id = p.id)
        ORDER BY p.next_retry_at, p.id
        LIMIT $2
    ) q
    ORDER BY q.next_retry_at, q.id
    LIMIT $2
) p
CROSS JOIN LATERAL (
    SELECT event_id, tenant_id, aggregate_type, aggregate_id, aggregate_version, event_type, event_version, topic,
           event_key, ''::bytea AS payload, content_type, headers, occurred_at, created_at
    FROM {event} x WHERE x.id = p.id
) e
ORDER BY next_retry_at, p.id`

// FetchDue returns the rows whose next attempt is due.
func (s *Store) FetchDue(ctx context.Context, lanes []int, limit int) ([]*store.Row, error) {
	var due []*store.Row
	scan := newRowScan()
	err := s.read(ctx, readSettingsSQL, func(rows pgx.Rows) (err error) {
		due, err = pgx.CollectRows(rows, func(pgx.CollectableRow) (*store.Row, error) { return scan.row(rows) })
		return err
	}, s.sql(fetchDueSQL), smallints(lanes), atMost(limit))
	return due, failure("fetch due", "", err)
}

// One row of each key is found by skipping through the index.
const heldKeysSQL = `
WITH RECURSIVE held AS (
    SELECT w.lane, first.key_hash
    FROM unnest($1::smallint[]) AS w (lane)
    CROSS JOIN LATERAL (
        SELECT p.key_hash FROM {pending} p WHERE p.lane = w.lane AND p.parked ORDER BY p.key_hash LIMIT 1
    ) first
    UNION ALL
    SELECT held.lane, next.key_hash
    FROM held
    CROSS JOIN LATERAL (
        SELECT p.key_hash FROM {pending} p
        WHERE p.lane = held.lane AND p.parked AND p.key_hash > held.key_hash ORDER BY p.key_hash LIMIT 1
    ) next
)
SELECT held.lane, held.key_hash, one.topic_hash, one.topic
FROM held
CROSS JOIN LATERAL (
    SELECT p.topic_hash, e.topic
    FROM {pending} p JOIN {event} e ON e.id = p.id
    WHERE p.lane = held.lane AND p.key_hash = held.key_hash AND p.parked
    LIMIT 1
) one
ORDER BY held.lane, held.key_hash`

// HeldKeys returns each key that has a parked row.
func (s *Store) HeldKeys(ctx context.Context, lanes []int) ([]store.HeldKey, error) {
	var keys []store.HeldKey
	err := s.read(ctx, readSettingsSQL, func(rows pgx.Rows) (err error) {
		keys, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (key store.HeldKey, err error) {
			err = row.Scan(&key.Lane, &key.KeyHash, &key.TopicHash, &key.Topic)
			return key, err
		})
		return err
	}, s.sql(heldKeysSQL), smallints(lanes))
	return keys, failure("held keys", "", err)
}

// opened is the next number that will be given to a transaction, read after the
// snapshot was taken: age() of a number counts up to it. The snapshot's own
// upper end would not do, because running transactions may have numbers above
// it: it is one more than the greatest number that has *ended*.
const frontierSQL = `
SELECT COALESCE((SELECT max(id) FROM {event}), 0),
       pg_snapshot_xmax(s)::text::bigint + age(pg_snapshot_xmax(s)::xid) AS opened,
       pg_snapshot_xmin(s)::text::bigint AS closed
FROM pg_current_snapshot() s`

// Frontier returns transaction numbers: every id up to MaxID belongs to a
// transaction below Opened, and all transactions below Closed have ended.
func (s *Store) Frontier(ctx context.Context) (store.Frontier, error) {
	var f store.Frontier
	var opened, closed int64
	err := s.pool.QueryRow(ctx, s.sql(frontierSQL)).Scan(&f.MaxID, &opened, &closed)
	f.Opened, f.Closed = uint64(opened), uint64(closed)
	return f, failure("frontier", "", err)
}

func smallints(lanes []int) []int16 {
	converted := make([]int16, len(lanes))
	for i, lane := range lanes {
		converted[i] = int16(lane)
	}
	return converted
}
