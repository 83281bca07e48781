package memstore

import (
	"context"
	"slices"
	"time"

	"github.com/waybillhq/waybill/store"
)

const defaultCleanup = 1000

// Cleanup removes settled events whose receipt is older than the retention.
func (s *Store) Cleanup(ctx context.Context, request store.CleanupRequest) (int, error) {
	var removed int
	err := s.call(ctx, "cleanup", func() error {
		if err := s.needOutbox(); err != nil {
			return err
		}
		now := s.now()
		limit := request.Limit
		if limit <= 0 {
			limit = defaultCleanup
		}
		for _, id := range slices.Collect(s.outbox.ids.after(0)) {
			if removed == limit || request.Below > 0 && id >= request.Below {
				break
			}
			receipt, settled := s.outbox.receipts[id]
			_, queued := s.outbox.queue[id]
			if !settled || queued || now.Sub(receipt.receipt.PublishedAt) < request.Retention {
				continue
			}
			if request.Archive {
				tracked := s.tracked(id, now)
				tracked.Archived = true
				s.outbox.archive[tracked.Event.ID] = tracked
			}
			s.outbox.deleteEvent(id)
			delete(s.outbox.receipts, id)
			removed++
		}
		return nil
	})
	return removed, err
}

// CleanupConsumed removes old rows of consumed_event.
func (s *Store) CleanupConsumed(ctx context.Context, group string, retention time.Duration, limit int) (int, error) {
	var removed int
	waiting, err := s.begin(ctx, "cleanup consumed")
	if err != nil {
		return 0, err
	}
	defer func() { _ = waiting.Rollback(ctx) }()
	if _, err := waiting.lock(ctx, lockKey{"horizon", group, "", ""}); err != nil {
		return 0, failure("cleanup consumed", group, err)
	}
	err = s.call(ctx, "cleanup consumed", func() error {
		if err := s.needInbox(); err != nil {
			return err
		}
		type partition struct {
			topic  string
			number int32
		}
		newest := make(map[partition]int64)
		for key, row := range s.inbox.consumed {
			at := partition{row.consumed.Topic, row.consumed.Partition}
			if position, ok := newest[at]; key.group == group && (!ok || position < row.consumed.Position) {
				newest[at] = row.consumed.Position
			}
		}
		now := s.now()
		for key, row := range s.inbox.consumed {
			if limit > 0 && removed == limit {
				break
			}
			at := partition{row.consumed.Topic, row.consumed.Partition}
			if key.group != group || row.consumed.Position == newest[at] || now.Sub(row.consumed.ConsumedAt) < retention {
				continue
			}
			delete(s.inbox.consumed, key)
			for effect := range s.inbox.effects {
				if effect.group == group && effect.eventID == key.eventID {
					delete(s.inbox.effects, effect)
				}
			}
			removed++
		}
		if cut := now.Add(-retention); removed > 0 && cut.After(s.inbox.horizons[group]) {
			s.inbox.horizons[group] = cut
		}
		return nil
	})
	return removed, err
}
