package ops

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
)

func (d *desk) reach(version int64) {
	d.t.Helper()
	e := order("", version)
	d.consume(func(ctx context.Context, tx store.InboxTx[*memstore.Tx]) error {
		_, err := tx.AdvanceProgress(ctx, "inventory", []store.Advance{{Aggregate: store.AggregateOf(&e), To: version, EventID: "later"}})
		return err
	})
}

func TestRetryOfAStaleEventNeedsForce(t *testing.T) {
	d := heldDesk(t)
	d.reach(5) // the held events have version 1
	v := NewHeld(d.Store)
	results, err := v.Retry(t.Context(), annasWish, "inventory", "dead")
	d.must(err)
	if got := outcomes(results); !slices.Equal(got, []string{"dead: stale"}) {
		t.Errorf("retry: got %q", got)
	}
	held, err := v.find(t.Context(), "inventory", "dead")
	d.must(err)
	if held.State != store.HeldDead || held.Forced {
		t.Errorf("held %+v, want it unchanged", held)
	}
	if entries, err := d.Audit(t.Context(), 10); err != nil || len(entries) != 0 {
		t.Errorf("audit: %v, %v, want nothing of what did not happen", entries, err)
	}
	results, err = v.Force(t.Context(), annasWish, "inventory", "dead")
	d.must(err)
	if got := outcomes(results); !slices.Equal(got, []string{"dead: retried"}) {
		t.Errorf("force: got %q", got)
	}
	if held, err = v.find(t.Context(), "inventory", "dead"); err != nil || held.State != store.HeldRetry || !held.Forced {
		t.Errorf("held %+v, %v, want it due and forced", held, err)
	}
}

