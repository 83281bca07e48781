package ops

import (
	"errors"
	"slices"
	"testing"

	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
)

var annasWish = store.Action{Actor: "anna", Reason: "mended"}

// heldDesk keeps one event of each state aside, each of a key that differs.
func heldDesk(t *testing.T) *desk {
	d := newDesk(t, memstore.Config{})
	d.must(d.Migrate(t.Context(), store.MigrateOptions{}))
	d.hold("inventory", "dead", store.HeldDead, 5, "no such article")
	d.hold("inventory", "retry", store.HeldRetry, 2, "timeout")
	d.hold("inventory", "blocked", store.HeldBlocked, 0, "")
	d.hold("inventory", "waiting", store.HeldWaiting, 0, "")
	return d
}

func outcomes(results []store.Result) []string {
	var all []string
	for _, r := range results {
		all = append(all, r.EventID+": "+r.Outcome)
	}
	return all
}

func TestHeldVerbsDecideByState(t *testing.T) {
	ids := []string{"dead", "retry", "blocked", "waiting", "nope"}
	for _, c := range []struct {
		name     string
		verb     func(*Held) ([]store.Result, error)
		want     []string
		after    string // state, attempts and due of the one that was dead
		audited  []string
		consumed bool
	}{
		{
			"retry", func(v *Held) ([]store.Result, error) { return v.Retry(t.Context(), annasWish, "inventory", ids...) },
			[]string{"dead: retried", "retry: retried", "blocked: behind another", "waiting: waits", "nope: not held"},
			`{"group":"inventory","state":"RETRY","attempts":0}`,
			[]string{"retry", "dead"},
			false,
		},
		{
			"release", func(v *Held) ([]store.Result, error) { return v.Release(t.Context(), annasWish, "inventory", ids...) },
			[]string{"dead: released", "retry: released", "blocked: behind another", "waiting: released", "nope: not held"},
			`{"group":"inventory","state":"RETRY","attempts":5}`,
			[]string{"waiting", "retry", "dead"},
			false,
		},
		{
			"skip", func(v *Held) ([]store.Result, error) { return v.Skip(t.Context(), annasWish, "inventory", ids...) },
			[]string{"dead: skipped", "retry: skipped", "blocked: skipped", "waiting: skipped", "nope: not held"},
			`{"group":"inventory","outcome":"skipped"}`,
			[]string{"waiting", "blocked", "retry", "dead"},
			true,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := heldDesk(t)
			results, err := c.verb(NewHeld(d.Store))
			d.must(err)
			if got := outcomes(results); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			entries, err := d.Audit(t.Context(), 10)
			d.must(err)
			var targets []string
			for _, e := range entries {
				targets = append(targets, e.Target)
				if e.Actor != "anna" || e.Reason != "mended" || e.Verb != "held "+c.name {
					t.Errorf("entry %+v", e)
				}
			}
			if !slices.Equal(targets, c.audited) {
				t.Errorf("audited %q, want %q", targets, c.audited)
			}
			last := entries[len(entries)-1]
			if want := `{"group":"inventory","state":"DEAD","attempts":5}`; last.Before != want || last.After != c.after {
				t.Errorf("dead: from %s to %s, want from %s to %s", last.Before, last.After, want, c.after)
			}
			held, err := d.ListHeld(t.Context(), "inventory", store.HeldFilter{EventID: "dead"})
			d.must(err)
			consumed, err := d.FindConsumed(t.Context(), "dead")
			d.must(err)
			if c.consumed {
				if len(held) != 0 || len(consumed) != 1 || consumed[0].Outcome != store.ConsumedSkipped || consumed[0].Duplicates != 0 {
					t.Errorf("held %v, consumed %+v", held, consumed)
				}
				return
			}
			if len(held) != 1 || len(consumed) != 0 || held[0].State != store.HeldRetry || held[0].RetryIn > 0 || held[0].LastErr != "no such article" {
				t.Errorf("held %+v, consumed %+v", held, consumed)
			}
		})
	}
}

func TestASkippedEventThatAnotherReaderAppliedIsNotCountedTwice(t *testing.T) {
	d := heldDesk(t)
	d.applied("inventory", "dead")
	results, err := NewHeld(d.Store).Skip(t.Context(), annasWish, "inventory", "dead")
	d.must(err)
	if got := outcomes(results); got[0] != "dead: already consumed" {
		t.Errorf("got %q", got)
	}
	consumed, err := d.FindConsumed(t.Context(), "dead")
	d.must(err)
	if len(consumed) != 1 || consumed[0].Outcome != store.Applied || consumed[0].Duplicates != 0 {
		t.Errorf("consumed %+v", consumed)
	}
}

func TestHeldVerbsNeedAReasonAndATarget(t *testing.T) {
	v := NewHeld(heldDesk(t).Store)
	if _, err := v.Skip(t.Context(), store.Action{Actor: "anna", Reason: " "}, "inventory", "dead"); !errors.Is(err, store.ErrNoReason) {
		t.Errorf("got %v", err)
	}
	if _, err := v.Skip(t.Context(), annasWish, "inventory"); !errors.Is(err, ErrNoTarget) {
		t.Errorf("got %v", err)
	}
}

func TestAHeldVerbThatCannotBeAuditedChangesNothing(t *testing.T) {
	d := heldDesk(t)
	d.SetError(func(op string) error {
		if op == "record" {
			return errors.New("disk full")
		}
		return nil
	})
	if _, err := NewHeld(d.Store).Skip(t.Context(), annasWish, "inventory", "dead"); err == nil {
		t.Fatal("no error")
	}
	d.SetError(nil)
	held, err := d.ListHeld(t.Context(), "inventory", store.HeldFilter{EventID: "dead"})
	d.must(err)
	if len(held) != 1 || held[0].State != store.HeldDead {
		t.Errorf("held %+v", held)
	}
}

func TestHeldEventsAreFiltered(t *testing.T) {
	d := heldDesk(t)
	for _, c := range []struct {
		query HeldQuery
		want  int
		more  bool
	}{
		{HeldQuery{}, 4, false},
		{HeldQuery{Limit: 3}, 3, true},
		{HeldQuery{Error: "article"}, 1, false},
		{HeldQuery{State: store.HeldRetry}, 1, false},
		{HeldQuery{Key: "O-1", Topic: "orders", Type: "OrderPlaced"}, 4, false},
		{HeldQuery{Topic: "other"}, 0, false},
		{HeldQuery{Type: "other"}, 0, false},
		{HeldQuery{Key: "other"}, 0, false},
		{HeldQuery{EventID: "dead"}, 1, false},
	} {
		held, more, err := ListHeld(t.Context(), d.Store, "inventory", c.query)
		d.must(err)
		if len(held) != c.want || more != c.more {
			t.Errorf("%+v: got %d, more %t, want %d, %t", c.query, len(held), more, c.want, c.more)
		}
	}
}
