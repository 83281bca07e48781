package postgres

import (
	"context"
	"math"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill/store"
)

// The event of a queue row. OFFSET 0 keeps the planner from turning the look-up
// by id into a merge with all events, which a queue that has just grown would
// pay for.
const withEvent = `CROSS JOIN LATERAL (SELECT * FROM {event} x WHERE x.id = p.id OFFSET 0) e`

// Cuts rows r, ordered by n and id, at $5 bytes. A large payload is kept out of
// line while the running sum is made over its size; only what is returned is read.
const measured = `
    SELECT r.*,
           sum(octet_length(payload)) OVER walk - octet_length(payload) AS before,
           lead(true, 1, false) OVER walk AS more`

// The lanes are walked one after the other in the hot index, each from its
// cursor, and the walk ends at the limit. That is one more than was asked for,
// so that more tells whether a row followed.
const fetchSQL = `
SELECT ` + rowColumns + `, more
FROM (` + measured + `
    FROM (
        SELECT w.n, hot.*
        FROM unnest($1::smallint[], $2::bigint[]) WITH ORDINALITY AS w (lane, after, n)
        CROSS JOIN LATERAL (
            SELECT ` + plainColumns + `
            FROM {pending} p
            ` + withEvent + `
            WHERE p.lane = w.lane AND p.id > w.after AND p.status = 'PENDING' AND NOT p.parked
              AND p.topic_hash <> ALL ($3::bigint[])
            ORDER BY p.id
            LIMIT $4
        ) hot
        LIMIT $4
    ) r
    WINDOW walk AS (ORDER BY r.n, r.id)
) p
WHERE before <= $5
ORDER BY n, id`

// Fetch returns hot rows.
func (s *Store) Fetch(ctx context.Context, request store.FetchRequest) (store.FetchResult, error) {
	lanes := make([]int16, len(request.Lanes))
	after := make([]int64, len(request.Lanes))
	for i, cursor := range request.Lanes {
		lanes[i], after[i] = int16(cursor.Lane), cursor.After
	}
	excluded := request.ExcludeTopics
	if excluded == nil {
		excluded = []int64{} // <> ALL (NULL) would hold for no row
	}
	return s.fetch(ctx, "fetch", "", request.Limit, s.sql(fetchSQL),
		lanes, after, excluded, oneMore(request.Limit), bound(request.MaxBytes))
}

// id + 0 is what the index over keys holds; see the migration.
const fetchKeySQL = `
SELECT ` + rowColumns + `, more
FROM (` + measured + `
    FROM (
        SELECT 0 AS n, ` + plainColumns + `
        FROM {pending} p
        ` + withEvent + `
        WHERE p.key_hash = $1 AND p.id + 0 > $2 AND p.lane = $6 AND NOT ($3 AND p.status = 'DEAD' AND NOT p.skip)
        ORDER BY p.id + 0
        LIMIT $4
    ) r
    WINDOW walk AS (ORDER BY r.n, r.id)
) p
WHERE before <= $5
ORDER BY n, id`

// FetchKey returns rows of one key.
func (s *Store) FetchKey(ctx context.Context, request store.KeyRequest) (store.FetchResult, error) {
	return s.fetch(ctx, "fetch key", strconv.FormatInt(request.KeyHash, 10), request.Limit, s.sql(fetchKeySQL),
		request.KeyHash, request.After, request.SkipDead, oneMore(request.Limit), bound(request.MaxBytes), int16(request.Lane))
}

func (s *Store) fetch(ctx context.Context, op, key string, limit int, sql string, args ...any) (store.FetchResult, error) {
	var result store.FetchResult
	err := s.read(ctx, func(rows pgx.Rows) error {
		for rows.Next() {
			var more bool
			row, err := scanRow(rows, &more)
			if err != nil {
				return err
			}
			if result.Full = more; limit > 0 && len(result.Rows) == limit {
				result.Full = true // this is the one that was not asked for
				break
			}
			result.Rows = append(result.Rows, row)
		}
		return rows.Err()
	}, sql, args...)
	if err != nil {
		return store.FetchResult{}, failure(op, key, err)
	}
	return result, nil
}

// A prepared plan may be from a time when the queue was empty and reading all
// of it was best; and compiling a walk over 64 lanes takes longer than walking.
const readSettingsSQL = `SELECT set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)`

// read runs one hot query with the settings for it. Both go in one trip and are,
// as all that is sent together, one transaction: no session keeps the settings.
func (s *Store) read(ctx context.Context, collect func(pgx.Rows) error, sql string, args ...any) error {
	batch := &pgx.Batch{}
	batch.Queue(s.sql(readSettingsSQL))
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

func bound(bytes int) int64 {
	if bytes <= 0 {
		return math.MaxInt64
	}
	return int64(bytes)
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
func (s *Store) FetchDue(ctx context.Context, lanes []int, limit int) ([]store.Row, error) {
	var due []store.Row
	err := s.read(ctx, func(rows pgx.Rows) (err error) {
		due, err = pgx.CollectRows(rows, func(pgx.CollectableRow) (store.Row, error) { return scanRow(rows) })
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
	err := s.read(ctx, func(rows pgx.Rows) (err error) {
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
