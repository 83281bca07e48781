package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

func applyCases[TX any]() []testCase[TX] {
	return []testCase[TX]{
		{"settled events leave the queue and get a receipt", applySettled[TX]},
		{"forgotten events leave no trace", applyForget[TX]},
		{"another event under a settled id is not forgotten", applyForgetAnother[TX]},
		{"a refused event is parked with its errors", applyFailed[TX]},
		{"a dead event stays until a person decides", applyDead[TX]},
		{"all kinds of changes go together", applyMixed[TX]},
		{"a whole batch goes together", applyBatch[TX]},
		{"rows that are gone are passed over", applyGone[TX]},
		{"an existing receipt is replaced", applyReceiptExists[TX]},
		{"a stale guard changes nothing", applyStale[TX]},
		{"an expired lease changes nothing", applyExpired[TX]},
		{"empty changes prove that the queue can be written", applyEmpty[TX]},
		{"an open application transaction does not block", applyBesideOpenTransaction[TX]},
	}
}

func applySettled[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	sent, skipped := s.event("a"), s.event("b")
	s.append(t, sent, skipped)
	rows := s.hotByID(t)
	changes := settled(rows[sent.ID], rows[skipped.ID])
	changes.Settled[0].PublishedTo = "orders[3]@1042 ü"
	changes.Settled[1].Outcome = store.StatusSkipped
	changes.Settled[1].Via = "cdc"
	changes.Settled[1].Note = "skipped by anna: bad data"
	s.apply(t, s.own(t), changes)
	s.wantHot(t)
	for i, id := range []string{sent.ID, skipped.ID} {
		found, want := s.tracked(t, id), changes.Settled[i]
		if found.Queued() || found.Status != want.Outcome || found.Receipt == nil {
			t.Fatalf("settled %s: got %+v", id, found)
		}
		got := *found.Receipt
		if got.Outcome != want.Outcome || got.Via != want.Via || got.PublishedTo != want.PublishedTo || got.Note != want.Note {
			t.Errorf("receipt: got %+v, want %+v", got, want)
		}
		if got.PublishedAt.Before(found.CreatedAt.Add(-time.Second)) {
			t.Errorf("published at %v, before it was created at %v", got.PublishedAt, found.CreatedAt)
		}
	}
}

func applyForget[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	gone, kept := s.event("a"), s.event("b")
	s.append(t, gone, kept)
	changes := settled(s.row(t, gone.ID))
	changes.Forget = true
	guard := s.own(t)
	s.apply(t, guard, changes)
	s.apply(t, guard, changes) // once more, as after a lost answer
	if _, found := s.lookUp(t, gone.ID); found {
		t.Error("the event is still there")
	}
	s.wantHot(t, kept.ID)
	if orphans, err := s.Outbox.Orphans(t.Context(), 10); err != nil || len(orphans) != 0 {
		t.Errorf("orphans: got %v, %v, want none", orphans, err)
	}
}

// A table may be emptied and filled again, and its ids begin anew.
func applyForgetAnother[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	replayed, another, last := s.event("a"), s.event("b"), s.event("c")
	s.append(t, replayed, another, last)
	guard := s.own(t)
	s.apply(t, guard, settled(s.row(t, replayed.ID))) // it has a receipt
	if _, err := s.Outbox.Requeue(t.Context(), store.Action{Actor: "test", Reason: "replay"}, []string{replayed.ID}); err != nil {
		t.Fatal(err)
	}
	rows := s.hotByID(t)
	changes := settled(rows[replayed.ID], rows[another.ID], rows[last.ID])
	changes.Settled[1].EventID = "was here before"
	changes.Forget = true
	s.apply(t, guard, changes)
	s.wantHot(t, another.ID)
	for _, id := range []string{replayed.ID, last.ID} {
		if _, found := s.lookUp(t, id); found {
			t.Errorf("%s is still there", id)
		}
	}
}

func applyFailed[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	e := s.event("a")
	s.append(t, e)
	guard := s.own(t)
	s.apply(t, guard, failed(s.row(t, e.ID), false, time.Hour, "first: it's 'ü'"))
	first := s.tracked(t, e.ID)
	s.apply(t, guard, failed(first.Row, false, 2*time.Hour, "second"))
	found := s.tracked(t, e.ID)
	row := found.Row
	if row == nil || found.Status != store.StatusPending || !row.Parked || row.Retries != 2 || !row.HasRetry {
		t.Fatalf("after two refusals: got %+v", row)
	}
	if row.FirstErr != "first: it's 'ü'" || row.LastErr != "second" {
		t.Errorf("errors: got %q and %q", row.FirstErr, row.LastErr)
	}
	if row.RetryIn <= time.Hour || row.RetryIn > 2*time.Hour {
		t.Errorf("retry in: got %v, want about 2h", row.RetryIn)
	}
	s.apply(t, guard, failed(row, false, time.Hour, strings.Repeat("long error ", 2000)))
	if got := s.tracked(t, e.ID).Row; got == nil || got.Retries != 3 || !strings.HasPrefix(got.LastErr, "long error ") {
		t.Error("a long error was not written")
	}
}

