package memstore

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/waybillhq/waybill/store"
)

type leaseRow struct {
	owner     string
	fence     int64
	expiresAt time.Time
}

type relayRow struct {
	state     store.RelayState
	expiresAt time.Time
}

// forgetAfter is how long an expired relay is still shown.
const forgetAfter = time.Hour

func (l *leaseRow) heldBy(owner string, fence int64, now time.Time) bool {
	return l.owner == owner && l.fence == fence && l.expiresAt.After(now)
}

func (s *Store) lostLanes(guard store.Guard, now time.Time) []int {
	var lost []int
	for _, lease := range guard.Lanes {
		if !s.outbox.leases[lease.Lane].heldBy(guard.Owner, lease.Fence, now) {
			lost = append(lost, lease.Lane)
		}
	}
	return lost
}

// Renew makes the relay known and extends its leases.
func (s *Store) Renew(ctx context.Context, beat store.Heartbeat) (held []store.Lease, live int, err error) {
	err = s.call(ctx, "renew", func() error {
		if err := s.needOutbox(); err != nil {
			return err
		}
		now := s.now()
		row, known := s.outbox.relays[beat.Owner]
		if !known {
			row.state.StartedAt = now
		}
		row.state.Owner, row.state.Host, row.state.Mode = beat.Owner, beat.Host, beat.Mode
		row.state.Report = slices.Clone(beat.Report)
		row.expiresAt = now.Add(beat.TTL)
		s.outbox.relays[beat.Owner] = row
		for owner, relay := range s.outbox.relays {
			switch {
			case relay.expiresAt.After(now):
				live++
			case now.Sub(relay.expiresAt) >= forgetAfter:
				delete(s.outbox.relays, owner)
			}
		}
		for _, lease := range beat.Held {
			if row := &s.outbox.leases[lease.Lane]; row.heldBy(beat.Owner, lease.Fence, now) {
				row.expiresAt = now.Add(beat.TTL)
				held = append(held, lease)
			}
		}
		return nil
	})
	return held, live, err
}

// Claim takes lanes that are free or expired.
func (s *Store) Claim(ctx context.Context, owner string, ttl time.Duration, limit int) ([]store.Lease, error) {
	var claimed []store.Lease
	err := s.call(ctx, "claim", func() error {
		if err := s.needOutbox(); err != nil {
			return err
		}
		now := s.now()
		for lane := range s.outbox.leases {
			if len(claimed) >= limit {
				break
			}
			row := &s.outbox.leases[lane]
			if row.owner != "" && row.expiresAt.After(now) {
				continue
			}
			*row = leaseRow{owner: owner, fence: row.fence + 1, expiresAt: now.Add(ttl)}
			claimed = append(claimed, store.Lease{Lane: lane, Fence: row.fence})
		}
		return nil
	})
	return claimed, err
}

// Release frees leases that the owner still holds.
func (s *Store) Release(ctx context.Context, owner string, leases []store.Lease) error {
	return s.call(ctx, "release", func() error {
		if err := s.needOutbox(); err != nil {
			return err
		}
		for _, lease := range leases {
			if row := &s.outbox.leases[lease.Lane]; row.owner == owner && row.fence == lease.Fence {
				*row = leaseRow{fence: row.fence}
			}
		}
		return nil
	})
}

// Leave frees the owner's leases and forgets the relay.
func (s *Store) Leave(ctx context.Context, owner string) error {
	return s.call(ctx, "leave", func() error {
		if err := s.needOutbox(); err != nil {
			return err
		}
		for lane := range s.outbox.leases {
			if row := &s.outbox.leases[lane]; row.owner == owner {
				*row = leaseRow{fence: row.fence}
			}
		}
		delete(s.outbox.relays, owner)
		return nil
	})
}

// ListLeases returns all lanes in order.
func (s *Store) ListLeases(ctx context.Context) ([]store.LeaseState, error) {
	var states []store.LeaseState
	err := s.call(ctx, "list leases", func() error {
		if err := s.needOutbox(); err != nil {
			return err
		}
		now := s.now()
		for lane, row := range s.outbox.leases {
			state := store.LeaseState{Lease: store.Lease{Lane: lane, Fence: row.fence}, Owner: row.owner}
			if row.owner != "" {
				state.ExpiresIn = row.expiresAt.Sub(now)
			}
			states = append(states, state)
		}
		return nil
	})
	return states, err
}

// ListRelays returns all known relays, oldest first.
func (s *Store) ListRelays(ctx context.Context) ([]store.RelayState, error) {
	var states []store.RelayState
	err := s.call(ctx, "list relays", func() error {
		if err := s.needOutbox(); err != nil {
			return err
		}
		now := s.now()
		for _, row := range s.outbox.relays {
			state := row.state
			state.ExpiresIn = row.expiresAt.Sub(now)
			state.Report = slices.Clone(state.Report)
			states = append(states, state)
		}
		slices.SortFunc(states, func(a, b store.RelayState) int {
			if c := a.StartedAt.Compare(b.StartedAt); c != 0 {
				return c
			}
			return strings.Compare(a.Owner, b.Owner)
		})
		return nil
	})
	return states, err
}
