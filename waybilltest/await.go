package waybilltest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/waybillhq/waybill/store"
)

// AwaitSettled waits until the relay has settled the events of these ids: sent
// them, or a skip marker in their place. It fails the test when patience (0
// means DefaultPatience) has passed, and at once when one is DEAD. An id that
// the outbox does not have yet is waited for; one that it has no more, because
// the relay forgets what it sent, is told apart only if it was seen before.
func AwaitSettled(t testing.TB, st store.Inspector, patience time.Duration, ids ...string) {
	t.Helper()
	waiting := slices.Clone(ids)
	seen := make(map[string]bool, len(ids))
	var state []string
	done := func(ctx context.Context) bool {
		tracked := make(map[string]store.Tracked, len(waiting))
		for chunk := range slices.Chunk(waiting, pageSize) {
			found, err := st.Find(ctx, store.Filter{EventIDs: chunk, Limit: len(chunk)})
			if err != nil {
				if ctx.Err() != nil {
					return false
				}
				t.Fatalf("read the outbox: %v", err)
			}
			for _, one := range found {
				tracked[one.Event.ID] = one
			}
		}
		state = state[:0]
		waiting = slices.DeleteFunc(waiting, func(id string) bool {
			one, there := tracked[id]
			switch {
			case !there && seen[id]:
				return true
			case !there:
				state = append(state, id+": not in the outbox")
				return false
			}
			seen[id] = true
			switch {
			case one.Row == nil && one.Receipt != nil:
				return true
			case one.Row == nil:
				state = append(state, id+": never queued; is the trigger missing?")
			case one.Row.Status == store.StatusDead && !one.Row.Skip:
				t.Fatalf("event %s is DEAD after %d attempts: %s", id, one.Row.Retries, one.Row.LastErr)
			default:
				state = append(state, fmt.Sprintf("%s: %s, %d retries, last error %q", id, one.Row.Status, one.Row.Retries, one.Row.LastErr))
			}
			return false
		})
		return len(waiting) == 0
	}
	if !await(t, patience, done) {
		t.Fatalf("%d of %d events were not settled in time:\n%s", len(waiting), len(ids), lines(state))
	}
}

// AwaitApplied waits until the consumer group has settled the events of these
// ids: applied them, or found them stale, or passed over a skip marker. It fails
// the test when patience (0 means DefaultPatience) has passed, and at once when
// one is held DEAD.
func AwaitApplied(t testing.TB, st store.HeldReader, group string, patience time.Duration, ids ...string) {
	t.Helper()
	waiting := slices.Clone(ids)
	var state, latest []string // of the last look that was not cut short, of this one
	check := func(ctx context.Context, id string) (bool, error) {
		consumed, err := st.FindConsumed(ctx, id)
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(consumed, func(c store.Consumed) bool { return c.Group == group }) {
			return true, nil
		}
		held, err := st.ListHeld(ctx, group, store.HeldFilter{EventID: id, Limit: 1})
		if err != nil {
			return false, err
		}
		switch {
		case len(held) == 0:
			latest = append(latest, id+": not received")
		case held[0].State == store.HeldDead:
			t.Fatalf("event %s is DEAD at group %s after %d attempts: %s", id, group, held[0].Attempts, held[0].LastErr)
		default:
			latest = append(latest, fmt.Sprintf("%s: %s, %d attempts, last error %q", id, held[0].State, held[0].Attempts, held[0].LastErr))
		}
		return false, nil
	}
	done := func(ctx context.Context) bool {
		latest = nil
		waiting = slices.DeleteFunc(waiting, func(id string) bool {
			settled, err := check(ctx, id)
			if err != nil && ctx.Err() == nil {
				t.Fatalf("read the inbox: %v", err)
			}
			return settled
		})
		if ctx.Err() == nil {
			state = latest
		}
		return len(waiting) == 0
	}
	if !await(t, patience, done) {
		t.Fatalf("group %s did not settle %d of %d events in time:\n%s", group, len(waiting), len(ids), lines(state))
	}
}

func lines(state []string) string {
	more := ""
	if len(state) > maxShown {
		state, more = state[:maxShown], fmt.Sprintf("  and %d more\n", len(state)-maxShown)
	}
	text := ""
	for _, line := range state {
		text += "  " + line + "\n"
	}
	return text + more
}