func applyDead[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	e := s.event("a")
	s.append(t, e)
	guard := s.own(t)
	s.apply(t, guard, failed(s.row(t, e.ID), false, -time.Second, "first"))
	s.apply(t, guard, failed(s.tracked(t, e.ID).Row, true, time.Hour, "last"))
	found := s.tracked(t, e.ID)
	if found.Status != store.StatusDead || found.Row == nil || !found.Row.Parked || found.Row.HasRetry || found.Row.Retries != 2 ||
		found.Row.FirstErr != "first" || found.Row.LastErr != "last" {
		t.Errorf("dead row: got %+v", found.Row)
	}
	due, err := s.Outbox.FetchDue(t.Context(), allLanes(), 10)
	if err != nil || len(due) != 0 {
		t.Errorf("a dead event is due: %v, %v", due, err)
	}
}

func applyMixed[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	events := s.events("a", "b", "c", "d")
	s.append(t, events...)
	rows := s.hotByID(t)
	changes := settled(rows[events[0].ID])
	changes.Failed = append(failed(rows[events[1].ID], false, time.Hour, "later").Failed, failed(rows[events[2].ID], true, 0, "never").Failed...)
	changes.Parked = []int64{rows[events[3].ID].ID}
	s.apply(t, s.own(t), changes)
	for i, want := range []store.Status{store.StatusSent, store.StatusPending, store.StatusDead, store.StatusPending} {
		if got := s.tracked(t, events[i].ID); got.Status != want || got.Row != nil && !got.Row.Parked {
			t.Errorf("event %d: got %s, row %+v, want %s", i, got.Status, got.Row, want)
		}
	}
}

func applyBatch[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	rows := s.spread(t, 500)
	changes := settled(rows[:400]...)
	for _, row := range rows[400:450] {
		changes.Failed = append(changes.Failed, failed(row, row.ID%2 == 0, time.Hour, fmt.Sprintf("error of %d", row.ID)).Failed...)
	}
	for _, row := range rows[450:] {
		changes.Parked = append(changes.Parked, row.ID)
	}
	s.apply(t, s.own(t), changes)
	s.wantHot(t)
	counts, err := s.Outbox.Counts(t.Context())
	if err != nil || counts.Pending+counts.Dead != 100 || counts.Parked != 100 {
		t.Errorf("counts: got %+v, %v", counts, err)
	}
	for _, row := range rows[400:450] {
		if got := s.tracked(t, row.Event.ID).Row; got == nil || got.LastErr != fmt.Sprintf("error of %d", row.ID) {
			t.Fatalf("row %d has another's error: %+v", row.ID, got)
		}
	}
}

func applyGone[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	gone, here := s.event("a"), s.event("b")
	s.append(t, gone, here)
	rows := s.hotByID(t)
	guard := s.own(t)
	s.apply(t, guard, settled(rows[gone.ID]))
	before := s.tracked(t, gone.ID)

	changes := settled(rows[gone.ID], rows[here.ID])
	changes.Settled[0].Note = "late"
	changes.Failed = failed(rows[gone.ID], true, 0, "late").Failed
	changes.Failed = append(changes.Failed, failed(&store.Row{ID: 1 << 40}, false, 0, "never was").Failed...)
	changes.Parked = []int64{rows[gone.ID].ID, 1 << 41}
	s.apply(t, guard, changes)

	after := s.tracked(t, gone.ID)
	if after.Queued() || after.Status != store.StatusSent || after.Receipt == nil || after.Receipt.Note != before.Receipt.Note {
		t.Errorf("a settled event was changed: %+v", after)
	}
	if got := s.tracked(t, here.ID); got.Status != store.StatusSent {
		t.Errorf("the row beside it: got %s, want SENT", got.Status)
	}
}

func applyReceiptExists[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	e, other := s.event("a"), s.event("b")
	s.append(t, e, other)
	guard := s.own(t)
	s.apply(t, guard, settled(s.row(t, e.ID)))
	if _, err := s.Outbox.Requeue(t.Context(), store.Action{Actor: "test", Reason: "replay"}, []string{e.ID}); err != nil {
		t.Fatal(err)
	}
	if got := s.tracked(t, e.ID); got.Status != store.StatusPending || !got.Queued() {
		t.Errorf("a requeued event: got %s, queued %t", got.Status, got.Queued())
	}
	rows := s.hotByID(t)
	changes := settled(rows[e.ID], rows[other.ID])
	changes.Settled[0].Note = "replayed"
	s.apply(t, guard, changes)
	s.wantHot(t)
	if got := s.tracked(t, e.ID); got.Receipt == nil || got.Receipt.Note != "replayed" {
		t.Errorf("receipt: got %+v, want the new one", got.Receipt)
	}
	if got := s.tracked(t, other.ID); got.Status != store.StatusSent {
		t.Errorf("the row beside it: got %s, want SENT", got.Status)
	}
}

