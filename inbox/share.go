package inbox

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/store"
)

// share divides the partitions of a broker that does not among the members of
// the group, by leases in the table of readers.
type share struct {
	assigner broker.Assigner
	readers  *readers
	due      time.Time
	stale    bool // the broker was not yet told of the last change
}

// balance claims what this member lacks of its fair part and gives up what it
// has too much. idle says that nothing that was begun with is unsettled, and that
// the broker knows it; else nothing is given up.
func (s *share) balance(ctx context.Context, idle func() bool) error {
	if s.stale {
		// Before anything is claimed again: a partition that was lost and comes
		// back must be read from its committed position.
		if err := s.tell(ctx); err != nil {
			return err
		}
	}
	if now().Before(s.due) {
		return nil
	}
	s.due = now().Add(min(time.Second, s.readers.ttl*3/10))
	all, err := s.assigner.Partitions(ctx)
	if err != nil {
		return err
	}
	states, err := s.readers.st.ListReaders(ctx, s.readers.group)
	if err != nil {
		return err
	}
	mine := s.readers.partitions()
	free := s.free(all, states)
	most := s.most(len(all))
	if len(mine) < most && len(free) > 0 {
		return s.take(ctx, free, most-len(mine))
	}
	// Half of what this member has more than the poorest; several givers at once
	// may give too much, and take it back.
	if surplus := (len(mine) - s.least(states)) / 2; len(free) == 0 && surplus > 0 && idle() {
		return s.give(ctx, mine[len(mine)-surplus:])
	}
	return nil
}

// most is the greatest fair part.
func (s *share) most(partitions int) int {
	s.readers.mu.Lock()
	live := max(s.readers.live, 1)
	s.readers.mu.Unlock()
	return (partitions + live - 1) / live
}

// least is the number of partitions of the member that has the fewest.
func (s *share) least(states []store.ReaderState) int {
	counts := map[string]int{s.readers.owner: 0}
	for _, state := range states {
		if state.Owner != "" && state.ExpiresIn > 0 {
			counts[state.Owner]++
		}
	}
	s.readers.mu.Lock()
	live := s.readers.live
	s.readers.mu.Unlock()
	if live > len(counts) {
		return 0
	}
	least := counts[s.readers.owner]
	for _, n := range counts {
		least = min(least, n)
	}
	return least
}

// free returns the partitions without a live reader, in random order, so that
// members that start together do not race for the same ones.
func (s *share) free(all []broker.Partition, states []store.ReaderState) []broker.Partition {
	taken := make(map[broker.Partition]bool, len(states))
	for _, state := range states {
		if state.Owner != "" && state.Owner != s.readers.owner && state.ExpiresIn > 0 {
			taken[broker.Partition{Topic: state.Topic, ID: state.Partition}] = true
		}
	}
	var free []broker.Partition
	for _, p := range all {
		if !taken[p] && !s.readers.has(p) {
			free = append(free, p)
		}
	}
	rand.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	return free
}

func (s *share) take(ctx context.Context, free []broker.Partition, n int) error {
	for _, p := range free {
		if n == 0 {
			break
		}
		ok, err := s.readers.claim(ctx, p)
		if err != nil {
			if s.stale {
				_ = s.tell(ctx) // what was claimed before is worth reading
			}
			return err
		}
		if ok {
			n--
			s.stale = true
		}
	}
	if !s.stale {
		return nil
	}
	return s.tell(ctx)
}

// give stops reading first, and then lets others have the partitions.
func (s *share) give(ctx context.Context, partitions []broker.Partition) error {
	keep := slices.DeleteFunc(s.readers.partitions(), func(p broker.Partition) bool { return slices.Contains(partitions, p) })
	if err := s.assigner.Assign(ctx, keep); err != nil {
		return err
	}
	for _, p := range partitions {
		if err := s.readers.release(ctx, p, true); err != nil {
			s.stale = true
			return err
		}
	}
	return nil
}

func (s *share) tell(ctx context.Context) error {
	if err := s.assigner.Assign(ctx, s.readers.partitions()); err != nil {
		return err
	}
	s.stale = false
	return nil
}
