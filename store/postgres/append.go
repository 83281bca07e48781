package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill"
)

// pg_current_xact_id() gives the transaction its number before the first id is
// taken (a one-time filter, run before the rows); see Frontier.
//
// One array for each column lets one text serve any number of events. A single
// event, as most transactions have, goes without arrays: that saves the server and
// this side a fifth of the work.
const (
	insertColumns = `
INSERT INTO {event} (event_id, tenant_id, aggregate_type, aggregate_id, aggregate_version, event_type, event_version,
                     topic, event_key, payload, content_type, headers, occurred_at)`

	insertEvents = insertColumns + `
SELECT a.event_id, a.tenant_id, a.aggregate_type, a.aggregate_id, NULLIF(a.aggregate_version, 0), a.event_type, a.event_version,
       a.topic, a.event_key, a.payload, a.content_type, a.headers::json, a.occurred_at
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::integer[],
            $8::text[], $9::text[], $10::bytea[], $11::text[], $12::text[], $13::timestamptz[])
     AS a (event_id, tenant_id, aggregate_type, aggregate_id, aggregate_version, event_type, event_version,
           topic, event_key, payload, content_type, headers, occurred_at)
WHERE pg_current_xact_id() IS NOT NULL`

	insertEvent = insertColumns + `
SELECT $1::text, $2::text, $3::text, $4::text, NULLIF($5::bigint, 0), $6::text, $7::integer,
       $8::text, $9::text, $10::bytea, $11::text, $12::text::json, $13::timestamptz
WHERE pg_current_xact_id() IS NOT NULL`
)

const onDuplicateNothing = `
ON CONFLICT DO NOTHING`

const (
	appendSQL = insertEvents + onDuplicateNothing + `
RETURNING event_id`

	appendOneSQL = insertEvent + onDuplicateNothing + `
RETURNING event_id`
)

// Without a trigger the queue row is written by the same statement.
const appendQueuedSQL = `
WITH n AS (` + insertEvents + onDuplicateNothing + `
RETURNING id, event_id, topic, event_key, aggregate_id
), queued AS (` + queueNew + `)
SELECT event_id FROM n`

// With a table of heads, and no trigger, their heads too.
const appendHeadedSQL = `
WITH n AS (` + insertEvents + onDuplicateNothing + `
RETURNING *
), queued AS (` + queueNew + `
), headed AS (` + headNew + `)
SELECT event_id FROM n`

const queueNew = `
INSERT INTO {pending} (id, lane, key_hash, topic_hash)
SELECT n.id, {lane}, {key_hash}, {topic_hash} FROM n
{reset}`

// Append inserts the events with one statement. The transaction may be one of
// [Store.Begin], of pgx, or of a pgx pool.
func (s *Store) Append(ctx context.Context, tx pgx.Tx, events []waybill.Event) ([]error, error) {
	if len(events) == 0 {
		return nil, nil
	}
	columns, err := columnsOf(events)
	if err != nil {
		return nil, failure("append", "", err)
	}
	text, args := s.appendText(), columns.arrays()
	if len(events) == 1 && !s.noTrigger {
		text, args = s.sql(appendOneSQL), columns.first()
	}
	rows, err := tx.Query(ctx, text, args...)
	if err != nil {
		return nil, failure("append", keyOf(events), err)
	}
	inserted, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, failure("append", keyOf(events), err)
	}
	return duplicates(events, inserted), nil
}

func (s *Store) appendText() string {
	switch {
	case s.noTrigger && s.head:
		return s.sql(appendHeadedSQL)
	case s.noTrigger:
		return s.sql(appendQueuedSQL)
	}
	return s.sql(appendSQL)
}

const existingSQL = `
SELECT ` + eventColumns + `
FROM {event} e WHERE e.event_id = ANY ($1::text[])`

// Existing returns the stored events of these ids.
func (s *Store) Existing(ctx context.Context, tx pgx.Tx, ids []string) ([]waybill.Event, error) {
	rows, err := tx.Query(ctx, s.sql(existingSQL), ids)
	if err != nil {
		return nil, failure("existing", "", err)
	}
	events, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (waybill.Event, error) {
		var scan eventScan
		err := row.Scan(scan.targets()...)
		return scan.finish(), err
	})
	return events, failure("existing", "", err)
}

// duplicates answers for each event, given the ids that were inserted. Of equal
// ids in one call the first was.
func duplicates(events []waybill.Event, inserted []string) []error {
	results := make([]error, len(events))
	if len(inserted) == len(events) {
		return results
	}
	fresh := make(map[string]bool, len(inserted))
	for _, id := range inserted {
		fresh[id] = true
	}
	for i := range events {
		id := events[i].ID
		if !fresh[id] {
			results[i] = &waybill.Error{Op: "postgres: append", Key: id, Err: waybill.ErrDuplicateEvent}
		}
		delete(fresh, id)
	}
	return results
}

// keyOf names what a failed append was about.
func keyOf(events []waybill.Event) string {
	if len(events) == 1 {
		return events[0].ID
	}
	return ""
}
