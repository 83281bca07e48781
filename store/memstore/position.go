package memstore

import (
	"context"
	"maps"
	"slices"

	"github.com/waybillhq/waybill/store"
)

// ListPositions returns all positions, by source.
func (s *Store) ListPositions(ctx context.Context) ([]store.Position, error) {
	var positions []store.Position
	err := s.call(ctx, "list positions", func() error {
		if err := s.needOutbox(); err != nil {
			return err
		}
		for _, source := range slices.Sorted(maps.Keys(s.outbox.places)) {
			positions = append(positions, s.outbox.places[source])
		}
		return nil
	})
	return positions, err
}

// SavePosition replaces a source's position if the leases hold.
func (s *Store) SavePosition(ctx context.Context, guard store.Guard, source, position string) error {
	return s.call(ctx, "save position", func() error {
		if err := s.needOutbox(); err != nil {
			return err
		}
		now := s.now()
		if lost := s.lostLanes(guard, now); len(lost) > 0 {
			return &store.StaleError{Lanes: lost}
		}
		if position == "" {
			delete(s.outbox.places, source)
			return nil
		}
		s.outbox.places[source] = store.Position{Source: source, Position: position, UpdatedAt: now}
		return nil
	})
}

// ReadMode returns the mode that was set.
func (s *Store) ReadMode(ctx context.Context) (mode string, err error) {
	err = s.call(ctx, "read mode", func() error {
		mode = s.outbox.mode
		return s.needOutbox()
	})
	return mode, err
}

// SetMode changes the mode of all relays.
func (s *Store) SetMode(ctx context.Context, action store.Action, mode string) error {
	if err := store.CheckMode(action, mode); err != nil {
		return failure("set mode", mode, err)
	}
	return s.call(ctx, "set mode", func() error {
		if err := s.needOutbox(); err != nil {
			return err
		}
		if before := s.outbox.mode; before != mode {
			s.outbox.mode = mode
			s.record(action, "relay mode", "mode", store.DescribeMode(before), store.DescribeMode(mode), s.now())
		}
		return nil
	})
}
