package memstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/waybillhq/waybill/store"
)

type memberKey struct{ group, owner string }

type readerRow struct {
	state     store.ReaderState
	expiresAt time.Time
}

func (r readerRow) show(now time.Time) store.ReaderState {
	state := r.state
	state.ExpiresIn = 0
	if state.Owner != "" {
		state.ExpiresIn = r.expiresAt.Sub(now)
	}
	return state
}

// ClaimReader takes a partition that is free, expired or the owner's.
func (s *Store) ClaimReader(ctx context.Context, key store.ReaderKey, owner string, ttl time.Duration, force bool) (state store.ReaderState, claimed bool, err error) {
	err = s.call(ctx, "claim reader", func() error {
		if err := s.needInbox(); err != nil {
			return err
		}
		now := s.now()
		row, known := s.inbox.readers[key]
		if !known {
			row.state = store.ReaderState{ReaderKey: key, Clean: true}
		}
		state = row.show(now)
		if !force && row.state.Owner != "" && row.state.Owner != owner && row.expiresAt.After(now) {
			return nil
		}
		claimed = true
		row.state.Owner = owner
		row.state.Fence++
		row.state.Clean = false
		row.expiresAt = now.Add(ttl)
		s.inbox.readers[key] = row
		state.Owner, state.Fence = owner, row.state.Fence
		return nil
	})
	return state, claimed && err == nil, err
}

// RenewReaders makes the owner known and extends its claims.
func (s *Store) RenewReaders(ctx context.Context, group, owner string, ttl time.Duration) (held []store.ReaderState, live int, err error) {
	err = s.call(ctx, "renew readers", func() error {
		if err := s.needInbox(); err != nil {
			return err
		}
		now := s.now()
		s.inbox.members[memberKey{group, owner}] = now.Add(ttl)
		for key, expiresAt := range s.inbox.members {
			switch {
			case key.group == group && expiresAt.After(now):
				live++
			case now.Sub(expiresAt) >= forgetAfter:
				delete(s.inbox.members, key)
			}
		}
		for key, row := range s.inbox.readers {
			if key.Group == group && row.state.Owner == owner && row.expiresAt.After(now) {
				row.expiresAt = now.Add(ttl)
				s.inbox.readers[key] = row
				held = append(held, row.show(now))
			}
		}
		sortReaders(held)
		return nil
	})
	return held, live, err
}

// MarkReader commits the crash mark.
func (s *Store) MarkReader(ctx context.Context, key store.ReaderKey, owner string, fence int64, eventID string) (tries int, err error) {
	err = s.call(ctx, "mark reader", func() error {
		if err := s.needInbox(); err != nil {
			return err
		}
		row, ok := s.inbox.readers[key]
		if !ok || row.state.Owner != owner || row.state.Fence != fence {
			return store.ErrStale
		}
		switch {
		case eventID == "":
			row.state.Tries = 0
		case eventID == row.state.EventID:
			row.state.Tries++
		default:
			row.state.Tries = 1
		}
		row.state.EventID = eventID
		s.inbox.readers[key] = row
		tries = row.state.Tries
		return nil
	})
	return tries, err
}

// ReleaseReader frees the partition if the owner still has it.
func (s *Store) ReleaseReader(ctx context.Context, key store.ReaderKey, owner string, fence int64, clean bool) error {
	return s.call(ctx, "release reader", func() error {
		if err := s.needInbox(); err != nil {
			return err
		}
		row, ok := s.inbox.readers[key]
		if ok && row.state.Owner == owner && row.state.Fence == fence {
			row.state.Owner, row.state.Clean = "", clean
			s.inbox.readers[key] = row
		}
		return nil
	})
}

// LeaveReaders frees the owner's partitions as not clean.
func (s *Store) LeaveReaders(ctx context.Context, group, owner string) error {
	return s.call(ctx, "leave readers", func() error {
		if err := s.needInbox(); err != nil {
			return err
		}
		for key, row := range s.inbox.readers {
			if key.Group == group && row.state.Owner == owner {
				row.state.Owner, row.state.Clean = "", false
				s.inbox.readers[key] = row
			}
		}
		delete(s.inbox.members, memberKey{group, owner})
		return nil
	})
}

// ListReaders returns the group's rows.
func (s *Store) ListReaders(ctx context.Context, group string) ([]store.ReaderState, error) {
	var states []store.ReaderState
	err := s.call(ctx, "list readers", func() error {
		if err := s.needInbox(); err != nil {
			return err
		}
		now := s.now()
		for key, row := range s.inbox.readers {
			if key.Group == group {
				states = append(states, row.show(now))
			}
		}
		sortReaders(states)
		return nil
	})
	return states, err
}

func sortReaders(states []store.ReaderState) {
	slices.SortFunc(states, func(a, b store.ReaderState) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
}
