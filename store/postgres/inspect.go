package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill/store"
)

const defaultLimit = 100

// Ids follow insertion closely, so the oldest event is among the lowest ids.
const countsSQL = `
SELECT count(*) FILTER (WHERE status = 'PENDING'),
       count(*) FILTER (WHERE status = 'PENDING' AND retry_count > 0),
       count(*) FILTER (WHERE status = 'DEAD'),
       count(*) FILTER (WHERE parked),
       (SELECT min(created_at)
        FROM (SELECT e.created_at FROM {pending} p JOIN {event} e ON e.id = p.id
              WHERE p.status = 'PENDING' ORDER BY p.id LIMIT 200) lowest),
       clock_timestamp()
FROM {pending}`

// Counts sums up the queue.
func (s *Store) Counts(ctx context.Context) (store.Counts, error) {
	var c store.Counts
	var oldest moment
	var now time.Time
	err := s.pool.QueryRow(ctx, s.sql(countsSQL), s.planned).Scan(&c.Pending, &c.Failed, &c.Dead, &c.Parked, &oldest, &now)
	if oldest.set {
		c.OldestAge = max(now.Sub(oldest.Time), 0)
	}
	return c, failure("counts", "", err)
}

const trackedColumns = eventColumns + `, created_at, clock_timestamp()`

// findSQL is completed with conditions, order and limit. A queue row's columns
// are NULL where there is none, hence the defaults.
const findSQL = `
SELECT e.id, ` + trackedColumns + `,
       p.id IS NOT NULL, COALESCE(lane, 0), COALESCE(key_hash, 0), COALESCE(topic_hash, 0), COALESCE(status, ''),
       COALESCE(parked, false), COALESCE(skip, false), COALESCE(retry_count, 0), next_retry_at,
       COALESCE(first_error, ''), COALESCE(last_error, ''),
       outcome, via, published_at, published_to, note
FROM {event} e
LEFT JOIN (SELECT id, lane, key_hash, topic_hash, status, parked, skip, retry_count, next_retry_at, first_error, last_error
           FROM {pending}) p ON p.id = e.id
LEFT JOIN (SELECT id, outcome, via, published_at, published_to, note FROM {receipt}) r ON r.id = e.id
WHERE true`

const findArchivedSQL = `
SELECT e.id, ` + trackedColumns + `,
       false, 0, 0::bigint, 0::bigint, '', false, false, 0, NULL::timestamptz, '', '',
       outcome, via, published_at, published_to, note
FROM {archive} e
WHERE NOT EXISTS (SELECT FROM {event} x WHERE x.event_id = e.event_id)`

// Find returns events by id. Given event ids, those that the outbox no longer
// has are looked up in the archive.
func (s *Store) Find(ctx context.Context, filter store.Filter) ([]store.Tracked, error) {
	limit := filter.Limit
	if limit <= 0 {
		limit = defaultLimit
	}
	found, err := s.find(ctx, s.sql(findSQL), &filter, limit, false)
	if err == nil && len(filter.EventIDs) > 0 && len(found) < limit && !filter.Unqueued {
		var archived []store.Tracked
		archived, err = s.find(ctx, s.sql(findArchivedSQL), &filter, limit-len(found), true)
		found = append(found, archived...)
	}
	return found, failure("find", "", err)
}

func (s *Store) find(ctx context.Context, text string, filter *store.Filter, limit int, archived bool) ([]store.Tracked, error) {
	where, args := conditions(filter, archived)
	order := " ORDER BY e.id"
	if filter.Newest {
		order = " ORDER BY e.id DESC"
	}
	args = append([]any{s.planned}, args...)
	rows, err := s.pool.Query(ctx, text+where+order+fmt.Sprintf(" LIMIT %d", limit), args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (store.Tracked, error) {
		tracked, err := scanTracked(row)
		tracked.Archived = archived
		return tracked, err
	})
}

