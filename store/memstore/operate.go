package memstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/waybillhq/waybill/store"
)

// RetryDead makes DEAD rows PENDING and due.
func (s *Store) RetryDead(ctx context.Context, action store.Action, ids []string) ([]store.Result, error) {
	return s.changeDead(ctx, "retry dead", "dead retry", action, ids, func(row *queueRow, now time.Time) string {
		row.status, row.retries, row.skip, row.retryAt = store.StatusPending, 0, false, now
		return store.OutcomeRetried
	})
}

// SkipDead makes DEAD rows due with skip set.
func (s *Store) SkipDead(ctx context.Context, action store.Action, ids []string) ([]store.Result, error) {
	return s.changeDead(ctx, "skip dead", "dead skip", action, ids, func(row *queueRow, now time.Time) string {
		row.skip, row.retryAt = true, now
		return store.OutcomeSkipped
	})
}

func (s *Store) changeDead(ctx context.Context, op, verb string, action store.Action, ids []string, change func(*queueRow, time.Time) string) ([]store.Result, error) {
	return s.act(ctx, op, action, ids, func(eventID string, id int64, now time.Time) string {
		row, ok := s.outbox.queue[id]
		if !ok || row.status != store.StatusDead {
			return store.OutcomeNotDead
		}
		before := describe(row)
		outcome := change(&row, now)
		s.outbox.setQueue(row)
		s.record(action, verb, eventID, before, describe(row), now)
		return outcome
	})
}

// Requeue puts events into the queue again.
func (s *Store) Requeue(ctx context.Context, action store.Action, ids []string) ([]store.Result, error) {
	return s.act(ctx, "requeue", action, ids, func(eventID string, id int64, now time.Time) string {
		if _, ok := s.outbox.queue[id]; ok {
			return store.OutcomeAlreadyPending
		}
		row := newQueueRow(s.outbox.events[id])
		row.retryAt = now
		s.outbox.setQueue(row)
		s.record(action, "requeue", eventID, "", describe(row), now)
		return store.OutcomeQueued
	})
}

// act answers for each id; do is asked about events that exist.
func (s *Store) act(ctx context.Context, op string, action store.Action, ids []string, do func(eventID string, id int64, now time.Time) string) ([]store.Result, error) {
	if action.Reason == "" {
		return nil, failure(op, "", store.ErrNoReason)
	}
	var results []store.Result
	err := s.call(ctx, op, func() error {
		if err := s.needOutbox(); err != nil {
			return err
		}
		now := s.now()
		for _, eventID := range ids {
			result := store.Result{EventID: eventID, Outcome: store.OutcomeGone}
			if id, ok := s.outbox.byID[eventID]; ok {
				result.Outcome = do(eventID, id, now)
			}
			results = append(results, result)
		}
		return nil
	})
	return results, err
}

func describe(row queueRow) string {
	return fmt.Sprintf(`{"status":%q,"skip":%t,"retries":%d}`, row.status, row.skip, row.retries)
}

func (s *Store) record(action store.Action, verb, target, before, after string, now time.Time) {
	s.outbox.audit = append(s.outbox.audit, store.AuditEntry{
		At: now, Actor: action.Actor, Verb: action.Named(verb), Target: target, Reason: action.Reason, Before: before, After: after,
	})
}

// Audit returns the newest entries first.
func (s *Store) Audit(ctx context.Context, limit int) ([]store.AuditEntry, error) {
	var entries []store.AuditEntry
	err := s.call(ctx, "audit", func() error {
		if !s.made {
			return store.ErrNoSchema
		}
		entries = slices.Clone(s.outbox.audit)
		slices.Reverse(entries)
		if limit > 0 && len(entries) > limit {
			entries = entries[:limit]
		}
		return nil
	})
	return entries, err
}
