package memstore

import (
	"context"
	"fmt"

	"github.com/waybillhq/waybill"
)

// InsertPlain stands for the INSERT that a producer in another language writes:
// it checks what the table's own constraints check, fills the columns'
// defaults, and leaves the queue row to the trigger. id 0 means the next id.
func (s *Store) InsertPlain(ctx context.Context, tx *Tx, id int64, event waybill.Event) error {
	if err := s.allow(ctx, "insert"); err != nil {
		return failure("insert", event.ID, err)
	}
	for _, column := range []struct{ name, value string }{
		{"event_id", event.ID}, {"event_type", event.Type}, {"topic", event.Topic}, {"event_key", event.EffectiveKey()},
	} {
		if column.value == "" {
			return failure("insert", event.ID, fmt.Errorf("%s must not be empty", column.name))
		}
	}
	event.Normalize(s.now())
	if err := tx.insertEvent(ctx, event, id); err != nil {
		return failure("insert", event.ID, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if row, ok := tx.writes.events[event.ID]; ok {
		row.queued, row.headed = s.meta.Trigger, s.meta.HeadTrigger
		tx.writes.events[event.ID] = row
	}
	return nil
}

// DeletePlain stands for a DELETE of the event row alone, as no one should do.
func (s *Store) DeletePlain(ctx context.Context, eventID string) error {
	return s.call(ctx, "delete", func() error {
		s.outbox.deleteEvent(s.outbox.byID[eventID])
		return nil
	})
}
