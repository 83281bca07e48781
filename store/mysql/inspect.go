package mysql

import (
	"context"
	"database/sql"
	"strings"

	"github.com/waybillhq/waybill/store"
)

const defaultLimit = 100

const countsSQL = `
SELECT COALESCE(SUM(status = 'PENDING'), 0), COALESCE(SUM(status = 'PENDING' AND retry_count > 0), 0),
       COALESCE(SUM(status = 'DEAD'), 0), COALESCE(SUM(parked), 0)
FROM {pending}`

// Ids follow insertion closely, so the oldest event is among the lowest ids.
const oldestSQL = `
SELECT MIN(created_at), UTC_TIMESTAMP(6)
FROM (SELECT e.created_at FROM {pending} p STRAIGHT_JOIN {event} e FORCE INDEX (PRIMARY) ON e.id = p.id
      WHERE p.status = 'PENDING' ORDER BY p.id LIMIT 200) lowest`

// Counts sums up the queue.
func (s *Store) Counts(ctx context.Context) (store.Counts, error) {
	var c store.Counts
	var oldest, now moment
	_, err := s.pool().one(ctx, countsSQL, nil, &c.Pending, &c.Failed, &c.Dead, &c.Parked)
	if err == nil {
		_, err = s.pool().one(ctx, oldestSQL, nil, &oldest, &now)
	}
	if !oldest.IsZero() {
		c.OldestAge = max(now.Sub(oldest.Time), 0)
	}
	return c, failure("counts", "", err)
}

const trackedColumns = eventColumns + `, e.created_at, UTC_TIMESTAMP(6)`

// findSQL is completed with what it begins from, conditions, order and limit.
// A queue row's columns are NULL where there is none, hence the defaults.
const findSQL = `
SELECT e.id, ` + trackedColumns + `,
       p.id IS NOT NULL, COALESCE(p.lane, 0), COALESCE(p.key_hash, 0), COALESCE(p.topic_hash, 0), COALESCE(p.status, ''),
       COALESCE(p.parked, 0), COALESCE(p.skip, 0), COALESCE(p.retry_count, 0), p.next_retry_at,
       COALESCE(p.first_error, ''), COALESCE(p.last_error, ''),
       r.outcome, r.via, r.published_at, r.published_to, r.note
FROM `

const findJoinsSQL = `
LEFT JOIN {pending} p ON p.id = e.id
LEFT JOIN {receipt} r ON r.id = e.id
WHERE TRUE`

const findAllSQL = findSQL + `{event} e` + findJoinsSQL

const findIDsSQL = findSQL + listedEventIDs + ` STRAIGHT_JOIN {event} e FORCE INDEX (event_id) ON e.event_id = w.event_id COLLATE {collation}` + findJoinsSQL

// The ids of a key come from two indexes.
const findKeySQL = findSQL + `(
    SELECT id FROM {event} WHERE aggregate_id = ? UNION SELECT id FROM {event} WHERE event_key = ?
) k STRAIGHT_JOIN {event} e FORCE INDEX (PRIMARY) ON e.id = k.id` + findJoinsSQL

// DEAD events are few, and all of them are in the queue.
const findDeadSQL = findSQL + `{pending} p STRAIGHT_JOIN {event} e FORCE INDEX (PRIMARY) ON e.id = p.id
LEFT JOIN {receipt} r ON r.id = e.id
WHERE p.status = 'DEAD'`

const findArchivedSQL = `
SELECT e.id, ` + trackedColumns + `,
       0, 0, 0, 0, '', 0, 0, 0, NULL, '', '',
       e.outcome, e.via, e.published_at, e.published_to, e.note
FROM ` + listedEventIDs + ` STRAIGHT_JOIN {archive} e FORCE INDEX (event_id) ON e.event_id = w.event_id COLLATE {collation}
WHERE NOT EXISTS (SELECT 1 FROM {event} x WHERE x.event_id = e.event_id)`

// Find returns events by id. Given event ids, those that the outbox no longer
// has are looked up in the archive.
func (s *Store) Find(ctx context.Context, filter store.Filter) ([]store.Tracked, error) {
	limit := filter.Limit
	if limit <= 0 {
		limit = defaultLimit
	}
	template, args := findAllSQL, []any(nil)
	switch {
	case len(filter.EventIDs) > 0:
		template, args = findIDsSQL, []any{list(validTexts(distinct(filter.EventIDs)))}
	case filter.Key != "":
		template, args = findKeySQL, []any{filter.Key, filter.Key}
	case filter.Status == store.StatusDead:
		template = findDeadSQL
	}
	found, err := s.find(ctx, template, args, &filter, limit, false)
	if err == nil && len(filter.EventIDs) > 0 && len(found) < limit && !filter.Unqueued {
		var archived []store.Tracked
		archived, err = s.find(ctx, findArchivedSQL, args, &filter, limit-len(found), true)
		found = append(found, archived...)
	}
	return found, failure("find", "", err)
}