// conditions returns what follows WHERE, with its parameters. Values are bound,
// never put into the text.
func conditions(f *store.Filter, archived bool) (string, []any) {
	var b strings.Builder
	var args []any
	and := func(condition string, value any) {
		args = append(args, value)
		b.WriteString(" AND " + strings.ReplaceAll(condition, "$", fmt.Sprintf("$%d", len(args))))
	}
	if len(f.EventIDs) > 0 {
		and("e.event_id = ANY ($::text[])", f.EventIDs)
	}
	if f.Key != "" {
		// In two halves, so that each has its index.
		and("(e.aggregate_id = $ OR e.event_key = $ AND e.event_key <> e.aggregate_id)", f.Key)
	}
	if f.TenantID != nil {
		and("e.tenant_id = $", *f.TenantID)
	}
	if f.Topic != "" {
		and("e.topic = $", f.Topic)
	}
	if f.Type != "" {
		and("e.event_type = $", f.Type)
	}
	if !f.From.IsZero() {
		and("e.created_at >= $", f.From)
	}
	if !f.Until.IsZero() {
		and("e.created_at < $", f.Until)
	}
	switch {
	case f.After != 0 && f.Newest:
		and("e.id < $", f.After)
	case !f.Newest:
		and("e.id > $", f.After)
	}
	switch {
	case f.Status == "":
	case archived:
		and("outcome = $", string(f.Status))
	case f.Status == store.StatusDead:
		b.WriteString(" AND p.status = 'DEAD'")
	case f.Status == store.StatusPending:
		b.WriteString(" AND (p.status = 'PENDING' OR p.id IS NULL AND r.id IS NULL)")
	default:
		and("p.id IS NULL AND outcome = $", string(f.Status))
	}
	if f.Unqueued {
		b.WriteString(" AND p.id IS NULL AND r.id IS NULL")
	}
	return b.String(), args
}

func scanTracked(row pgx.CollectableRow) (store.Tracked, error) {
	var t store.Tracked
	var event eventScan
	var queue queueScan
	var queued bool
	var created moment
	var now time.Time
	var outcome, via, publishedTo, note *string
	var publishedAt *time.Time
	targets := append([]any{&t.ID}, event.targets()...)
	targets = append(targets, &created, &now, &queued)
	targets = append(targets, queue.targets()[1:]...)
	targets = append(targets, &outcome, &via, &publishedAt, &publishedTo, &note)
	if err := row.Scan(targets...); err != nil {
		return t, err
	}
	t.Status, t.CreatedAt, t.Event = store.StatusPending, created.Time, event.finish()
	if outcome != nil {
		t.Status = store.Status(*outcome)
		t.Receipt = &store.Receipt{Outcome: t.Status, Via: *via, PublishedAt: publishedAt.UTC(), PublishedTo: *publishedTo, Note: *note}
	}
	if queued {
		row := queue.finish(created, now)
		row.ID, row.Event = t.ID, t.Event
		t.Status, t.Row = row.Status, row
	}
	return t, nil
}

const orphansSQL = `
SELECT ` + queueColumns + `, updated_at, clock_timestamp()
FROM {pending} p
WHERE NOT EXISTS (SELECT FROM {event} e WHERE e.id = p.id)
ORDER BY p.id
LIMIT $1`

// Orphans returns queue rows without an event.
func (s *Store) Orphans(ctx context.Context, limit int) ([]*store.Row, error) {
	rows, err := s.pool.Query(ctx, s.sql(orphansSQL), s.planned, atMost(limit))
	if err != nil {
		return nil, failure("orphans", "", err)
	}
	orphans, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*store.Row, error) {
		var queue queueScan
		var updated moment
		var now time.Time
		err := row.Scan(append(queue.targets(), &updated, &now)...)
		orphan := queue.finish(updated, now)
		orphan.Age = 0 // that of an event, and there is none
		return orphan, err
	})
	return orphans, failure("orphans", "", err)
}
