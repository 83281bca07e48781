package memstore

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/waybillhq/waybill/store"
)

const defaultLimit = 100

// Counts sums up the queue.
func (s *Store) Counts(ctx context.Context) (store.Counts, error) {
	var counts store.Counts
	err := s.call(ctx, "counts", func() error {
		if err := s.needOutbox(); err != nil {
			return err
		}
		now := s.now()
		for id, row := range s.outbox.queue {
			if row.parked {
				counts.Parked++
			}
			if row.status == store.StatusDead {
				counts.Dead++
				continue
			}
			counts.Pending++
			if row.retries > 0 {
				counts.Failed++
			}
			if event, ok := s.outbox.events[id]; ok {
				counts.OldestAge = max(counts.OldestAge, now.Sub(event.createdAt))
			}
		}
		return nil
	})
	return counts, err
}

// Find returns events by id. Ids that the outbox does not have are looked up
// in the archive.
func (s *Store) Find(ctx context.Context, filter store.Filter) ([]store.Tracked, error) {
	var found []store.Tracked
	err := s.call(ctx, "find", func() error {
		if err := s.needOutbox(); err != nil {
			return err
		}
		now := s.now()
		limit := filter.Limit
		if limit <= 0 {
			limit = defaultLimit
		}
		ids := s.outbox.ids.after(filter.After)
		if filter.Newest {
			upper := filter.After
			if upper == 0 {
				upper = math.MaxInt64
			}
			ids = s.outbox.ids.before(upper)
		}
		for id := range ids {
			tracked := s.tracked(id, now)
			if matches(&tracked, &filter) {
				if found = append(found, tracked); len(found) == limit {
					break
				}
			}
		}
		found = append(found, s.archived(&filter, limit-len(found))...)
		return nil
	})
	return found, err
}

func (s *Store) archived(filter *store.Filter, limit int) []store.Tracked {
	var found []store.Tracked
	for _, id := range filter.EventIDs {
		_, present := s.outbox.byID[id]
		tracked, ok := s.outbox.archive[id]
		if !present && ok && len(found) < limit && matches(&tracked, filter) {
			tracked.Event = cloneEvent(tracked.Event)
			found = append(found, tracked)
		}
	}
	return found
}

func (s *Store) tracked(id int64, now time.Time) store.Tracked {
	event := s.outbox.events[id]
	tracked := store.Tracked{ID: id, Status: store.StatusPending, CreatedAt: event.createdAt, Event: cloneEvent(event.event)}
	if receipt, ok := s.outbox.receipts[id]; ok {
		copied := receipt.receipt
		tracked.Receipt = &copied
		tracked.Status = copied.Outcome
	}
	if q, ok := s.outbox.queue[id]; ok {
		row := s.outbox.row(q, now)
		tracked.Row = row
		tracked.Status = row.Status
	}
	return tracked
}

func matches(t *store.Tracked, f *store.Filter) bool {
	return (len(f.EventIDs) == 0 || slices.Contains(f.EventIDs, t.Event.ID)) &&
		(f.Key == "" || f.Key == t.Event.Key || f.Key == t.Event.AggregateID) &&
		(f.TenantID == nil || *f.TenantID == t.Event.TenantID) &&
		(f.Topic == "" || f.Topic == t.Event.Topic) &&
		(f.Type == "" || f.Type == t.Event.Type) &&
		(f.Status == "" || f.Status == t.Status) &&
		(!f.Unqueued || t.Row == nil && t.Receipt == nil) &&
		(f.From.IsZero() || !t.CreatedAt.Before(f.From)) &&
		(f.Until.IsZero() || t.CreatedAt.Before(f.Until))
}

// Orphans returns queue rows without an event.
func (s *Store) Orphans(ctx context.Context, limit int) ([]*store.Row, error) {
	var rows []*store.Row
	err := s.call(ctx, "orphans", func() error {
		if err := s.needOutbox(); err != nil {
			return err
		}
		now := s.now()
		for id, q := range s.outbox.queue {
			if _, ok := s.outbox.events[id]; !ok {
				rows = append(rows, s.outbox.row(q, now))
			}
		}
		slices.SortFunc(rows, func(a, b *store.Row) int { return int(a.ID - b.ID) })
		if limit > 0 && len(rows) > limit {
			rows = rows[:limit]
		}
		return nil
	})
	return rows, err
}
