package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

func cleanupCases[TX any]() []testCase[TX] {
	return []testCase[TX]{
		{"only settled events past the retention go", cleanupRetention[TX]},
		{"an event with a queue row stays, whatever its receipt says", cleanupQueued[TX]},
		{"cleanup keeps below its bound and within its limit", cleanupBounds[TX]},
		{"receipts go with their events", cleanupReceipts[TX]},
		{"archived events are still found", cleanupArchive[TX]},
		{"cleanup and requeue do not lose an event between them", cleanupRequeueRace[TX]},
		{"consumed rows go, but the newest of a partition", cleanupConsumed[TX]},
	}
}

func (s *suite[TX]) cleanup(t testing.TB, request store.CleanupRequest) int {
	t.Helper()
	n, err := s.Outbox.Cleanup(t.Context(), request)
	if err != nil {
		t.Fatalf("cleanup: %v", err)
	}
	return n
}

func cleanupRetention[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	events := s.events("a", "b", "c", "d")
	s.append(t, events...)
	rows := s.hotByID(t)
	guard := s.own(t)
	skipped := settled(rows[events[1].ID])
	skipped.Settled[0].Outcome = store.StatusSkipped
	s.apply(t, guard, settled(rows[events[0].ID]))
	s.apply(t, guard, skipped)
	s.apply(t, guard, failed(rows[events[2].ID], true, 0, "x"))
	if n := s.cleanup(t, store.CleanupRequest{Retention: time.Hour}); n != 0 {
		t.Errorf("cleanup within the retention removed %d", n)
	}
	removed := 0
	eventually(t, "the retention ends", func() bool {
		removed += s.cleanup(t, store.CleanupRequest{Retention: short})
		return removed == 2
	})
	if got, want := s.find(t, store.Filter{}), []string{events[2].ID, events[3].ID}; !slices.Equal(got, want) {
		t.Errorf("left: got %v, want %v", got, want)
	}
	if n := s.cleanup(t, store.CleanupRequest{}); n != 0 {
		t.Errorf("cleanup removed %d unsettled events", n)
	}
	s.append(t, events[0]) // the id is free again
	s.wantHot(t, events[0].ID, events[3].ID)
	if s.tracked(t, events[0].ID).Receipt != nil {
		t.Error("the receipt outlived its event")
	}
}

func cleanupQueued[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	replayed, sent := s.event("a"), s.event("b")
	s.append(t, replayed, sent)
	rows := s.hotByID(t)
	s.apply(t, s.own(t), settled(rows[replayed.ID], rows[sent.ID]))
	if _, err := s.Outbox.Requeue(t.Context(), because, []string{replayed.ID}); err != nil {
		t.Fatal(err)
	}
	if n := s.cleanup(t, store.CleanupRequest{}); n != 1 {
		t.Errorf("cleanup: got %d, want 1", n)
	}
	s.wantHot(t, replayed.ID)
	if _, found := s.lookUp(t, sent.ID); found {
		t.Error("the settled event is still there")
	}
}

func cleanupBounds[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	rows := s.spread(t, 20)
	s.apply(t, s.own(t), settled(rows...))
	if n := s.cleanup(t, store.CleanupRequest{Below: rows[10].ID}); n != 10 {
		t.Errorf("below the bound: removed %d, want 10", n)
	}
	left := s.find(t, store.Filter{})
	if len(left) != 10 || left[0] != rows[10].Event.ID {
		t.Errorf("left: got %v, want the last ten", left)
	}
	for _, want := range []int{4, 4, 2, 0} {
		if n := s.cleanup(t, store.CleanupRequest{Limit: 4}); n != want {
			t.Errorf("limit 4: removed %d, want %d", n, want)
		}
	}
}

// cleanupReceipts gives the id of an event that is gone to another one.
func cleanupReceipts[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	for _, forget := range []bool{false, true} {
		gone := s.event("a")
		s.append(t, gone)
		row := s.row(t, gone.ID)
		s.apply(t, s.own(t), settled(row))
		if forget {
			if _, err := s.Outbox.Requeue(t.Context(), because, []string{gone.ID}); err != nil {
				t.Fatal(err)
			}
			changes := settled(row)
			changes.Forget = true
			s.apply(t, s.own(t), changes)
		} else if n := s.cleanup(t, store.CleanupRequest{}); n != 1 {
			t.Fatalf("cleanup: got %d, want 1", n)
		}
		next := s.plain("a")
		s.exec(t, Statement{ID: row.ID, Event: next})
		if found := s.tracked(t, next.ID); found.Receipt != nil || found.Status != store.StatusPending {
			t.Errorf("forget %t: the receipt outlived its event: %+v", forget, found)
		}
		s.exec(t, Statement{Delete: true, Event: next})
	}
}

