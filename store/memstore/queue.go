package memstore

import (
	"context"
	"slices"
	"time"

	"github.com/waybillhq/waybill/store"
)

// Walk finds hot rows, lane by lane.
func (s *Store) Walk(ctx context.Context, request store.WalkRequest) (store.WalkResult, error) {
	var result store.WalkResult
	err := s.call(ctx, "walk", func() error {
		if err := s.needOutbox(); err != nil {
			return err
		}
		for _, cursor := range request.Lanes {
			n := 0
			for id := range s.outbox.hot[cursor.Lane].after(cursor.After) {
				row := s.outbox.queue[id]
				if slices.Contains(request.ExcludeTopics, row.topicHash) {
					continue
				}
				if cursor.Limit > 0 && n == cursor.Limit {
					break
				}
				if request.Limit > 0 && len(result.Refs) == request.Limit {
					result.Full = true
					return nil
				}
				result.Refs = append(result.Refs, store.Ref{ID: id, Lane: row.lane, KeyHash: row.keyHash, TopicHash: row.topicHash})
				n++
			}
		}
		return nil
	})
	return result, err
}

// Load returns the rows of some ids.
func (s *Store) Load(ctx context.Context, ids []int64, maxBytes int) (store.FetchResult, error) {
	var result store.FetchResult
	err := s.call(ctx, "load", func() error {
		if err := s.needOutbox(); err != nil {
			return err
		}
		page := page{store: s, now: s.now(), maxBytes: maxBytes}
		for _, id := range ids {
			if row, queued := s.outbox.queue[id]; queued && !page.add(row) {
				break
			}
		}
		result = page.result
		return nil
	})
	return result, err
}

// FetchKey returns rows of one key.
func (s *Store) FetchKey(ctx context.Context, request store.KeyRequest) (store.FetchResult, error) {
	var result store.FetchResult
	err := s.call(ctx, "fetch key", func() error {
		if err := s.needOutbox(); err != nil {
			return err
		}
		page := page{store: s, now: s.now(), limit: request.Limit, maxBytes: request.MaxBytes}
		if key := s.outbox.keys[request.KeyHash]; key != nil {
			for id := range key.after(request.After) {
				row := s.outbox.queue[id]
				if row.lane != request.Lane || request.SkipDead && row.status == store.StatusDead && !row.skip {
					continue
				}
				if !page.add(row) {
					break
				}
			}
		}
		result = page.result
		return nil
	})
	return result, err
}

// page collects rows until a bound is met.
type page struct {
	store    *Store
	now      time.Time
	limit    int
	maxBytes int
	bytes    int
	result   store.FetchResult
}

// add takes a row, and reports false when the page is full.
func (p *page) add(q queueRow) bool {
	if p.limit > 0 && len(p.result.Rows) >= p.limit || p.maxBytes > 0 && p.bytes > p.maxBytes {
		p.result.Full = true
		return false
	}
	if _, ok := p.store.outbox.events[q.id]; !ok {
		return true // an orphan is not the relay's
	}
	row := p.store.outbox.row(q, p.now)
	p.bytes += len(row.Event.Data)
	p.result.Rows = append(p.result.Rows, row)
	return true
}

// FetchDue returns the rows whose next attempt is due.
func (s *Store) FetchDue(ctx context.Context, lanes []int, limit int) ([]*store.Row, error) {
	var rows []*store.Row
	err := s.call(ctx, "fetch due", func() error {
		if err := s.needOutbox(); err != nil {
			return err
		}
		now := s.now()
		var due []queueRow
		for _, lane := range lanes {
			for id := range s.outbox.retry[lane] {
				row := s.outbox.queue[id]
				if _, ok := s.outbox.events[id]; ok && !row.retryAt.After(now) {
					due = append(due, row)
				}
			}
		}
		slices.SortFunc(due, func(a, b queueRow) int {
			if c := a.retryAt.Compare(b.retryAt); c != 0 {
				return c
			}
			return int(a.id - b.id)
		})
		if limit > 0 && len(due) > limit {
			due = due[:limit]
		}
		for _, row := range due {
			rows = append(rows, s.outbox.row(row, now))
		}
		return nil
	})
	return rows, err
}

