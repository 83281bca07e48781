package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/waybillhq/waybill/store"
)

func effectCases[TX any]() []testCase[TX] {
	return []testCase[TX]{
		{"a call comes back as it was begun", effectFields[TX]},
		{"a call that is taken over keeps its key", effectTaken[TX]},
		{"only the owner finishes a call, expired or not", effectFinish[TX]},
		{"a call that is done stays as it is", effectDone[TX]},
		{"a call is forgotten while it is not done", effectForget[TX]},
		{"a rollback to the savepoint undoes a call", effectRollback[TX]},
		{"leases are renewed for their owner alone", effectRenew[TX]},
		{"a call goes with its consumed event", effectCleanup[TX]},
	}
}

func coupon(eventID, owner string) store.EffectCall {
	return store.EffectCall{
		Group: group, EffectRef: store.EffectRef{EventID: eventID, Name: "coupon"}, Key: "schlüssel '" + eventID + "'", Owner: owner, Idempotent: true,
	}
}

func (s *suite[TX]) beginEffect(t testing.TB, call store.EffectCall, ttl time.Duration) (begun store.EffectCall) {
	t.Helper()
	s.inInbox(t, func(tx store.InboxTx[TX]) {
		var err error
		if begun, err = tx.BeginEffect(t.Context(), call, ttl); err != nil {
			t.Fatalf("begin effect: %v", err)
		}
	})
	return begun
}

func (s *suite[TX]) finishEffect(t testing.TB, call store.EffectCall) (done bool) {
	t.Helper()
	s.inInbox(t, func(tx store.InboxTx[TX]) {
		var err error
		if done, err = tx.FinishEffect(t.Context(), call); err != nil {
			t.Fatalf("finish effect: %v", err)
		}
	})
	return done
}

func (s *suite[TX]) effects(t testing.TB, eventID string) []store.EffectCall {
	t.Helper()
	found, err := s.Consumer.ListEffects(t.Context(), group, eventID)
	if err != nil {
		t.Fatalf("list effects: %v", err)
	}
	return found
}

func (s *suite[TX]) effect(t testing.TB, eventID string) store.EffectCall {
	t.Helper()
	found := s.effects(t, eventID)
	if len(found) != 1 {
		t.Fatalf("effects of %s: got %d, want 1", eventID, len(found))
	}
	return found[0]
}

func effectFields[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	want := coupon("ü's", "me")
	other := want
	other.Name, other.Idempotent = "a mail", false
	s.beginEffect(t, want, time.Hour)
	s.beginEffect(t, other, time.Hour)
	var inTx []store.EffectCall
	s.inInbox(t, func(tx store.InboxTx[TX]) {
		var err error
		if inTx, err = tx.EffectsOf(t.Context(), group, "ü's"); err != nil {
			t.Fatal(err)
		}
	})
	for where, found := range map[string][]store.EffectCall{"list": s.effects(t, "ü's"), "effects of": inTx} {
		if len(found) != 2 || found[0].Name != "a mail" || found[0].Idempotent {
			t.Fatalf("%s: got %+v, want both by name", where, found)
		}
		got := found[1]
		if got.ExpiresIn < 50*time.Minute || got.ExpiresIn > time.Hour || got.StartedAt.IsZero() || got.StartedAt.Location() != time.UTC {
			t.Errorf("%s: expires in %v, started at %v", where, got.ExpiresIn, got.StartedAt)
		}
		if got.Group != group || got.EffectRef != want.EffectRef || got.Key != want.Key || got.Owner != "me" || !got.Idempotent ||
			got.State != store.EffectDoing || got.Tries != 1 || got.Result != nil {
			t.Errorf("%s: got %+v, want %+v", where, got, want)
		}
	}
	if found := s.effects(t, "other"); len(found) != 0 {
		t.Errorf("effects of another event: %+v", found)
	}
}

func effectTaken[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	s.beginEffect(t, coupon("1", "first"), 0)
	if got := s.effect(t, "1"); got.ExpiresIn > 0 {
		t.Errorf("a lease of no time expires in %v", got.ExpiresIn)
	}
	next := coupon("1", "second")
	next.Key = "another"
	begun := s.beginEffect(t, next, time.Hour)
	if begun.Key != coupon("1", "").Key || begun.Owner != "second" || begun.Tries != 2 || begun.ExpiresIn <= 0 {
		t.Errorf("taken over: got %+v", begun)
	}
}

