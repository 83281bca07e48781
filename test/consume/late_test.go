package consume

import (
	"context"
	"slices"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/test/lab"
)

// late has a handler that writes, pays no heed to the end of its context, and
// writes again, and says that all is well, when the event is DEAD already.
func (s *scene[TX]) late() {
	const attempts = 2
	s.schedule, s.timeout = []time.Duration{20 * time.Millisecond}, time.Second
	free, wrote := make(chan struct{}), make(chan error, attempts)
	s.handler = func(ctx context.Context, tx TX, e waybill.Event) error {
		if e.AggregateID != "slow" {
			return nil
		}
		<-free
		wrote <- s.bench.effect(context.WithoutCancel(ctx), tx, &e)
		return nil
	}
	s.publish("quick", 1, 2)
	s.publish("slow", 1, 1)
	s.publish("quick", 3, 4)
	s.start()
	s.effects(4)
	lab.Until(s.t, patience, "DEAD", func() bool { return s.held() == (store.HeldCounts{Dead: 1}) })
	held, err := s.bench.st.ListHeld(s.t.Context(), group, store.HeldFilter{EventID: "slow/1"})
	if err != nil || len(held) != 1 || held[0].Attempts != attempts {
		s.t.Fatalf("held %+v, %v; want %d attempts", held, err, attempts)
	}
	close(free)
	for range attempts {
		if err := <-wrote; err == nil {
			s.t.Error("a late write was accepted")
		}
	}
	s.publish("other", 1, 1) // there is life after it
	s.effects(5)
	s.inOrder("quick", 1, 4)
	if ids := s.rows(); len(ids) != 5 || slices.Contains(ids, "slow/1") {
		s.t.Errorf("effects %v", ids)
	}
	consumed, err := s.bench.st.FindConsumed(s.t.Context(), "slow/1")
	if err != nil || len(consumed) != 0 {
		s.t.Errorf("the late event is consumed: %v, %v", consumed, err)
	}
}
