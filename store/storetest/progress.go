package storetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/waybillhq/waybill/store"
)

func progressCases[TX any]() []testCase[TX] {
	return []testCase[TX]{
		{"progress is read, locked and advanced", progressSteps[TX]},
		{"progress goes from where it was read, or not at all", progressMoved[TX]},
		{"a rollback forgets progress", progressRollback[TX]},
		{"a step wakes what waits for it, and nothing else", progressWakes[TX]},
		{"of two that lock an aggregate the second waits", progressLock[TX]},
		{"of an advance and a hold one sees the other", progressHoldRace[TX]},
		{"concurrent steps of the same aggregates lose nothing", progressConcurrent[TX]},
	}
}

func aggregate(id string) store.Aggregate { return store.Aggregate{Type: "order", ID: id} }

func advance(id string, from, to int64) store.Advance {
	return store.Advance{Aggregate: aggregate(id), From: from, To: to, EventID: id}
}

func step[TX any](t testing.TB, tx store.InboxTx[TX], advances ...store.Advance) (woken int) {
	t.Helper()
	woken, err := tx.AdvanceProgress(t.Context(), group, advances)
	if err != nil {
		t.Fatalf("advance progress: %v", err)
	}
	return woken
}

func (s *suite[TX]) wantProgress(t testing.TB, want map[string]int64) {
	t.Helper()
	var ids []store.Aggregate
	for id := range want {
		ids = append(ids, aggregate(id))
	}
	found, err := s.Consumer.FindProgress(t.Context(), group, ids)
	if err != nil || len(found) != len(ids) {
		t.Fatalf("find progress: got %d of %d, %v", len(found), len(ids), err)
	}
	for i, p := range found {
		if p.Aggregate != ids[i] || p.Version != want[p.Aggregate.ID] {
			t.Errorf("progress %d: got %v, want version %d of %v", i, p, want[p.Aggregate.ID], ids[i])
		}
	}
}

func progressSteps[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	odd := store.Aggregate{TenantID: "t 'ü", Type: "Order", ID: "o\"\\-1 "}
	s.inInbox(t, func(tx store.InboxTx[TX]) {
		found, err := tx.ReadProgress(t.Context(), group, []store.Aggregate{aggregate("a"), odd})
		if err != nil || len(found) != 2 || found[0].Version != 0 || found[1].Aggregate != odd {
			t.Errorf("nothing settled: got %v, %v", found, err)
		}
		step(t, tx, advance("b", 0, 3), advance("a", 0, 1), store.Advance{Aggregate: odd, To: 7, EventID: "it's ü"})
		if found, err := tx.ReadProgress(t.Context(), group, []store.Aggregate{odd, aggregate("a")}); err != nil || found[0].Version != 7 || found[1].Version != 1 {
			t.Errorf("the transaction's own steps: got %v, %v", found, err)
		}
	})
	s.inInbox(t, func(tx store.InboxTx[TX]) {
		step(t, tx, advance("a", 1, 2), advance("new", 0, 1), advance("b", 3, 3))
		locked, err := tx.LockProgress(t.Context(), group, odd)
		if want := (store.Progress{Aggregate: odd, Version: 7, EventID: "it's ü"}); err != nil || locked != want {
			t.Errorf("lock: got %v, %v, want %v", locked, err, want)
		}
		locked, err = tx.LockProgress(t.Context(), group, aggregate("locked"))
		if err != nil || locked.Version != 0 {
			t.Errorf("lock of what is not there: got %v, %v", locked, err)
		}
		step(t, tx, advance("locked", 0, 5))
		step(t, tx)
	})
	s.wantProgress(t, map[string]int64{"a": 2, "b": 3, "new": 1, "locked": 5, "A": 0, "a ": 0})
	other, err := s.Consumer.FindProgress(t.Context(), "points", []store.Aggregate{aggregate("a")})
	if err != nil || other[0].Version != 0 {
		t.Errorf("another group's progress: got %v, %v", other, err)
	}
	groups, err := s.Consumer.Groups(t.Context())
	if err != nil || !slices.Equal(groups, []string{group}) {
		t.Errorf("groups: got %q, %v", groups, err)
	}
}

