package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill/store"
)

// stepInbox handles a few events in one transaction, each in its savepoint.
func stepInbox(t *testing.T, m *model) {
	type action struct {
		kind     int
		id       string
		held     store.Held
		rollback bool
	}
	var actions []action
	name := "inbox:"
	for range 1 + m.random.IntN(5) {
		id := fmt.Sprintf("in%d", m.random.IntN(25))
		held := kept(id, pick(m, "k", "K", "l "), pick(m, store.HeldWaiting, store.HeldBlocked, store.HeldBlocked, store.HeldRetry, store.HeldDead))
		held.RetryIn = pick(m, -time.Hour, time.Hour)
		held.Attempts, held.LastErr = m.random.IntN(3), pick(m, "", "refused")
		held.FirstErr = held.LastErr
		a := action{m.random.IntN(5), id, held, m.chance(25)}
		actions = append(actions, a)
		name += fmt.Sprintf(" %d %s %s %s due in %v, rollback %t;", a.kind, id, held.Key, held.State, held.RetryIn, a.rollback)
	}
	commit := m.chance(80)
	m.both(t, fmt.Sprintf("%s commit %t", name, commit), func(s side) (string, error) {
		tx, err := s.beginInbox(t.Context())
		if err != nil {
			return "", err
		}
		var said []string
		for _, a := range actions {
			if err := tx.Savepoint(t.Context()); err != nil {
				return "", err
			}
			answer, err := inboxAction(t, tx, a.kind, a.id, a.held)
			if err != nil {
				return "", err
			}
			said = append(said, answer)
			end := tx.Release
			if a.rollback {
				end = tx.RollbackTo
			}
			if err := end(t.Context()); err != nil {
				return "", err
			}
		}
		end := tx.Rollback
		if commit {
			end = tx.Commit
		}
		return strings.Join(said, ", "), end(t.Context())
	})
}

func inboxAction(t *testing.T, tx inboxSide, kind int, id string, held store.Held) (string, error) {
	ctx := t.Context()
	var done bool
	var err error
	switch kind {
	case 0:
		done, err = tx.MarkConsumed(ctx, delivered(id))
	case 1:
		done, err = tx.IsConsumed(ctx, group, id, true)
	case 2:
		done, err = tx.Hold(ctx, held)
	case 3:
		done, err = tx.UpdateHeld(ctx, held)
	case 4:
		done, err = tx.DeleteHeld(ctx, group, id)
	}
	if err != nil {
		return "", err
	}
	rows, err := tx.HeldOfKey(ctx, group, store.HeldKeyRef{Topic: held.Topic, Key: held.Key}, 3)
	return fmt.Sprintf("%t %v", done, heldIDs(rows)), err
}

// stepReaders lets three readers pass two partitions around.
func stepReaders(t *testing.T, m *model) {
	key, name := partition(m.random.Int32N(2)), pick(m, "r1", "r2", "r3")
	kind, flag, id := m.random.IntN(5), m.chance(50), pick(m, "", "x", "y")
	m.both(t, fmt.Sprintf("reader %s, partition %d: %d %t %q", name, key.Partition, kind, flag, id), func(s side) (string, error) {
		ctx, readers := t.Context(), s.consumer()
		// The fence of the row stands for the reader's own.
		states, err := readers.ListReaders(ctx, group)
		if err != nil {
			return "", err
		}
		var fence int64
		for _, state := range states {
			if state.ReaderKey == key && state.Owner == name {
				fence = state.Fence
			}
		}
		answer := ""
		switch kind {
		case 0:
			state, ok, err := readers.ClaimReader(ctx, key, name, time.Hour, flag)
			if err != nil {
				return "", err
			}
			if answer = fmt.Sprintf("claimed %t", ok); ok {
				answer += fmt.Sprintf(" clean %t mark %q %d", state.Clean, state.EventID, state.Tries)
			}
		case 1:
			tries, err := readers.MarkReader(ctx, key, name, fence, id)
			if err != nil && !errors.Is(err, store.ErrStale) {
				return "", err
			}
			answer = fmt.Sprintf("tries %d stale %t", tries, err != nil)
		case 2:
			if err := readers.ReleaseReader(ctx, key, name, fence, flag); err != nil && !errors.Is(err, store.ErrStale) {
				return "", err
			}
		case 3:
			held, live, err := readers.RenewReaders(ctx, group, name, time.Hour)
			if err != nil {
				return "", err
			}
			answer = fmt.Sprintf("held %d live %d", len(held), live)
		case 4:
			if err := readers.LeaveReaders(ctx, group, name); err != nil {
				return "", err
			}
		}
		return answer, nil
	})
}

// compareHeld compares all that can be seen of the inbox.
func compareHeld(t *testing.T, m *model) {
	m.both(t, "compare held events", func(s side) (string, error) {
		found, err := s.consumer().ListHeld(t.Context(), group, store.HeldFilter{Limit: 1000})
		var said []string
		for _, h := range found {
			said = append(said, fmt.Sprintf("%s %q %s attempts %d due %t %q %q failed %t", h.Event.ID, h.Key, h.State, h.Attempts,
				h.State == store.HeldRetry && h.RetryIn <= 0, h.FirstErr, h.LastErr, !h.LastFailedAt.IsZero()))
		}
		return strings.Join(said, "\n"), err
	})
	for _, deadBlocks := range []bool{true, false} {
		m.both(t, "compare releasable keys", func(s side) (string, error) {
			keys, err := s.consumer().ReleasableKeys(t.Context(), group, deadBlocks, 100)
			slices.SortFunc(keys, func(a, b store.HeldKeyRef) int { return strings.Compare(a.Key, b.Key) })
			return fmt.Sprint(keys), err
		})
	}
	m.both(t, "compare next retry", func(s side) (string, error) {
		until, found, err := s.consumer().NextRetry(t.Context(), group)
		return fmt.Sprintf("%t due %t", found, found && until <= 0), err
	})
	m.both(t, "compare held counts", func(s side) (string, error) {
		counts, err := s.consumer().CountHeld(t.Context(), group)
		counts.OldestAge = 0
		return fmt.Sprintf("%+v", counts), err
	})
	m.both(t, "compare consumed", func(s side) (string, error) {
		var said []string
		for i := range 25 {
			found, err := s.consumer().FindConsumed(t.Context(), fmt.Sprintf("in%d", i))
			if err != nil {
				return "", err
			}
			for _, c := range found {
				said = append(said, fmt.Sprintf("%s %s %d", c.Group, c.Event.ID, c.Duplicates))
			}
		}
		return strings.Join(said, ", "), nil
	})
	m.both(t, "compare readers", func(s side) (string, error) {
		states, err := s.consumer().ListReaders(t.Context(), group)
		slices.SortFunc(states, func(a, b store.ReaderState) int { return int(a.Partition - b.Partition) })
		var said []string
		for _, r := range states {
			said = append(said, fmt.Sprintf("%d %q clean %t mark %q %d", r.Partition, r.Owner, r.Clean, r.EventID, r.Tries))
		}
		return strings.Join(said, ", "), err
	})
}
