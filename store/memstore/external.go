package memstore

import (
	"context"
	"slices"

	"github.com/waybillhq/waybill/store"
)

// Delivery returns who sends.
func (s *Store) Delivery(ctx context.Context) (store.Delivery, error) {
	var delivery store.Delivery
	err := s.call(ctx, "delivery", func() error {
		delivery = s.sending
		return s.needOutbox()
	})
	return delivery, err
}

// HandOver removes the trigger and notes the cut.
func (s *Store) HandOver(ctx context.Context, action store.Action) (store.Delivery, error) {
	var delivery store.Delivery
	err := s.call(ctx, "hand over", func() error {
		switch {
		case action.Reason == "":
			return store.ErrNoReason
		case s.needOutbox() != nil:
			return s.needOutbox()
		case s.sending.Returning:
			return store.ErrReturning
		case s.sending.External:
			delivery = s.sending
			return nil
		case !s.meta.Trigger:
			return store.ErrNoTrigger
		}
		s.meta.Trigger = false
		before := s.sending.Describe()
		s.sending = store.Delivery{External: true, Cut: s.outbox.lastID}
		delivery = s.sending
		s.record(action, "delivery switch", "delivery", before, delivery.Describe(), s.now())
		return nil
	})
	return delivery, err
}

// TakeBack installs the trigger and queues what has no receipt.
func (s *Store) TakeBack(ctx context.Context, action store.Action) (queued int, err error) {
	err = s.call(ctx, "take back", func() error {
		switch {
		case action.Reason == "":
			return store.ErrNoReason
		case s.needOutbox() != nil:
			return s.needOutbox()
		case !s.sending.External:
			return nil
		}
		now := s.now()
		s.meta.Trigger = true
		for id := range s.outbox.ids.after(s.sending.Cut) {
			_, waiting := s.outbox.queue[id]
			if _, settled := s.outbox.receipts[id]; waiting || settled {
				continue
			}
			row := newQueueRow(s.outbox.events[id])
			row.retryAt = now
			s.outbox.setQueue(row)
			queued++
		}
		before := s.sending.Describe()
		s.sending = store.Delivery{}
		s.record(action, "delivery switch", "delivery", before, s.sending.Describe(), now)
		return nil
	})
	return queued, err
}

// Confirm writes receipts for what another program has sent.
func (s *Store) Confirm(ctx context.Context, confirmations []store.Confirmation) (written int, err error) {
	err = s.call(ctx, "confirm", func() error {
		if !s.sending.External {
			return s.needOutbox()
		}
		for _, c := range confirmations {
			id, known := s.outbox.byID[c.EventID]
			if _, settled := s.outbox.receipts[id]; !known || settled || id <= s.sending.Cut {
				continue
			}
			s.outbox.receipts[id] = receiptRow{id: id, eventID: c.EventID, receipt: store.Receipt{
				Outcome: store.StatusSent, Via: store.ViaExternal, PublishedAt: s.now(), PublishedTo: c.PublishedTo,
			}}
			written++
		}
		return nil
	})
	return written, err
}

// Unconfirmed sums up what was not confirmed yet.
func (s *Store) Unconfirmed(ctx context.Context) (store.Unconfirmed, error) {
	var sum store.Unconfirmed
	err := s.call(ctx, "unconfirmed", func() error {
		if !s.sending.External {
			return s.needOutbox()
		}
		now := s.now()
		for id := range s.outbox.ids.after(max(s.sending.Cut, s.outbox.lastID-store.UnconfirmedSpan)) {
			_, waiting := s.outbox.queue[id]
			if _, settled := s.outbox.receipts[id]; !waiting && !settled {
				sum.Events++
				sum.OldestAge = max(sum.OldestAge, now.Sub(s.outbox.events[id].createdAt))
			}
		}
		return nil
	})
	return sum, err
}

// EventTopics returns the topics of the events above an id.
func (s *Store) EventTopics(ctx context.Context, above int64) (topics []string, last int64, err error) {
	err = s.call(ctx, "event topics", func() error {
		for id := range s.outbox.ids.after(above) {
			if topic := s.outbox.events[id].event.Topic; !slices.Contains(topics, topic) {
				topics = append(topics, topic)
			}
			last = id
		}
		slices.Sort(topics)
		last = max(last, above)
		return s.needOutbox()
	})
	return topics, last, err
}