func progressMoved[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	s.inInbox(t, func(tx store.InboxTx[TX]) { step(t, tx, advance("a", 0, 4), advance("b", 0, 1)) })
	for _, c := range []struct {
		name string
		step store.Advance
	}{
		{"from less", advance("a", 3, 5)},
		{"from more", advance("a", 5, 6)},
		{"from nothing", advance("a", 0, 1)},
		{"of what is not there", advance("c", 1, 2)},
	} {
		tx := s.beginInbox(t)
		if _, err := tx.AdvanceProgress(t.Context(), group, []store.Advance{advance("b", 1, 2), c.step}); !errors.Is(err, store.ErrMoved) {
			t.Errorf("%s: got %v, want %v", c.name, err, store.ErrMoved)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.wantProgress(t, map[string]int64{"a": 4, "b": 1, "c": 0})
}

func progressRollback[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	tx := s.beginInbox(t)
	step(t, tx, advance("a", 0, 1))
	if err := tx.Savepoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	step(t, tx, advance("a", 1, 2), advance("b", 0, 1))
	if err := tx.RollbackTo(t.Context()); err != nil {
		t.Fatal(err)
	}
	step(t, tx, advance("a", 1, 3))
	s.commitInbox(t, tx)
	s.wantProgress(t, map[string]int64{"a": 3, "b": 0})
	tx = s.beginInbox(t)
	step(t, tx, advance("a", 3, 4))
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.wantProgress(t, map[string]int64{"a": 3})
}

func progressWakes[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	of := func(id, key string, version int64, state store.HeldState) store.Held {
		held := kept(id, key, state)
		held.Event.AggregateID, held.Event.AggregateVersion = "a", version
		return held
	}
	tenants := of("7", "k", 3, store.HeldWaiting)
	tenants.Event.TenantID = "other"
	s.hold(t,
		of("1", "k", 3, store.HeldWaiting), of("2", "k", 4, store.HeldWaiting), of("3", "another key", 2, store.HeldWaiting),
		of("4", "k", 3, store.HeldDead), of("5", "k", 3, store.HeldRetry), tenants,
	)
	s.inInbox(t, func(tx store.InboxTx[TX]) {
		hold(t, tx, of("6", "k", 3, store.HeldWaiting)) // of this very transaction
		if woken := step(t, tx, advance("a", 0, 2), advance("b", 0, 1)); woken != 3 {
			t.Errorf("woken: got %d, want 3", woken)
		}
	})
	var got []string
	for _, h := range s.listHeld(t, store.HeldFilter{}) {
		got = append(got, h.Event.ID+" "+string(h.State))
	}
	want := []string{"1 BLOCKED", "2 WAITING", "3 BLOCKED", "4 DEAD", "5 RETRY", "7 WAITING", "6 BLOCKED"}
	if !slices.Equal(got, want) {
		t.Errorf("held: got %q, want %q", got, want)
	}
}

func progressLock[TX any](t *testing.T, s *suite[TX]) {
	s.needsTwoWriters(t)
	s.open(t)
	first := s.beginInbox(t)
	if _, err := first.LockProgress(t.Context(), group, aggregate("a")); err != nil {
		t.Fatal(err)
	}
	second := s.beginInbox(t)
	if _, err := second.LockProgress(t.Context(), group, aggregate("b")); err != nil {
		t.Fatalf("another aggregate: %v", err)
	}
	done := make(chan error, 1)
	var seen store.Progress
	go func() {
		var err error
		seen, err = second.LockProgress(t.Context(), group, aggregate("a"))
		done <- err
	}()
	stillWaiting(t, "the second lock", done)
	step(t, first, advance("a", 0, 1))
	s.commitInbox(t, first)
	if err := received(t, "the answer", done); err != nil || seen.Version != 1 {
		t.Errorf("after the wait: got %v, %v, want version 1", seen, err)
	}
}

// progressHoldRace: A passes version 2 while B, that has read version 1, holds
// version 3. Either order of the two must leave version 3 awake.
func progressHoldRace[TX any](t *testing.T, s *suite[TX]) {
	s.needsTwoWriters(t)
	s.open(t)
	s.inInbox(t, func(tx store.InboxTx[TX]) { step(t, tx, advance("a", 0, 1)) })
	a, b := s.beginInbox(t), s.beginInbox(t)
	if _, err := b.LockProgress(t.Context(), group, aggregate("a")); err != nil {
		t.Fatal(err)
	}
	held := kept("v3", "a", store.HeldWaiting)
	held.Event.AggregateVersion = 3
	hold(t, b, held)
	done := make(chan error, 1)
	var woken int
	go func() {
		var err error
		woken, err = a.AdvanceProgress(t.Context(), group, []store.Advance{advance("a", 1, 2)})
		done <- err
	}()
	stillWaiting(t, "the advance", done)
	s.commitInbox(t, b)
	if err := received(t, "the answer", done); err != nil || woken != 1 {
		t.Errorf("advance after the hold: woke %d, %v, want 1", woken, err)
	}
	s.commitInbox(t, a)
	if got := s.listHeld(t, store.HeldFilter{})[0].State; got != store.HeldBlocked {
		t.Errorf("version 3: got %s, want %s", got, store.HeldBlocked)
	}
}

// progressConcurrent: several transactions step the same aggregates by one,
// beginning again when another was faster. No step may be lost or made twice.
func progressConcurrent[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	const workers, rounds = 3, 10
	ids := []store.Aggregate{aggregate("c"), aggregate("a"), aggregate("b")}
	var trouble problems
	var working sync.WaitGroup
	for w := range workers {
		working.Go(func() {
			for done := 0; done < rounds; {
				moved, err := s.stepAll(t.Context(), slices.Concat(ids[w:], ids[:w]))
				if trouble.add("step", err) {
					return
				}
				if moved {
					done++
				}
			}
		})
	}
	working.Wait()
	for _, err := range trouble.all {
		t.Error(err)
	}
	s.wantProgress(t, map[string]int64{"a": workers * rounds, "b": workers * rounds, "c": workers * rounds})
}

func (s *suite[TX]) stepAll(ctx context.Context, ids []store.Aggregate) (moved bool, err error) {
	tx, err := s.Consumer.BeginInbox(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	found, err := tx.ReadProgress(ctx, group, ids)
	if err != nil {
		return false, err
	}
	var advances []store.Advance
	for _, p := range found {
		advances = append(advances, store.Advance{Aggregate: p.Aggregate, From: p.Version, To: p.Version + 1, EventID: "e"})
	}
	if _, err := tx.AdvanceProgress(ctx, group, advances); err != nil {
		if errors.Is(err, store.ErrMoved) {
			err = nil
		}
		return false, err
	}
	return true, tx.Commit(ctx)
}
