package consume

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/ops"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/test/lab"
)

// A scene is one broker, one database, and the consumer of one case.
type scene[TX any] struct {
	t       *testing.T
	bench   bench[TX]
	broker  *membroker.Broker
	handler inbox.Handler[TX] // after the effect; may be nil
	dups    atomic.Int64
	gaps    atomic.Int64

	schedule []time.Duration // nil: two short pauses
	timeout  time.Duration   // of the handler
	deadline time.Duration   // of gaps
}

const group = "cases"

func cases[TX any](t *testing.T, open func(t *testing.T) bench[TX]) {
	run := func(name string, test func(s *scene[TX])) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(&scene[TX]{t: t, bench: open(t), broker: membroker.New(topic)})
		})
	}

	run("one of five is consumed already", func(s *scene[TX]) {
		s.publish("k", 1, 1)
		s.start()
		s.effects(1)
		s.publish("k", 1, 5) // the first comes again
		s.effects(5)
		s.inOrder("k", 1, 5)
		lab.Until(s.t, patience, "one duplicate", func() bool { return s.dups.Load() == 1 })
	})

	run("a key that always fails holds itself alone", func(s *scene[TX]) {
		s.handler = func(_ context.Context, _ TX, e waybill.Event) error {
			if e.AggregateID == "k1" {
				return errBoom
			}
			return nil
		}
		s.publish("k1", 1, 3)
		s.publish("k2", 1, 20)
		s.start()
		s.effects(20)
		s.inOrder("k2", 1, 20)
		lab.Until(s.t, patience, "one DEAD and two BLOCKED", func() bool {
			c := s.held()
			return c.Dead == 1 && c.Blocked == 2 && c.Retry == 0
		})
	})

	// The third of five fails in one of three ways: its error is returned; it is
	// an error of the database, which may end the transaction; or it is one that
	// the handler keeps to itself.
	for name, fail := range map[string]func(ctx context.Context, s *scene[TX], tx TX) error{
		"returned": func(context.Context, *scene[TX], TX) error { return errBoom },
		"of the database": func(ctx context.Context, s *scene[TX], tx TX) error {
			return s.bench.exec(ctx, tx, "SELECT no_such_column FROM effect")
		},
		"swallowed": func(ctx context.Context, s *scene[TX], tx TX) error {
			_ = s.bench.exec(ctx, tx, "SELECT no_such_column FROM effect")
			return errBoom
		},
	} {
		run("the third of five fails, its error "+name, func(s *scene[TX]) {
			s.handler = func(ctx context.Context, tx TX, e waybill.Event) error {
				if e.AggregateID == "k3" {
					return fail(ctx, s, tx)
				}
				return nil
			}
			for k := 1; k <= 5; k++ {
				s.publish(fmt.Sprintf("k%d", k), 1, 1)
			}
			s.start()
			s.effects(4)
			lab.Until(s.t, patience, "the third DEAD", func() bool { return s.held().Dead == 1 })
			if ids := s.rows(); slices.Contains(ids, "k3/1") || len(ids) != 4 {
				s.t.Errorf("effects %v, want those of the four others, once each", ids)
			}
			consumed, err := s.bench.st.FindConsumed(s.t.Context(), "k3/1")
			if err != nil || len(consumed) != 0 {
				s.t.Errorf("the failed event is consumed: %v, %v", consumed, err)
			}
		})
	}

	// The retry of v1 is held up inside its handler; v2 arrives meanwhile and finds
	// v1 held; then the retry succeeds.
	run("a retry succeeds while its successor arrives", func(s *scene[TX]) {
		var runs atomic.Int64
		retrying, goOn := make(chan struct{}), make(chan struct{})
		s.handler = func(ctx context.Context, _ TX, e waybill.Event) error {
			if e.ID != "k/1" {
				return nil
			}
			if runs.Add(1) == 1 {
				return errBoom
			}
			close(retrying)
			select {
			case <-goOn:
			case <-ctx.Done():
			}
			return ctx.Err()
		}
		s.publish("k", 1, 1)
		s.start()
		<-retrying
		s.publish("k", 2, 2)
		close(goOn)
		s.effects(2)
		s.inOrder("k", 1, 2)
		lab.Until(s.t, patience, "nothing held", func() bool { return s.held() == (store.HeldCounts{}) })
	})

	run("a version that comes too early waits for the one before", func(s *scene[TX]) {
		s.start()
		s.publish("k", 1, 1)
		s.publish("k", 3, 4)
		s.publish("j", 1, 2)
		lab.Until(s.t, patience, "two WAITING", func() bool { return s.held() == (store.HeldCounts{Waiting: 2}) })
		s.publish("k", 2, 2)
		s.publish("k", 5, 5)
		s.effects(7)
		s.inOrder("k", 1, 5)
		s.inOrder("j", 1, 2)
		lab.Until(s.t, patience, "nothing held", func() bool { return s.held() == (store.HeldCounts{}) })
		s.publish("k", 2, 3) // again, and stale by now
		lab.Until(s.t, patience, "two duplicates", func() bool { return s.dups.Load() == 2 })
		s.inOrder("k", 1, 5)
	})

	run("the missing version fails before it succeeds", func(s *scene[TX]) {
		var fails, failed atomic.Bool
		fails.Store(true)
		s.handler = func(_ context.Context, _ TX, e waybill.Event) error {
			if e.ID == "k/2" && fails.Load() {
				failed.Store(true)
				return inbox.RetryAfter(20*time.Millisecond, errBoom)
			}
			return nil
		}
		s.schedule = slices.Repeat([]time.Duration{20 * time.Millisecond}, 1000)
		s.start()
		s.publish("k", 1, 1)
		s.publish("k", 3, 3)
		lab.Until(s.t, patience, "one WAITING", func() bool { return s.held().Waiting == 1 })
		s.publish("k", 2, 2)
		lab.Until(s.t, patience, "the failure", failed.Load)
		s.publish("k", 4, 4)
		fails.Store(false)
		s.effects(4)
		s.inOrder("k", 1, 4)
		lab.Until(s.t, patience, "nothing held", func() bool { return s.held() == (store.HeldCounts{}) })
	})

	run("a version that never comes is given up by a person", func(s *scene[TX]) {
		s.deadline = 50 * time.Millisecond
		s.start()
		s.publish("k", 1, 1)
		s.publish("k", 4, 6)
		lab.Until(s.t, patience, "the alarm", func() bool { return s.gaps.Load() == 1 })
		verbs := ops.NewHeld(s.bench.st)
		action := store.Action{Actor: "anna", Reason: "they were never written"}
		// The first is left out, and what waited for it follows.
		results, err := verbs.Skip(s.t.Context(), action, group, "k/4")
		if err != nil || results[0].Outcome != store.OutcomeSkipped {
			s.t.Fatalf("skip: %v, %v", results, err)
		}
		s.effects(3)
		s.publish("k", 8, 8)
		lab.Until(s.t, patience, "one WAITING", func() bool { return s.held() == (store.HeldCounts{Waiting: 1}) })
		results, err = verbs.Release(s.t.Context(), action, group, "k/8")
		if err != nil || results[0].Outcome != store.OutcomeReleased {
			s.t.Fatalf("release: %v, %v", results, err)
		}
		s.effects(4)
		if ids := s.rows(); !slices.Equal(ids, []string{"k/1", "k/5", "k/6", "k/8"}) {
			s.t.Errorf("effects %v", ids)
		}
		// What comes after all is stale.
		s.publish("k", 2, 2)
		lab.Until(s.t, patience, "STALE", func() bool {
			consumed, err := s.bench.st.FindConsumed(s.t.Context(), "k/2")
			return err == nil && len(consumed) == 1 && consumed[0].Outcome == store.Stale
		})
		if ids := s.rows(); len(ids) != 4 {
			s.t.Errorf("a stale event had an effect: %v", ids)
		}
	})

	run("tables of version 1 are brought up to date with what is in them", (*scene[TX]).upgrade)

	run("a handler that outruns its time is never applied late", (*scene[TX]).late)

	// A second reader of the same partitions, whose session the broker has ended,
	// handles what the first one handles too.
	run("two readers of one key make one effect and one hold", func(s *scene[TX]) {
		s.handler = func(_ context.Context, _ TX, e waybill.Event) error {
			if e.AggregateID == "bad" {
				return errBoom
			}
			return nil
		}
		for k := range 5 {
			s.publish(fmt.Sprintf("k%d", k), 1, 10)
		}
		s.publish("bad", 1, 3)
		s.start()
		s.start()
		for range 20 {
			s.broker.ExpireSessions(group)
		}
		s.effects(50)
		for k := range 5 {
			s.inOrder(fmt.Sprintf("k%d", k), 1, 10)
		}
		lab.Until(s.t, patience, "one DEAD and two BLOCKED", func() bool {
			c := s.held()
			return c.Dead == 1 && c.Blocked == 2 && c.Retry == 0
		})
		if ids := s.rows(); len(ids) != 50 {
			s.t.Errorf("%d effects, want 50", len(ids))
		}
	})
}

