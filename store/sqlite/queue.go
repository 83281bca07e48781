package sqlite

import (
	"context"
	"database/sql"
	"errors"
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

func scanRow(rows *sql.Rows) (store.Row, error) {
	var row rowScan
	var event eventScan
	if err := rows.Scan(append(row.targets(), event.targets()...)...); err != nil {
		return store.Row{}, err
	}
	row.finish()
	event.finish()
	row.row.Event = event.event
	return row.row, nil
}

// fetchDueSQL sorts ids alone, not whole events.
const fetchDueSQL = `
SELECT ` + rowColumns + `, e.created_at, {now},
  ` + eventColumns + `
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

const (
	guardSQL = `
SELECT g.value ->> 0
FROM json_each(?2) AS g
LEFT JOIN {lease} AS l ON l.lane = g.value ->> 0
WHERE NOT COALESCE(l.owner = ?1 AND l.fence = g.value ->> 1 AND l.expires_at > {now}, 0)`

	settleReceiptSQL = `
INSERT OR REPLACE INTO {receipt} (id, event_id, outcome, via, published_at, published_to, note)
SELECT p.id, c.value ->> 1, c.value ->> 2, c.value ->> 3, {now}, c.value ->> 4, c.value ->> 5
FROM json_each(?1) AS c
CROSS JOIN {pending} AS p ON p.id = c.value ->> 0`

	forgetReceiptSQL = `
DELETE FROM {receipt}
WHERE id IN (SELECT p.id FROM json_each(?1) AS c CROSS JOIN {pending} AS p ON p.id = c.value ->> 0)`

	forgetEventSQL = `
DELETE FROM {event}
WHERE id IN (SELECT p.id FROM json_each(?1) AS c CROSS JOIN {pending} AS p ON p.id = c.value ->> 0)`

	settleSQL = `
DELETE FROM {pending} WHERE id IN (SELECT value ->> 0 FROM json_each(?1))`

	failSQL = `
UPDATE {pending} AS p
SET status = CASE WHEN c.value ->> 1 THEN 'DEAD' ELSE 'PENDING' END,
    parked = 1,
    retry_count = c.value ->> 2,
    next_retry_at = CASE WHEN c.value ->> 1 THEN NULL ELSE strftime({iso}, 'now', c.value ->> 3) END,
    first_error = CASE p.first_error WHEN '' THEN c.value ->> 4 ELSE p.first_error END,
    last_error = c.value ->> 4,
    updated_at = {now}
FROM json_each(?1) AS c
WHERE p.id = c.value ->> 0`

	parkSQL = `
UPDATE {pending} SET parked = 1, updated_at = {now}
WHERE parked = 0 AND id IN (SELECT value FROM json_each(?1))`
)

// Apply makes the changes if the guard's leases hold. BEGIN IMMEDIATE stands
// for the lock on the leases: until the end nobody else writes.
func (s *Store) Apply(ctx context.Context, guard store.Guard, changes store.Changes) error {
	return s.write(ctx, "apply", true, func(w writing) error {
		if err := w.compare(ctx, guard); err != nil {
			return err
		}
		if len(changes.Settled)+len(changes.Failed)+len(changes.Parked) == 0 {
			_, err := w.exec(ctx, pingSQL)
			return err
		}
		if len(changes.Settled) > 0 {
			steps := []string{settleReceiptSQL, settleSQL}
			if changes.Forget {
				steps = []string{forgetReceiptSQL, forgetEventSQL, settleSQL}
			}
			settled := jsonSettled(changes.Settled)
			for _, step := range steps {
				if _, err := w.exec(ctx, step, settled); err != nil {
					return err
				}
			}
		}
		if len(changes.Failed) > 0 {
			if _, err := w.exec(ctx, failSQL, jsonFailed(changes.Failed)); err != nil {
				return err
			}
		}
		if len(changes.Parked) > 0 {
			if _, err := w.exec(ctx, parkSQL, jsonInts(changes.Parked)); err != nil {
				return err
			}
		}
		return nil
	})
}

func (w writing) compare(ctx context.Context, guard store.Guard) error {
	if len(guard.Lanes) == 0 {
		return nil
	}
	rows, err := w.query(ctx, guardSQL, guard.Owner, jsonLeases(guard.Lanes))
	if err != nil {
		return err
	}
	var lost []int
	for rows.Next() {
		var lane int
		if err := rows.Scan(&lane); err != nil {
			return errors.Join(err, rows.Close())
		}
		lost = append(lost, lane)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	if len(lost) > 0 {
		return &store.StaleError{Lanes: lost}
	}
	return nil
}

func jsonLeases(leases []store.Lease) string {
	text := []byte{'['}
	for i, lease := range leases {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, '[')
		text = strconv.AppendInt(text, int64(lease.Lane), 10)
		text = append(text, ',')
		text = strconv.AppendInt(text, lease.Fence, 10)
		text = append(text, ']')
	}
	return string(append(text, ']'))
}

func jsonSettled(changes []store.SettledChange) string {
	text := make([]byte, 0, 128*len(changes))
	text = append(text, '[')
	for i := range changes {
		c := &changes[i]
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, '[')
		text = strconv.AppendInt(text, c.ID, 10)
		for _, value := range [...]string{c.EventID, string(c.Outcome), c.Via, c.PublishedTo, c.Note} {
			text = append(text, ',')
			text = appendJSONText(text, value)
		}
		text = append(text, ']')
	}
	return string(append(text, ']'))
}

func jsonFailed(changes []store.FailedChange) string {
	text := []byte{'['}
	for i := range changes {
		c := &changes[i]
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, '[')
		text = strconv.AppendInt(text, c.ID, 10)
		text = append(text, ',')
		text = strconv.AppendBool(text, c.Dead)
		text = append(text, ',')
		text = strconv.AppendInt(text, int64(c.Retries), 10)
		text = append(text, ',')
		text = appendJSONText(text, after(c.RetryIn))
		text = append(text, ',')
		text = appendJSONText(text, c.Error)
		text = append(text, ']')
	}
	return string(append(text, ']'))
}