// HeldKeys returns each key that has a parked row.
func (s *Store) HeldKeys(ctx context.Context, lanes []int) ([]store.HeldKey, error) {
	var held []store.HeldKey
	err := s.call(ctx, "held keys", func() error {
		if err := s.needOutbox(); err != nil {
			return err
		}
		for _, lane := range lanes {
			for keyHash := range s.outbox.parked[lane] {
				for id := range s.outbox.keys[keyHash].after(0) {
					event, ok := s.outbox.events[id]
					row := s.outbox.queue[id]
					if ok && row.parked {
						held = append(held, store.HeldKey{Lane: lane, KeyHash: keyHash, TopicHash: row.topicHash, Topic: event.event.Topic})
						break
					}
				}
			}
		}
		return nil
	})
	return held, err
}

// Frontier numbers transactions by their first insert of an event.
func (s *Store) Frontier(ctx context.Context) (store.Frontier, error) {
	var frontier store.Frontier
	err := s.call(ctx, "frontier", func() error {
		if err := s.needOutbox(); err != nil {
			return err
		}
		for id := range s.outbox.ids.before(s.outbox.lastID + 1) {
			frontier.MaxID = id
			break
		}
		frontier.Opened = s.lastTx + 1
		frontier.Closed = s.lastTx + 1
		for number := range s.writers {
			frontier.Closed = min(frontier.Closed, number)
		}
		return nil
	})
	return frontier, err
}

// Apply makes the changes if the guard's leases hold.
func (s *Store) Apply(ctx context.Context, guard store.Guard, changes store.Changes) error {
	return s.call(ctx, "apply", func() error {
		if err := s.needOutbox(); err != nil {
			return err
		}
		now := s.now()
		if lost := s.lostLanes(guard, now); len(lost) > 0 {
			return &store.StaleError{Lanes: lost}
		}
		for _, change := range changes.Settled {
			s.settle(change, changes.Forget, now)
		}
		for _, change := range changes.Failed {
			s.fail(change, now)
		}
		for _, id := range changes.Parked {
			if row, ok := s.outbox.queue[id]; ok {
				row.parked = true
				s.outbox.setQueue(row)
			}
		}
		return nil
	})
}

// strange reports whether another event has the id by now.
func (s *Store) strange(change store.Change) bool {
	event, ok := s.outbox.events[change.ID]
	return ok && event.event.ID != change.EventID
}

func (s *Store) settle(change store.SettledChange, forget bool, now time.Time) {
	if _, ok := s.outbox.queue[change.ID]; !ok || s.strange(change.Change) {
		return
	}
	s.outbox.deleteQueue(change.ID)
	if forget {
		s.outbox.deleteEvent(change.ID)
		delete(s.outbox.receipts, change.ID)
		return
	}
	s.outbox.receipts[change.ID] = receiptRow{change.ID, change.EventID, store.Receipt{
		Outcome: change.Outcome, Via: change.Via, PublishedAt: now, PublishedTo: change.PublishedTo, Note: change.Note,
	}}
}

func (s *Store) fail(change store.FailedChange, now time.Time) {
	row, ok := s.outbox.queue[change.ID]
	if !ok || s.strange(change.Change) {
		return
	}
	row.parked = true
	row.retries = change.Retries
	row.lastErr = change.Error
	if row.firstErr == "" {
		row.firstErr = change.Error
	}
	if change.Dead {
		row.status, row.retryAt = store.StatusDead, time.Time{}
	} else {
		row.status, row.retryAt = store.StatusPending, now.Add(change.RetryIn)
	}
	s.outbox.setQueue(row)
}