// start runs a consumer until it is stopped or the test ends.
func (s *scene[TX]) start() (stop func()) {
	s.t.Helper()
	if s.schedule == nil {
		s.schedule = []time.Duration{20 * time.Millisecond, 40 * time.Millisecond}
	}
	p, err := inbox.New(s.bench.st, s.broker.Connect(), func(ctx context.Context, tx TX, e waybill.Event) error {
		if err := s.bench.effect(ctx, tx, &e); err != nil {
			return err
		}
		if s.handler == nil {
			return nil
		}
		return s.handler(ctx, tx, e)
	}, &inbox.Config{
		Group: group, Topics: []string{topic}, PollWait: 20 * time.Millisecond, SweepEvery: 50 * time.Millisecond, PauseAfter: -1,
		Schedule: s.schedule, HandlerTimeout: s.timeout, GapDeadline: s.deadline, Logger: slog.New(slog.DiscardHandler),
		Events: inbox.Events{
			Duplicate: func(inbox.DuplicateInfo) { s.dups.Add(1) }, Gap: func(inbox.GapInfo) { s.gaps.Add(1) },
		},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("Run: %v", err)
		}
	})
	s.t.Cleanup(stop)
	return stop
}

// publish sends the versions from..to of a key.
func (s *scene[TX]) publish(key string, from, to int) {
	s.t.Helper()
	var records []waybill.Record
	for n := from; n <= to; n++ {
		e := waybill.Event{
			ID: fmt.Sprintf("%s/%d", key, n), Type: "OrderChanged", Topic: topic,
			AggregateType: "order", AggregateID: key, AggregateVersion: int64(n), Data: []byte("{}"),
		}
		record, err := waybill.Encode(waybill.FormatEnvelope, &e)
		if err != nil {
			s.t.Fatal(err)
		}
		records = append(records, record)
	}
	for _, err := range s.broker.Publish(s.t.Context(), records) {
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *scene[TX]) rows() []string {
	s.t.Helper()
	ids, err := s.bench.rows(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return ids
}

func (s *scene[TX]) held() store.HeldCounts {
	s.t.Helper()
	c, err := s.bench.st.CountHeld(s.t.Context(), group)
	if err != nil {
		s.t.Fatal(err)
	}
	c.OldestAge = 0
	return c
}

func (s *scene[TX]) effects(n int) {
	s.t.Helper()
	lab.Until(s.t, patience, fmt.Sprintf("%d effects", n), func() bool { return len(s.rows()) >= n })
}

// inOrder checks that the effects of a key are those of from..to, once each.
func (s *scene[TX]) inOrder(key string, from, to int) {
	s.t.Helper()
	var got, want []string
	for _, id := range s.rows() {
		if strings.HasPrefix(id, key+"/") {
			got = append(got, id)
		}
	}
	for n := from; n <= to; n++ {
		want = append(want, fmt.Sprintf("%s/%d", key, n))
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("key %s: effects %v, want %v", key, got, want)
	}
}
