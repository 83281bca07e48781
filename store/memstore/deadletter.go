package memstore

import (
	"context"
	"slices"
	"time"

	"github.com/waybillhq/waybill/store"
)

// UnsentDead returns events whose dead letter is due.
func (s *Store) UnsentDead(ctx context.Context, group string, age time.Duration, after int64, limit int) ([]store.Held, error) {
	var found []store.Held
	err := s.call(ctx, "unsent dead", func() error {
		if err := s.needInbox(); err != nil {
			return err
		}
		now := s.now()
		for key, row := range s.inbox.held {
			if key.group == group && row.held.State == store.HeldDead && row.held.DeadLetterAt.IsZero() && row.held.DeadLetterNote == "" &&
				now.Sub(row.diedAt()) >= age && row.held.Seq > after {
				found = append(found, row.show(now))
			}
		}
		slices.SortFunc(found, func(a, b store.Held) int { return int(a.Seq - b.Seq) })
		if limit > 0 && len(found) > limit {
			found = found[:limit]
		}
		return nil
	})
	return found, err
}

func (r *heldRow) diedAt() time.Time {
	if r.held.LastFailedAt.IsZero() {
		return r.held.HeldAt
	}
	return r.held.LastFailedAt
}

// NoteDeadLetter notes what became of a dead letter.
func (s *Store) NoteDeadLetter(ctx context.Context, held store.Held, note string) error {
	return s.call(ctx, "note dead letter", func() error {
		if err := s.needInbox(); err != nil {
			return err
		}
		key := heldKey{held.Group, held.Event.ID}
		row, found := s.inbox.held[key]
		if !found || row.held.State != store.HeldDead || !row.held.LastFailedAt.Equal(held.LastFailedAt) {
			return nil
		}
		if note == "" {
			row.held.DeadLetterAt = s.now()
		}
		row.held.DeadLetterNote = note
		s.inbox.held[key] = row
		return nil
	})
}