func (s *Store) find(ctx context.Context, template string, args []any, filter *store.Filter, limit int, archived bool) ([]store.Tracked, error) {
	where, more := conditions(filter, archived)
	order := " ORDER BY e.id"
	if filter.Newest {
		order = " ORDER BY e.id DESC"
	}
	args = append(append(append([]any(nil), args...), more...), limit)
	rows, err := s.db.QueryContext(ctx, s.sql(template)+where+order+" LIMIT ?", args...)
	if err != nil {
		return nil, err
	}
	return collectRows(rows, func(rows *sql.Rows) (store.Tracked, error) {
		tracked, err := scanTracked(rows)
		tracked.Archived = archived
		return tracked, err
	})
}

// conditions returns what follows WHERE, with its parameters. Values are bound,
// never put into the text.
func conditions(f *store.Filter, archived bool) (string, []any) {
	var b strings.Builder
	var args []any
	and := func(condition string, values ...any) {
		args = append(args, values...)
		b.WriteString(" AND " + condition)
	}
	if f.Key != "" {
		and("(e.aggregate_id = ? OR e.event_key = ?)", f.Key, f.Key)
	}
	if f.TenantID != nil {
		and("e.tenant_id = ?", *f.TenantID)
	}
	if f.Topic != "" {
		and("e.topic = ?", f.Topic)
	}
	if f.Type != "" {
		and("e.event_type = ?", f.Type)
	}
	if !f.From.IsZero() {
		and("e.created_at >= ?", moment{f.From})
	}
	if !f.Until.IsZero() {
		and("e.created_at < ?", moment{f.Until})
	}
	switch {
	case f.After != 0 && f.Newest:
		and("e.id < ?", f.After)
	case !f.Newest:
		and("e.id > ?", f.After)
	}
	switch {
	case f.Status == "":
	case archived:
		and("e.outcome = ?", string(f.Status))
	case f.Status == store.StatusDead:
		and("p.status = 'DEAD'")
	case f.Status == store.StatusPending:
		and("(p.status = 'PENDING' OR p.id IS NULL AND r.id IS NULL)")
	default:
		and("p.id IS NULL AND r.outcome = ?", string(f.Status))
	}
	if f.Unqueued {
		and("p.id IS NULL AND r.id IS NULL")
	}
	return b.String(), args
}

func distinct(texts []string) []string {
	seen := make(map[string]bool, len(texts))
	var once []string
	for _, text := range texts {
		if !seen[text] {
			seen[text] = true
			once = append(once, text)
		}
	}
	return once
}

func scanTracked(rows *sql.Rows) (store.Tracked, error) {
	var t store.Tracked
	var event eventScan
	var queue queueScan
	var queued bool
	var created, now, publishedAt moment
	var outcome, via, publishedTo, note *string
	targets := append([]any{&t.ID}, event.targets()...)
	targets = append(targets, &created, &now, &queued)
	targets = append(targets, queue.targets()[1:]...)
	targets = append(targets, &outcome, &via, &publishedAt, &publishedTo, &note)
	if err := rows.Scan(targets...); err != nil {
		return t, err
	}
	t.Status, t.CreatedAt, t.Event = store.StatusPending, created.Time, event.finish()
	if outcome != nil {
		t.Status = store.Status(*outcome)
		t.Receipt = &store.Receipt{Outcome: t.Status, Via: *via, PublishedAt: publishedAt.Time, PublishedTo: *publishedTo, Note: *note}
	}
	if queued {
		row := queue.finish(created.Time, now.Time)
		row.ID, row.Event = t.ID, t.Event
		t.Status, t.Row = row.Status, row
	}
	return t, nil
}

const orphansSQL = `
SELECT ` + queueColumns + `, p.updated_at, UTC_TIMESTAMP(6)
FROM {pending} p
WHERE NOT EXISTS (SELECT 1 FROM {event} e WHERE e.id = p.id)
ORDER BY p.id
LIMIT ?`

// Orphans returns queue rows without an event.
func (s *Store) Orphans(ctx context.Context, limit int) ([]*store.Row, error) {
	orphans, err := collect(ctx, s.pool(), func(rows *sql.Rows) (*store.Row, error) {
		var queue queueScan
		var updated, now moment
		err := rows.Scan(append(queue.targets(), &updated, &now)...)
		orphan := queue.finish(updated.Time, now.Time)
		orphan.Age = 0 // that of an event, and there is none
		return orphan, err
	}, orphansSQL, atMost(limit))
	return orphans, failure("orphans", "", err)
}