func effectFinish[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	call := coupon("1", "me")
	s.beginEffect(t, call, 0)
	stranger := coupon("1", "stranger")
	if s.finishEffect(t, stranger) {
		t.Error("a stranger finished the call")
	}
	call.Result = []byte("\x00\xff{}")
	if !s.finishEffect(t, call) {
		t.Error("the owner could not finish the call")
	}
	if s.finishEffect(t, call) {
		t.Error("the call was finished twice")
	}
	if got := s.effect(t, "1"); got.State != store.EffectDone || !slices.Equal(got.Result, call.Result) {
		t.Errorf("got %+v, want it DONE with its result", got)
	}
	if s.finishEffect(t, coupon("unknown", "me")) {
		t.Error("a call that nobody began was finished")
	}
}

func effectDone[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	call := coupon("1", "me")
	s.beginEffect(t, call, time.Hour)
	s.finishEffect(t, call)
	begun := s.beginEffect(t, coupon("1", "second"), time.Hour)
	if begun.State != store.EffectDone || begun.Owner != "me" || begun.Tries != 1 {
		t.Errorf("begun again: got %+v, want it DONE and the first owner's", begun)
	}
	s.inInbox(t, func(tx store.InboxTx[TX]) {
		if forgot, err := tx.ForgetEffect(t.Context(), group, call.EffectRef); err != nil || forgot {
			t.Errorf("forget: got %t, %v, want it kept", forgot, err)
		}
	})
}

func effectForget[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	call := coupon("1", "me")
	s.beginEffect(t, call, time.Hour)
	s.inInbox(t, func(tx store.InboxTx[TX]) {
		for _, want := range []bool{true, false} {
			if forgot, err := tx.ForgetEffect(t.Context(), group, call.EffectRef); err != nil || forgot != want {
				t.Errorf("forget: got %t, %v, want %t", forgot, err, want)
			}
		}
	})
	if found := s.effects(t, "1"); len(found) != 0 {
		t.Errorf("got %+v, want none", found)
	}
}

func effectRollback[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	s.inInbox(t, func(tx store.InboxTx[TX]) {
		if _, err := tx.BeginEffect(t.Context(), coupon("kept", "me"), time.Hour); err != nil {
			t.Fatal(err)
		}
		if err := tx.Savepoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.BeginEffect(t.Context(), coupon("undone", "me"), time.Hour); err != nil {
			t.Fatal(err)
		}
		if done, err := tx.FinishEffect(t.Context(), coupon("kept", "me")); err != nil || !done {
			t.Fatalf("finish: got %t, %v", done, err)
		}
		if err := tx.RollbackTo(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	if got := s.effect(t, "kept"); got.State != store.EffectDoing {
		t.Errorf("kept: got %+v, want it DOING", got)
	}
	if found := s.effects(t, "undone"); len(found) != 0 {
		t.Errorf("undone: got %+v, want none", found)
	}
}

func effectRenew[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	for id, owner := range map[string]string{"1": "me", "2": "me", "3": "other", "done": "me"} {
		s.beginEffect(t, coupon(id, owner), 0)
	}
	s.finishEffect(t, coupon("done", "me"))
	var refs []store.EffectRef
	for _, id := range []string{"1", "3", "done", "unknown"} {
		refs = append(refs, coupon(id, "").EffectRef)
	}
	renew := func(ttl time.Duration, refs ...store.EffectRef) []store.EffectRef {
		held, err := s.Consumer.RenewEffects(t.Context(), group, "me", ttl, refs)
		if err != nil {
			t.Fatalf("renew effects: %v", err)
		}
		return held
	}
	if held := renew(time.Hour, refs...); !slices.Equal(held, refs[:1]) {
		t.Errorf("renewed: got %v, want %v", held, refs[:1])
	}
	for id, live := range map[string]bool{"1": true, "2": false, "3": false} {
		if got := s.effect(t, id).ExpiresIn > 0; got != live {
			t.Errorf("lease of %s: live %t, want %t", id, got, live)
		}
	}
	renew(0, refs[0])
	if got := s.effect(t, "1").ExpiresIn; got > 0 {
		t.Errorf("a lease that was ended expires in %v", got)
	}
	if held := renew(time.Hour); len(held) != 0 {
		t.Errorf("renewed none: got %v", held)
	}
}

func effectCleanup[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	s.consumeInTurn(t, "1", "2")
	for _, id := range []string{"1", "2", "unsettled"} {
		s.beginEffect(t, coupon(id, "me"), time.Hour)
	}
	if n, err := s.Consumer.CleanupConsumed(t.Context(), group, 0, 0); err != nil || n != 1 {
		t.Fatalf("cleanup: got %d, %v, want 1", n, err)
	}
	if found := s.effects(t, "1"); len(found) != 0 {
		t.Errorf("the removed event's call: got %+v", found)
	}
	s.effect(t, "2")
	s.effect(t, "unsettled")
}
