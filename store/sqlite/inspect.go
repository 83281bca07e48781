package sqlite

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/waybillhq/waybill/store"
)

// countsSQL takes the lowest PENDING id for the oldest: ids grow with time.
const countsSQL = `
SELECT count(*) FILTER (WHERE status = 'PENDING'),
       count(*) FILTER (WHERE status = 'PENDING' AND retry_count > 0),
       count(*) FILTER (WHERE status = 'DEAD'),
       count(*) FILTER (WHERE parked = 1),
       COALESCE((SELECT e.created_at FROM {pending} AS p CROSS JOIN {event} AS e ON e.id = p.id
                 WHERE p.status = 'PENDING' ORDER BY p.id LIMIT 1), ''),
       {now}
FROM {pending}`

// Counts sums up the queue.
func (s *Store) Counts(ctx context.Context) (store.Counts, error) {
	var counts store.Counts
	var oldest, now string
	err := s.scan(ctx, countsSQL, nil, &counts.Pending, &counts.Failed, &counts.Dead, &counts.Parked, &oldest, &now)
	if err != nil {
		return store.Counts{}, s.failed("counts", "", err)
	}
	counts.OldestAge = max(-until(oldest, now), 0)
	return counts, nil
}

const (
	findSQL = `
SELECT COALESCE(p.id, 0), COALESCE(p.lane, 0), COALESCE(p.key_hash, 0), COALESCE(p.topic_hash, 0), COALESCE(p.status, ''),
  COALESCE(p.parked, 0), COALESCE(p.skip, 0), COALESCE(p.retry_count, 0), COALESCE(p.next_retry_at, ''),
  COALESCE(p.first_error, ''), COALESCE(p.last_error, ''), e.created_at, {now},
  e.id, COALESCE(r.outcome, ''), COALESCE(r.via, ''), COALESCE(r.published_at, ''), COALESCE(r.published_to, ''), COALESCE(r.note, ''),
  ` + eventColumns + `
FROM {event} AS e
LEFT JOIN {pending} AS p ON p.id = e.id
LEFT JOIN {receipt} AS r ON r.id = e.id`

	// An archived event has neither queue row nor receipt; its receipt's columns
	// are its own.
	findArchivedSQL = `
SELECT 0, 0, 0, 0, '', 0, 0, 0, '', '', '', e.created_at, {now},
  e.id, e.outcome, e.via, e.published_at, e.published_to, e.note,
  ` + eventColumns + `
FROM {archive} AS e`
)

// Find returns events by id. Ids that the outbox does not have are looked up
// in the archive.
func (s *Store) Find(ctx context.Context, filter store.Filter) ([]store.Tracked, error) {
	limit := filter.Limit
	if limit <= 0 {
		limit = 100
	}
	found, err := s.find(ctx, findSQL, "COALESCE(p.status, r.outcome, 'PENDING')", filter, limit)
	if err != nil {
		return nil, s.failed("find", "", err)
	}
	if len(filter.EventIDs) == 0 || filter.Unqueued {
		return found, nil
	}
	archived, err := s.find(ctx, findArchivedSQL, "e.outcome", filter, limit)
	if err != nil {
		return nil, s.failed("find", "", err)
	}
	for _, old := range archived {
		if !slices.ContainsFunc(found, func(t store.Tracked) bool { return t.Event.ID == old.Event.ID }) {
			old.Archived = true
			found = append(found, old)
		}
	}
	slices.SortStableFunc(found, func(a, b store.Tracked) int {
		if filter.Newest {
			a, b = b, a
		}
		return cmp.Compare(a.ID, b.ID)
	})
	return found[:min(len(found), limit)], nil
}

