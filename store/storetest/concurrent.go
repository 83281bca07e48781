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

func concurrentCases[TX any]() []testCase[TX] {
	return []testCase[TX]{
		{"producers, relay and cleanup do not disturb each other", concurrentOutbox[TX]},
		{"a take-over under way lets no one write twice", concurrentTakeOver[TX]},
		{"consumers of the same events apply each once", concurrentInbox[TX]},
	}
}

// problems collects what goes wrong in goroutines.
type problems struct {
	mu  sync.Mutex
	all []error
}

func (p *problems) add(what string, err error) bool {
	if err == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, fmt.Errorf("%s: %w", what, err))
	return true
}

// concurrentOutbox: while producers append to the same few keys, a relay
// settles, refuses and parks what it sees, and a cleanup follows it. No
// statement may fail, and each event is settled once.
func concurrentOutbox[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	const producers, rounds = 3, 20
	guard := s.own(t)
	var trouble problems
	var working sync.WaitGroup
	batches := make([][][]waybill.Event, producers)
	for p := range batches {
		for range rounds {
			batches[p] = append(batches[p], s.events("a", "b", "c"))
		}
	}
	for p := range producers {
		working.Go(func() {
			for i, events := range batches[p] {
				tx, err := s.Begin(t.Context())
				if trouble.add("begin", err) {
					return
				}
				if trouble.add("append", s.appendIn(t.Context(), tx, events)) {
					_ = s.Rollback(t.Context(), tx)
					return
				}
				end := s.Commit
				if i%5 == 4 {
					end = s.Rollback
				}
				if trouble.add("end", end(t.Context(), tx)) {
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		working.Wait()
		close(done)
	}()

	published := make(map[string]int)
	var cleaning sync.WaitGroup
	cleaning.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if _, err := s.Outbox.Cleanup(t.Context(), store.CleanupRequest{Limit: 7, Archive: true}); trouble.add("cleanup", err) {
				return
			}
		}
	})
	for finished := false; ; {
		select {
		case <-done:
			finished = true
		default:
		}
		rows, err := s.concurrentRound(t, guard, published)
		if trouble.add("relay", err) || finished && rows == 0 {
			break
		}
	}
	cleaning.Wait()
	if err := errors.Join(trouble.all...); err != nil {
		t.Fatal(err)
	}
	for _, all := range batches {
		for i, events := range all {
			want := 1
			if i%5 == 4 {
				want = 0
			}
			for _, e := range events {
				if published[e.ID] != want {
					t.Errorf("%s was published %d times, want %d", e.ID, published[e.ID], want)
				}
			}
		}
	}
	if counts, err := s.Outbox.Counts(t.Context()); err != nil || counts != (store.Counts{}) {
		t.Errorf("left in the queue: %+v, %v", counts, err)
	}
}

// concurrentRound is one look of the relay at the queue: what is due goes, of
// what is fresh every third is refused first.
func (s *suite[TX]) concurrentRound(t *testing.T, guard store.Guard, published map[string]int) (int, error) {
	due, err := s.Outbox.FetchDue(t.Context(), allLanes(), 100)
	if err != nil {
		return 0, err
	}
	fresh, err := Hot(t.Context(), s.Outbox, store.WalkRequest{Lanes: allCursors(), Limit: 50})
	if err != nil {
		return 0, err
	}
	changes := settled(due...)
	for i, row := range fresh {
		if i%3 == 0 {
			changes.Failed = append(changes.Failed, failed(row, false, 0, "refused").Failed...)
		} else {
			changes.Settled = append(changes.Settled, settled(row).Settled...)
		}
	}
	for _, change := range changes.Settled {
		published[change.EventID]++
	}
	return len(due) + len(fresh), s.Outbox.Apply(t.Context(), guard, changes)
}

// concurrentTakeOver: two relays take the lanes from each other all the time
// and settle what they see with what they hold. Whoever is told that it
// succeeded did so alone.
func concurrentTakeOver[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	const total = 60
	rows := s.spread(t, total)
	var trouble problems
	var mu sync.Mutex
	settledBy := make(map[string][]string)
	var wg sync.WaitGroup
	for r := range 2 {
		name := fmt.Sprintf("relay-%d", r)
		wg.Go(func() {
			for i := range total {
				leases, err := s.Outbox.Claim(t.Context(), name, time.Hour, store.Lanes)
				if trouble.add("claim", err) {
					return
				}
				row := rows[(i*7+r)%total]
				at := slices.IndexFunc(leases, func(l store.Lease) bool { return l.Lane == row.Lane })
				if at >= 0 {
					before, err := s.Outbox.Find(t.Context(), store.Filter{EventIDs: []string{row.Event.ID}})
					if trouble.add("find", err) {
						return
					}
					err = s.Outbox.Apply(t.Context(), store.Guard{Owner: name, Lanes: leases[at : at+1]}, settled(row))
					if trouble.add("apply", err) {
						return
					}
					if before[0].Queued() {
						mu.Lock()
						settledBy[row.Event.ID] = append(settledBy[row.Event.ID], name)
						mu.Unlock()
					}
				}
				if trouble.add("release", s.Outbox.Release(t.Context(), name, leases)) {
					return
				}
				if at >= 0 {
					err := s.Outbox.Apply(t.Context(), store.Guard{Owner: name, Lanes: leases[at : at+1]}, failed(rows[(i*11)%total], true, 0, "late"))
					if !errors.Is(err, store.ErrStale) {
						trouble.add("a write after the release", fmt.Errorf("got error %w, want ErrStale", err))
						return
					}
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(trouble.all...); err != nil {
		t.Fatal(err)
	}
	for id, names := range settledBy {
		if len(names) != 1 {
			t.Errorf("%s was settled by %v", id, names)
		}
	}
	if counts, err := s.Outbox.Counts(t.Context()); err != nil || counts.Dead != 0 || int(counts.Pending) != total-len(settledBy) {
		t.Errorf("counts: got %+v, %v, want %d pending and none dead", counts, err, total-len(settledBy))
	}
}

// concurrentInbox: three readers get the same deliveries, as after a
// rebalance, and apply them as the processor does.
func concurrentInbox[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	const readers, events = 3, 15
	effects := make([]waybill.Event, events)
	for i := range effects {
		effects[i] = s.event("a")
	}
	var trouble problems
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() {
			for i := range events {
				key := store.HeldKeyRef{Topic: "orders", Key: fmt.Sprint(i % 2)}
				tx, err := s.Consumer.BeginInbox(t.Context())
				if trouble.add("begin", err) {
					return
				}
				first := false
				err = tx.LockKey(t.Context(), group, key)
				if err == nil {
					first, err = tx.MarkConsumed(t.Context(), delivered(fmt.Sprint(i)))
				}
				if err == nil && first {
					err = s.appendIn(t.Context(), tx.Handle(), effects[i:i+1])
				}
				if err == nil {
					err = tx.Commit(t.Context())
				}
				if trouble.add("consume", errors.Join(err, tx.Rollback(t.Context()))) {
					return
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(trouble.all...); err != nil {
		t.Fatal(err)
	}
	s.wantHot(t, eventIDs(effects)...)
	for i := range events {
		if found := s.consumedBy(t, fmt.Sprint(i)); len(found) != 1 || found[0].Duplicates != readers-1 {
			t.Errorf("event %d: got %+v, want %d duplicates", i, found, readers-1)
		}
	}
}