// wantStale requires the error to name exactly these lanes.
func wantStale(t *testing.T, what string, err error, lanes ...int) {
	t.Helper()
	var stale *store.StaleError
	if !errors.Is(err, store.ErrStale) || !errors.As(err, &stale) {
		t.Errorf("%s: got error %v, want a StaleError", what, err)
		return
	}
	got := slices.Clone(stale.Lanes)
	slices.Sort(got)
	slices.Sort(lanes)
	if !slices.Equal(got, lanes) {
		t.Errorf("%s: lanes: got %v, want %v", what, got, lanes)
	}
}

// unchanged runs do and requires three fresh rows to be as they were.
func (s *suite[TX]) unchanged(t *testing.T, do func(changes store.Changes)) {
	t.Helper()
	events := s.events("a", "b", "c")
	s.append(t, events...)
	rows := s.hotByID(t)
	changes := settled(rows[events[0].ID])
	changes.Failed = failed(rows[events[1].ID], true, 0, "stale").Failed
	changes.Parked = []int64{rows[events[2].ID].ID}
	do(changes)
	changes.Forget = true
	do(changes)
	for _, e := range events {
		row := s.row(t, e.ID)
		if row.Status != store.StatusPending || row.Retries != 0 || row.LastErr != "" {
			t.Errorf("a stale owner changed %s: %+v", e.ID, row)
		}
		if s.tracked(t, e.ID).Receipt != nil {
			t.Errorf("a stale owner wrote a receipt of %s", e.ID)
		}
	}
}

func applyStale[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	guard := s.own(t)
	wrongOwner := store.Guard{Owner: "relay-2", Lanes: guard.Lanes[:2]}
	wrongFence := store.Guard{Owner: owner, Lanes: slices.Clone(guard.Lanes[:3])}
	wrongFence.Lanes[1].Fence--
	s.unchanged(t, func(changes store.Changes) {
		wantStale(t, "wrong owner", s.Outbox.Apply(t.Context(), wrongOwner, changes), guard.Lanes[0].Lane, guard.Lanes[1].Lane)
		wantStale(t, "wrong fence", s.Outbox.Apply(t.Context(), wrongFence, changes), guard.Lanes[1].Lane)
	})
	// The lanes change hands; the former owner writes late.
	if err := s.Outbox.Release(t.Context(), owner, guard.Lanes); err != nil {
		t.Fatal(err)
	}
	s.unchanged(t, func(changes store.Changes) {
		wantStale(t, "released", s.Outbox.Apply(t.Context(), store.Guard{Owner: owner, Lanes: guard.Lanes[:1]}, changes), guard.Lanes[0].Lane)
	})
	s.ownFor(t, "relay-2", time.Hour)
	s.unchanged(t, func(changes store.Changes) {
		wantStale(t, "taken over", s.Outbox.Apply(t.Context(), store.Guard{Owner: owner, Lanes: guard.Lanes[:1]}, changes), guard.Lanes[0].Lane)
	})
}

func applyExpired[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	guard := s.ownFor(t, owner, short)
	eventually(t, "the lease expires", func() bool { return s.lane(t, guard.Lanes[0].Lane).ExpiresIn <= 0 })
	s.unchanged(t, func(changes store.Changes) {
		wantStale(t, "expired", s.Outbox.Apply(t.Context(), store.Guard{Owner: owner, Lanes: guard.Lanes[:1]}, changes), guard.Lanes[0].Lane)
	})
}

func applyEmpty[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	guard := s.own(t)
	s.apply(t, guard, store.Changes{})
	s.apply(t, store.Guard{Owner: owner}, store.Changes{})
	wantStale(t, "wrong owner", s.Outbox.Apply(t.Context(), store.Guard{Owner: "relay-2", Lanes: guard.Lanes[:1]}, store.Changes{}), guard.Lanes[0].Lane)
}

func applyBesideOpenTransaction[TX any](t *testing.T, s *suite[TX]) {
	s.needsTwoWriters(t)
	s.open(t)
	events := []waybill.Event{s.event("a"), s.event("b")}
	s.append(t, events...)
	rows := s.hotByID(t)
	guard := s.own(t)
	open := s.begin(t)
	s.appendTo(t, open, s.event("a"), s.event("b"))
	s.apply(t, guard, settled(rows[events[0].ID]))
	s.apply(t, guard, failed(rows[events[1].ID], true, 0, "never"))
	if _, _, err := s.Outbox.Renew(t.Context(), store.Heartbeat{Owner: owner, TTL: time.Hour, Held: guard.Lanes}); err != nil {
		t.Fatalf("renew: %v", err)
	}
	if n, err := s.Outbox.Cleanup(t.Context(), store.CleanupRequest{}); err != nil || n != 1 {
		t.Fatalf("cleanup: got %d, %v, want 1", n, err)
	}
	s.commit(t, open)
}