func cleanupArchive[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	sent, queued := s.event("a"), s.event("b")
	sent.Headers = map[string]string{"region": "eu"}
	sent.Data = []byte{0, 0xff, 'x'}
	s.append(t, sent, queued)
	row := s.row(t, sent.ID)
	changes := settled(row)
	changes.Settled[0].PublishedTo = "orders[1]@7"
	s.apply(t, s.own(t), changes)
	if n := s.cleanup(t, store.CleanupRequest{Archive: true}); n != 1 {
		t.Fatalf("cleanup: got %d, want 1", n)
	}
	found := s.tracked(t, sent.ID)
	if !found.Archived || found.ID != row.ID || found.Queued() {
		t.Errorf("archived event: got %+v", found)
	}
	s.wantEvent(t, "archive", found.Event, sent)
	if got := s.find(t, store.Filter{}); !slices.Equal(got, []string{queued.ID}) {
		t.Errorf("find without ids: got %v, want %s alone", got, queued.ID)
	}
	if got := s.find(t, store.Filter{EventIDs: []string{queued.ID, sent.ID, "missing"}}); len(got) != 2 {
		t.Errorf("find by ids: got %v, want both", got)
	}
	results, err := s.Outbox.Requeue(t.Context(), because, []string{sent.ID})
	wantOutcomes(t, results, err, []string{sent.ID}, store.OutcomeGone)
}

func cleanupRequeueRace[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	var events []waybill.Event
	for i := range 120 {
		events = append(events, s.event(fmt.Sprintf("key-%d", i%5)))
	}
	s.append(t, events...)
	s.apply(t, s.own(t), settled(s.hot(t)...))
	outcomes := make([]store.Result, len(events))
	var requeueErr, cleanupErr error
	var removed int
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range events {
			// From the far end: the two meet in the middle.
			n := len(events) - 1 - i
			results, err := s.Outbox.Requeue(t.Context(), because, []string{events[n].ID})
			if err != nil {
				requeueErr = errors.Join(requeueErr, err)
				return
			}
			outcomes[n] = results[0]
		}
	})
	wg.Go(func() {
		for range events {
			n, err := s.Outbox.Cleanup(t.Context(), store.CleanupRequest{Limit: 2})
			removed += n
			if err != nil {
				cleanupErr = errors.Join(cleanupErr, err)
				return
			}
		}
	})
	wg.Wait()
	if requeueErr != nil || cleanupErr != nil {
		t.Fatalf("requeue: %v, cleanup: %v", requeueErr, cleanupErr)
	}
	hot := s.hotByID(t)
	gone := 0
	for i, e := range events {
		_, isHot := hot[e.ID]
		switch _, found := s.lookUp(t, e.ID); outcomes[i].Outcome {
		case store.OutcomeQueued:
			if !found || !isHot {
				t.Errorf("%s was queued: found %t, hot %t", e.ID, found, isHot)
			}
		case store.OutcomeGone:
			gone++
			if found || isHot {
				t.Errorf("%s was gone: found %t, hot %t", e.ID, found, isHot)
			}
		default:
			t.Errorf("%s: outcome %q", e.ID, outcomes[i].Outcome)
		}
	}
	if gone != removed {
		t.Errorf("cleanup removed %d, requeue missed %d", removed, gone)
	}
	if orphans, err := s.Outbox.Orphans(t.Context(), 10); err != nil || len(orphans) != 0 {
		t.Errorf("orphans: got %v, %v, want none", orphans, err)
	}
}

func cleanupConsumed[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	mark := func(group, id string, partition int32, position int64) {
		s.consume(t, store.Consumed{
			Group: group, Event: waybill.Event{ID: id, Type: "OrderPaid"}, Outcome: store.Applied,
			Topic: "orders", Partition: partition, Position: position,
		})
	}
	for i := range 4 {
		mark("stock", fmt.Sprintf("p0-%d", i), 0, int64(i))
		mark("stock", fmt.Sprintf("p1-%d", i), 1, int64(i))
	}
	mark("points", "p0-0", 0, 0)
	mark("points", "p0-1", 0, 1)
	clean := func(retention time.Duration, limit int) int {
		t.Helper()
		n, err := s.Consumer.CleanupConsumed(t.Context(), "stock", retention, limit)
		if err != nil {
			t.Fatalf("cleanup consumed: %v", err)
		}
		return n
	}
	if n := clean(time.Hour, 100); n != 0 {
		t.Errorf("within the retention: removed %d", n)
	}
	if n := clean(0, 2); n != 2 {
		t.Errorf("limit 2: removed %d", n)
	}
	if n := clean(0, 100); n != 4 {
		t.Errorf("the rest: removed %d, want 4", n)
	}
	for id, want := range map[string][]string{
		"p0-0": {"points"}, "p0-1": {"points"}, "p0-2": nil, "p0-3": {"stock"}, "p1-2": nil, "p1-3": {"stock"},
	} {
		found, err := s.Consumer.FindConsumed(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		var groups []string
		for _, row := range found {
			groups = append(groups, row.Group)
		}
		if !slices.Equal(groups, want) {
			t.Errorf("groups that consumed %s: got %v, want %v", id, groups, want)
		}
	}
}
