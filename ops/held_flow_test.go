package ops

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
)

// shop is a consumer at work whose handler refuses some events.
type shop struct {
	t  *testing.T
	st *memstore.Store
	b  *membroker.Broker

	mu      sync.Mutex
	refuses map[string]bool
	tries   map[string]int
	applied []string
}

func openShop(t *testing.T, refuses ...string) *shop {
	s := &shop{t: t, st: memstore.New(nil), b: membroker.New("orders"), refuses: make(map[string]bool), tries: make(map[string]int)}
	for _, id := range refuses {
		s.refuses[id] = true
	}
	p, err := inbox.New(s.st, s.b, s.handle, &inbox.Config{
		Group: "inventory", Topics: []string{"orders"}, Logger: slog.New(slog.DiscardHandler),
		Schedule: []time.Duration{}, SweepEvery: 10 * time.Millisecond, PauseAfter: -1,
		Events: inbox.Events{Applied: s.note},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *shop) handle(_ context.Context, _ *memstore.Tx, e waybill.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries[e.ID]++
	if s.refuses[e.ID] {
		return errors.New("no such article")
	}
	return nil
}

func (s *shop) note(i inbox.AppliedInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i.Outcome == store.Applied {
		s.applied = append(s.applied, i.Event.ID)
	}
}

func (s *shop) mend(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.refuses, id)
}

func (s *shop) deliver(ids ...string) {
	s.t.Helper()
	records := make([]waybill.Record, len(ids))
	for i, id := range ids {
		e := order(id, int64(i+1))
		e.Normalize(e.OccurredAt)
		var err error
		if records[i], err = waybill.Encode(waybill.FormatEnvelope, &e); err != nil {
			s.t.Fatal(err)
		}
	}
	for _, err := range s.b.Publish(s.t.Context(), records) {
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

// await waits until the group holds so much, in that order of arrival.
func (s *shop) await(want ...string) {
	s.t.Helper()
	var got []string
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
		held, err := s.st.ListHeld(s.t.Context(), "inventory", store.HeldFilter{})
		if err != nil {
			s.t.Fatal(err)
		}
		got = nil
		for _, h := range held {
			got = append(got, fmt.Sprintf("%s %s", h.Event.ID, h.State))
		}
		if slices.Equal(got, want) {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("held: got %q, want %q", got, want)
		}
	}
}

func (s *shop) wantApplied(want ...string) {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
		s.mu.Lock()
		got := slices.Clone(s.applied)
		s.mu.Unlock()
		switch {
		case slices.Equal(got, want):
			return
		case time.Now().After(deadline), len(got) > len(want):
			s.t.Errorf("applied: got %q, want %q", got, want)
			return
		}
	}
}

func TestARetriedEventGoesFirstAndItsFollowersAfterIt(t *testing.T) {
	s := openShop(t, "e1")
	s.deliver("e1", "e2", "e3")
	s.await("e1 DEAD", "e2 BLOCKED", "e3 BLOCKED")
	s.mend("e1")
	if _, err := NewHeld(s.st).Retry(t.Context(), annasWish, "inventory", "e1"); err != nil {
		t.Fatal(err)
	}
	s.await()
	s.wantApplied("e1", "e2", "e3")
}

func TestASkippedEventLetsItsFollowersGo(t *testing.T) {
	s := openShop(t, "e1")
	s.deliver("e1", "e2", "e3")
	s.await("e1 DEAD", "e2 BLOCKED", "e3 BLOCKED")
	if _, err := NewHeld(s.st).Skip(t.Context(), annasWish, "inventory", "e1"); err != nil {
		t.Fatal(err)
	}
	s.await()
	s.wantApplied("e2", "e3")
}

func TestAReleasedEventGetsOneAttempt(t *testing.T) {
	s := openShop(t, "e1")
	s.deliver("e1", "e2")
	s.await("e1 DEAD", "e2 BLOCKED")
	for range 2 {
		before := s.tried("e1")
		if _, err := NewHeld(s.st).Release(t.Context(), annasWish, "inventory", "e1"); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(time.Minute); s.tried("e1") == before; time.Sleep(2 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("never tried")
			}
		}
		s.await("e1 DEAD", "e2 BLOCKED")
		if got := s.tried("e1"); got != before+1 {
			t.Errorf("%d attempts, want one", got-before)
		}
	}
	s.wantApplied()
}

func (s *shop) tried(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tries[id]
}

// Verbs and the consumer want the same key at the same moment, over and over:
// nothing is applied twice, and the order stays.
func TestVerbsBesideAConsumerAtWork(t *testing.T) {
	ids := make([]string, 40)
	for i := range ids {
		ids[i] = fmt.Sprintf("e%02d", i)
	}
	s := openShop(t, ids[:20]...)
	s.deliver(ids...)
	v := NewHeld(s.st)
	var people sync.WaitGroup
	for range 3 {
		people.Go(func() {
			for _, id := range ids[:20] {
				s.mend(id)
				for {
					results, err := v.Retry(t.Context(), annasWish, "inventory", id)
					if err != nil {
						t.Error(err)
						return
					}
					consumed, err := s.st.FindConsumed(t.Context(), id)
					if err != nil {
						t.Error(err)
						return
					}
					if len(consumed) > 0 && results[0].Outcome == store.OutcomeDuplicate {
						break
					}
				}
			}
		})
	}
	people.Wait()
	s.await()
	s.wantApplied(ids...)
}
