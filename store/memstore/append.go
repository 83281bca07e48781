package memstore

import (
	"context"
	"errors"

	"github.com/waybillhq/waybill"
)

// Append inserts the events, waiting for other transactions that insert one of
// the same ids.
func (s *Store) Append(ctx context.Context, tx *Tx, events []waybill.Event) ([]error, error) {
	if err := s.allow(ctx, "append"); err != nil {
		return nil, failure("append", "", err)
	}
	results := make([]error, len(events))
	for i := range events {
		err := tx.insertEvent(ctx, events[i], 0)
		if errors.Is(err, waybill.ErrDuplicateEvent) {
			results[i] = failure("append", events[i].ID, err)
			continue
		}
		if err != nil {
			return nil, failure("append", events[i].ID, err)
		}
	}
	if err := s.answer("append"); err != nil {
		return nil, failure("append", "", err)
	}
	return results, nil
}

// insertEvent is the INSERT into outbox_event, and its trigger. id 0 means the
// next one.
func (tx *Tx) insertEvent(ctx context.Context, event waybill.Event, id int64) error {
	s := tx.store
	taken, err := tx.lock(ctx, lockKey{"event", event.ID, "", ""})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := tx.usable(); err != nil {
		return err
	}
	if err := s.needOutbox(); err != nil {
		return err
	}
	_, own := tx.writes.events[event.ID]
	if _, stored := s.outbox.byID[event.ID]; own || stored {
		if taken { // a refused insert locks nothing
			tx.unlockFrom(len(tx.locks) - 1)
		}
		return waybill.ErrDuplicateEvent
	}
	if tx.number == 0 {
		s.lastTx++
		tx.number = s.lastTx
		s.writers[tx.number] = struct{}{}
	}
	if id == 0 {
		s.outbox.lastID++
		id = s.outbox.lastID
	}
	s.outbox.lastID = max(s.outbox.lastID, id)
	event = cloneEvent(event)
	event.Key = event.EffectiveKey()
	tx.writes.events[event.ID] = eventRow{
		id: id, createdAt: s.now(), event: event,
		queued: s.meta.Trigger || s.config.NoTrigger,
		headed: s.meta.HeadTrigger || s.config.NoTrigger && s.config.Head,
	}
	return nil
}

// Existing returns the stored events of these ids as the transaction sees them.
func (s *Store) Existing(ctx context.Context, tx *Tx, ids []string) ([]waybill.Event, error) {
	var found []waybill.Event
	err := tx.call(ctx, "existing", "", func() error {
		if err := s.needOutbox(); err != nil {
			return err
		}
		seen := make(map[string]bool, len(ids))
		for _, id := range ids {
			row, own := tx.writes.events[id]
			if !own {
				stored, ok := s.outbox.byID[id]
				if !ok {
					continue
				}
				row = s.outbox.events[stored]
			}
			if !seen[id] {
				seen[id] = true
				found = append(found, cloneEvent(row.event))
			}
		}
		return nil
	})
	return found, err
}