func (s *Store) find(ctx context.Context, from, status string, filter store.Filter, limit int) ([]store.Tracked, error) {
	query, args := findText(from, status, filter)
	rows, err := s.reader.QueryContext(ctx, s.lexicon.Replace(query), append(args, limit)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []store.Tracked
	for rows.Next() {
		var tracked store.Tracked
		var row rowScan
		var event eventScan
		var receipt store.Receipt
		var publishedAt string
		targets := append(row.targets(), &tracked.ID, &receipt.Outcome, &receipt.Via, &publishedAt, &receipt.PublishedTo, &receipt.Note)
		if err := rows.Scan(append(targets, event.targets()...)...); err != nil {
			return nil, err
		}
		event.finish()
		tracked.Event = event.event
		tracked.CreatedAt = parseTime(row.createdAt)
		tracked.Status = store.StatusPending
		if receipt.Outcome != "" {
			receipt.PublishedAt = parseTime(publishedAt)
			tracked.Receipt = &receipt
			tracked.Status = receipt.Outcome
		}
		if row.row.ID != 0 {
			row.finish()
			row.row.Event = event.event
			tracked.Row = &row.row
			tracked.Status = row.row.Status
		}
		found = append(found, tracked)
	}
	return found, rows.Err()
}

// findText returns the statement for a filter, and its parameters but for the
// last, the limit. A condition that is not asked for is left out, so that each
// question has the plan that suits it.
func findText(from, status string, filter store.Filter) (string, []any) {
	var where []string
	var args []any
	add := func(condition string, values ...any) {
		where = append(where, condition)
		args = append(args, values...)
	}
	if len(filter.EventIDs) > 0 {
		add("e.event_id IN (SELECT value FROM json_each(?))", jsonTexts(filter.EventIDs))
	}
	if filter.Key != "" {
		add("(e.aggregate_id = ? OR (e.event_key = ? AND e.event_key <> e.aggregate_id))", filter.Key, filter.Key)
	}
	if filter.TenantID != nil {
		add("e.tenant_id = ?", *filter.TenantID)
	}
	if filter.Topic != "" {
		add("e.topic = ?", filter.Topic)
	}
	if filter.Type != "" {
		add("e.event_type = ?", filter.Type)
	}
	if filter.Status != "" {
		add(status+" = ?", string(filter.Status))
	}
	if filter.Status == store.StatusDead && from == findSQL {
		add("e.id IN (SELECT id FROM {pending} WHERE status = 'DEAD')") // few: found from the queue
	}
	if filter.Unqueued {
		add("p.id IS NULL AND r.id IS NULL")
	}
	if !filter.From.IsZero() {
		add("e.created_at >= ?", formatTime(filter.From))
	}
	if !filter.Until.IsZero() {
		add("e.created_at < ?", formatTime(filter.Until))
	}
	order := " ORDER BY e.id"
	switch {
	case !filter.Newest:
		add("e.id > ?", filter.After)
	case filter.After > 0:
		add("e.id < ?", filter.After)
		fallthrough
	default:
		order = " ORDER BY e.id DESC"
	}
	query := from
	if len(where) > 0 {
		query += "\nWHERE " + strings.Join(where, " AND ")
	}
	return query + order + " LIMIT ?", args
}

const orphansSQL = `
SELECT ` + rowColumns + `, '', {now}
FROM {pending} AS p
WHERE NOT EXISTS (SELECT 1 FROM {event} AS e WHERE e.id = p.id)
ORDER BY p.id
LIMIT ?1`

// Orphans returns queue rows whose event does not exist.
func (s *Store) Orphans(ctx context.Context, limit int) ([]*store.Row, error) {
	rows, err := s.query(ctx, orphansSQL, noLimit(limit))
	if err != nil {
		return nil, s.failed("orphans", "", err)
	}
	defer rows.Close()
	var orphans []*store.Row
	for rows.Next() {
		var row rowScan
		if err := rows.Scan(row.targets()...); err != nil {
			return nil, s.failed("orphans", "", err)
		}
		row.finish()
		orphans = append(orphans, &row.row)
	}
	return orphans, s.failed("orphans", "", rows.Err())
}