func TestRetryOfAConsumedEventIsADuplicate(t *testing.T) {
	d := heldDesk(t)
	d.applied("inventory", "done")
	d.applied("other", "elsewhere")
	results, err := NewHeld(d.Store).Retry(t.Context(), annasWish, "inventory", "done", "elsewhere")
	d.must(err)
	if got, want := outcomes(results), []string{"done: duplicate", "elsewhere: not held"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAwaitTellsWhatBecameOfEvents(t *testing.T) {
	s := openShop(t, "bad", "good")
	s.deliver("bad")
	s.await("bad DEAD")
	v := NewHeld(s.st)
	retry := func(want string) {
		t.Helper()
		results, err := v.Retry(t.Context(), annasWish, "inventory", "bad")
		if err == nil {
			results, err = v.Await(t.Context(), "inventory", results, 30*time.Second)
		}
		if err != nil || results[0].Outcome != want {
			t.Errorf("got %v, %v, want %s", results, err, want)
		}
	}
	retry("failed")
	s.mend("bad")
	retry("applied")
	retry("duplicate")
}

func (d *desk) doubtful(id string, idempotent bool, ttl time.Duration) {
	d.t.Helper()
	d.consume(func(ctx context.Context, tx store.InboxTx[*memstore.Tx]) error {
		_, err := tx.BeginEffect(ctx, store.EffectCall{
			Group: "inventory", EffectRef: store.EffectRef{EventID: id, Name: "coupon"}, Key: "k-" + id, Idempotent: idempotent, Owner: "gone",
		}, ttl)
		return err
	})
}

func TestEventInDoubtIsNotRetriedBlindly(t *testing.T) {
	d := heldDesk(t)
	d.doubtful("dead", false, 0)
	d.doubtful("retry", true, 0) // a second call is harmless
	v := NewHeld(d.Store)
	results, err := v.Retry(t.Context(), annasWish, "inventory", "dead", "retry")
	d.must(err)
	if got, want := outcomes(results), []string{"dead: in doubt", "retry: retried"}; !slices.Equal(got, want) {
		t.Errorf("retry: got %q, want %q", got, want)
	}
	results, err = v.Release(t.Context(), annasWish, "inventory", "dead")
	d.must(err)
	if got := outcomes(results); got[0] != "dead: in doubt" {
		t.Errorf("release: got %q", got)
	}
}

func TestResolve(t *testing.T) {
	for name, c := range map[string]struct {
		resolution Resolution
		busy       bool
		want       []string
		state      store.HeldState // afterwards; empty for no longer held
		call       store.EffectState
		after      string
	}{
		"done": {
			Resolution{Done: true, Result: []byte("C-77")},
			false,
			[]string{"dead: retried", "blocked: no doubt", "nope: not held"},
			store.HeldRetry, store.EffectDone, `{"group":"inventory","state":"RETRY","attempts":0,"calls":"done"}`,
		},
		"not done": {
			Resolution{NotDone: true},
			false,
			[]string{"dead: retried", "blocked: no doubt", "nope: not held"},
			store.HeldRetry, "", `{"group":"inventory","state":"RETRY","attempts":0,"calls":"not done"}`,
		},
		"compensated": {
			Resolution{Compensated: "REFUND-1"},
			false,
			[]string{"dead: compensated", "blocked: compensated", "nope: not held"},
			"", store.EffectDoing, `{"group":"inventory","outcome":"compensated","compensated":"REFUND-1"}`,
		},
		"while it is called": {
			Resolution{NotDone: true},
			true,
			[]string{"dead: busy", "blocked: no doubt", "nope: not held"},
			store.HeldDead, store.EffectDoing, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := heldDesk(t)
			ttl := time.Duration(0)
			if c.busy {
				ttl = time.Hour
			}
			d.doubtful("dead", false, ttl)
			v := NewHeld(d.Store)
			results, err := v.Resolve(t.Context(), annasWish, "inventory", c.resolution, "dead", "blocked", "nope")
			d.must(err)
			if got := outcomes(results); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			held, err := v.find(t.Context(), "inventory", "dead")
			d.must(err)
			if state := stateOf(held); state != c.state {
				t.Errorf("state %q, want %q", state, c.state)
			}
			calls, err := d.ListEffects(t.Context(), "inventory", "dead")
			d.must(err)
			var call store.EffectState
			if len(calls) == 1 {
				call = calls[0].State
			}
			if call != c.call || call == store.EffectDone && string(calls[0].Result) != "C-77" {
				t.Errorf("calls %+v, want %q", calls, c.call)
			}
			entries, err := d.Audit(t.Context(), 10)
			d.must(err)
			if c.after == "" {
				if len(entries) != 0 {
					t.Errorf("audit: %+v", entries)
				}
				return
			}
			last := entries[len(entries)-1]
			if last.Verb != "held resolve" || last.After != c.after || last.Actor != "anna" {
				t.Errorf("audit: %+v, want %s", last, c.after)
			}
			if consumed, err := d.FindConsumed(t.Context(), "dead"); err != nil || (len(consumed) == 1) != (c.state == "") {
				t.Errorf("consumed: %v, %v", consumed, err)
			}
		})
	}
	for name, r := range map[string]Resolution{
		"no answer": {}, "two answers": {Done: true, NotDone: true}, "a result of nothing": {NotDone: true, Result: []byte("x")},
	} {
		if _, err := NewHeld(heldDesk(t).Store).Resolve(t.Context(), annasWish, "inventory", r, "dead"); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func stateOf(h *store.Held) store.HeldState {
	if h == nil {
		return ""
	}
	return h.State
}

func TestFingerprintsPutErrorsTogether(t *testing.T) {
	same := []string{
		`insert order 4711: no such article "A-1"`, `insert order 12: no such  article "B-22"`, `Insert order 9: no such article ""`,
	}
	for _, text := range same {
		if got, want := Fingerprint(text), Fingerprint(same[0]); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	ids := []string{"event 01890a5d-ac96-774b-bcce-b302099a8057 refused", "event 01890a5d-ac96-774b-bcce-000000000000 refused"}
	if Fingerprint(ids[0]) != Fingerprint(ids[1]) {
		t.Errorf("%q and %q differ", ids[0], ids[1])
	}
	if Fingerprint("refused") == Fingerprint("accepted") || Fingerprint("") != "" {
		t.Error("what differs has one fingerprint")
	}
}

func TestHeldEventsAreGroupedByError(t *testing.T) {
	d := newDesk(t, memstore.Config{})
	d.must(d.Migrate(t.Context(), store.MigrateOptions{}))
	for _, id := range []string{"1", "2", "3"} {
		d.hold("inventory", id, store.HeldDead, 5, "no article "+id)
	}
	d.hold("inventory", "4", store.HeldRetry, 1, "timeout")
	d.hold("inventory", "5", store.HeldBlocked, 0, "")
	groups, err := GroupHeld(t.Context(), d.Store, "inventory", HeldQuery{})
	d.must(err)
	if len(groups) != 3 || groups[0].Events != 3 || groups[0].States["DEAD"] != 3 || groups[0].EventID != "1" || groups[0].Fingerprint == "" {
		t.Fatalf("got %+v", groups)
	}
	found, _, err := ListHeld(t.Context(), d.Store, "inventory", HeldQuery{Error: groups[0].Fingerprint})
	d.must(err)
	if len(found) != 3 {
		t.Errorf("by fingerprint: got %d, want 3", len(found))
	}
}

func TestHeldEventsAreFilteredByTime(t *testing.T) {
	d := newDesk(t, memstore.Config{})
	d.must(d.Migrate(t.Context(), store.MigrateOptions{}))
	d.hold("inventory", "old", store.HeldDead, 1, "x")
	d.at = d.at.Add(time.Hour)
	d.hold("inventory", "new", store.HeldBlocked, 0, "")
	for name, c := range map[string]struct {
		query HeldQuery
		want  []string
	}{
		"since":   {HeldQuery{Since: d.at}, []string{"new"}},
		"until":   {HeldQuery{Until: d.at}, []string{"old"}},
		"between": {HeldQuery{Since: d.at.Add(-2 * time.Hour), Until: d.at.Add(time.Minute)}, []string{"old", "new"}},
	} {
		found, _, err := ListHeld(t.Context(), d.Store, "inventory", c.query)
		d.must(err)
		var ids []string
		for _, h := range found {
			ids = append(ids, h.Event.ID)
		}
		if !slices.Equal(ids, c.want) {
			t.Errorf("%s: got %v, want %v", name, ids, c.want)
		}
	}
}
