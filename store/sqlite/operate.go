package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

const (
	operateFindSQL = `
SELECT e.id, COALESCE(p.status, ''), COALESCE(p.skip, 0), COALESCE(p.retry_count, 0)
FROM {event} AS e
LEFT JOIN {pending} AS p ON p.id = e.id
WHERE e.event_id = ?1`

	recordSQL = `
INSERT INTO {audit} (actor, verb, target, reason, before, after) VALUES (?1, ?2, ?3, ?4, ?5, ?6)`
)

// queueState is what the audit keeps of a queue row.
type queueState struct {
	id      int64
	status  store.Status // empty: not queued
	skip    bool
	retries int
}

func (q queueState) String() string {
	if q.status == "" {
		return ""
	}
	return fmt.Sprintf(`{"status":%q,"skip":%t,"retries":%d}`, q.status, q.skip, q.retries)
}

const dueSQL = `
UPDATE {pending} SET status = 'PENDING', skip = 0, retry_count = 0, next_retry_at = {now}, updated_at = {now}
WHERE id = ?1`

// RetryDead makes DEAD rows PENDING and due.
func (s *Store) RetryDead(ctx context.Context, action store.Action, ids []string) ([]store.Result, error) {
	return s.act(ctx, "retry dead", "dead retry", action, ids, func(w writing, q *queueState) (string, error) {
		if q.status != store.StatusDead {
			return store.OutcomeNotDead, nil
		}
		q.status, q.skip, q.retries = store.StatusPending, false, 0
		_, err := w.exec(ctx, dueSQL, q.id)
		return store.OutcomeRetried, err
	})
}

const skipDeadSQL = `
UPDATE {pending} SET skip = 1, next_retry_at = {now}, updated_at = {now}
WHERE id = ?1`

// SkipDead makes DEAD rows due with skip set.
func (s *Store) SkipDead(ctx context.Context, action store.Action, ids []string) ([]store.Result, error) {
	return s.act(ctx, "skip dead", "dead skip", action, ids, func(w writing, q *queueState) (string, error) {
		if q.status != store.StatusDead {
			return store.OutcomeNotDead, nil
		}
		q.skip = true
		_, err := w.exec(ctx, skipDeadSQL, q.id)
		return store.OutcomeSkipped, err
	})
}

const requeueSQL = `
INSERT INTO {pending} (id, lane, key_hash, topic_hash)
` + queueListed

// Requeue puts events into the queue again.
func (s *Store) Requeue(ctx context.Context, action store.Action, ids []string) ([]store.Result, error) {
	return s.act(ctx, "requeue", "requeue", action, ids, func(w writing, q *queueState) (string, error) {
		if q.status != "" {
			return store.OutcomeAlreadyPending, nil
		}
		q.status = store.StatusPending
		if _, err := w.exec(ctx, requeueSQL, jsonInts([]int64{q.id})); err != nil {
			return "", err
		}
		_, err := w.exec(ctx, dueSQL, q.id)
		return store.OutcomeQueued, err
	})
}

// act answers for each id, and records what change has changed. It holds the
// write lock from before the event is read, so no cleanup comes between.
func (s *Store) act(ctx context.Context, op, verb string, action store.Action, ids []string, change func(writing, *queueState) (string, error)) ([]store.Result, error) {
	if action.Reason == "" {
		return nil, &waybill.Error{Op: op, Err: store.ErrNoReason}
	}
	var results []store.Result
	err := s.write(ctx, op, false, func(w writing) error {
		results = make([]store.Result, 0, len(ids))
		for _, eventID := range ids {
			var found queueState
			err := w.scan(ctx, operateFindSQL, []any{eventID}, &found.id, &found.status, &found.skip, &found.retries)
			if errors.Is(err, sql.ErrNoRows) {
				results = append(results, store.Result{EventID: eventID, Outcome: store.OutcomeGone})
				continue
			}
			if err != nil {
				return err
			}
			changed := found
			outcome, err := change(w, &changed)
			if err != nil {
				return err
			}
			switch outcome {
			case store.OutcomeNotDead, store.OutcomeAlreadyPending:
			default:
				if _, err := w.exec(ctx, recordSQL, action.Actor, action.Named(verb), eventID, action.Reason, found.String(), changed.String()); err != nil {
					return err
				}
			}
			results = append(results, store.Result{EventID: eventID, Outcome: outcome})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

const auditSQL = `
SELECT at, actor, verb, target, reason, before, after FROM {audit} ORDER BY id DESC LIMIT ?1`

// Audit returns the newest entries first.
func (s *Store) Audit(ctx context.Context, limit int) ([]store.AuditEntry, error) {
	rows, err := s.query(ctx, auditSQL, noLimit(limit))
	if err != nil {
		return nil, s.failed("audit", "", err)
	}
	defer rows.Close()
	var entries []store.AuditEntry
	for rows.Next() {
		var entry store.AuditEntry
		var at string
		if err := rows.Scan(&at, &entry.Actor, &entry.Verb, &entry.Target, &entry.Reason, &entry.Before, &entry.After); err != nil {
			return nil, s.failed("audit", "", err)
		}
		entry.At = parseTime(at)
		entries = append(entries, entry)
	}
	return entries, s.failed("audit", "", rows.Err())
}
