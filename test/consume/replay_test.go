package consume

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/ops"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/test/lab"
)

// What people do about held events, and what a group has forgotten, over every
// database.

func TestReplayOverSQLite(t *testing.T)   { replays(t, sqliteBench) }
func TestReplayOverPostgres(t *testing.T) { replays(t, postgresBench) }
func TestReplayOverMySQL(t *testing.T) {
	replays(t, func(t *testing.T) bench[*sql.Tx] { return mysqlBench(t, testenv.MySQL9(t)) })
}

func TestReplayOverMariaDB(t *testing.T) {
	replays(t, func(t *testing.T) bench[*sql.Tx] { return mysqlBench(t, testenv.MariaDB10(t)) })
}

var wish = store.Action{Actor: "anna", Reason: "mended"}

func replays[TX any](t *testing.T, open func(t *testing.T) bench[TX]) {
	t.Parallel()
	// One database for all: each act has a group and keys of its own.
	b := open(t)
	for name, act := range map[string]func(s *scene[TX], group string){
		"dead":    deadLetterAndRetry[TX],
		"stale":   staleAndForced[TX],
		"doubt":   doubtAndResolution[TX],
		"horizon": behindTheHorizon[TX],
	} {
		t.Run(name, func(t *testing.T) {
			act(&scene[TX]{t: t, bench: b, broker: membroker.New(topic)}, name)
		})
	}
}

func (s *scene[TX]) consumer(group string, handler inbox.Handler[TX], adjust func(c *inbox.Config)) {
	s.t.Helper()
	config := &inbox.Config{
		Group: group, Topics: []string{topic}, PollWait: 20 * time.Millisecond, SweepEvery: 50 * time.Millisecond, PauseAfter: -1,
		Schedule: []time.Duration{}, Logger: slog.New(slog.DiscardHandler),
	}
	adjust(config)
	p, err := inbox.New(s.bench.st, s.broker.Connect(), func(ctx context.Context, tx TX, e waybill.Event) error {
		if err := s.bench.effect(ctx, tx, &e); err != nil {
			return err
		}
		return handler(ctx, tx, e)
	}, config)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("Run: %v", err)
		}
	})
}

func (s *scene[TX]) send(events ...waybill.Event) {
	s.t.Helper()
	for i := range events {
		record, err := waybill.Encode(waybill.FormatEnvelope, &events[i])
		if err == nil {
			err = errors.Join(s.broker.Publish(s.t.Context(), []waybill.Record{record})...)
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

func event(key string, version int64) waybill.Event {
	return waybill.Event{
		ID: fmt.Sprintf("%s/%d", key, version), Type: "OrderChanged", Topic: topic, AggregateType: "order", AggregateID: key,
		AggregateVersion: version, OccurredAt: time.Now().UTC(), Data: []byte("{}"),
	}
}

// effectsOf waits until the events have had their effects, once each and in
// this order.
func (s *scene[TX]) effectsOf(ids ...string) {
	s.t.Helper()
	var got []string
	lab.Until(s.t, patience, fmt.Sprintf("the effects of %v", ids), func() bool {
		got = nil
		for _, id := range s.rows() {
			if slices.Contains(ids, id) {
				got = append(got, id)
			}
		}
		return len(got) >= len(ids)
	})
	if !slices.Equal(got, ids) {
		s.t.Errorf("effects %v, want %v", got, ids)
	}
}

func (s *scene[TX]) dead(group string, n int64) {
	s.t.Helper()
	lab.Until(s.t, patience, fmt.Sprintf("%d DEAD", n), func() bool {
		c, err := s.bench.st.CountHeld(s.t.Context(), group)
		if err != nil {
			s.t.Fatal(err)
		}
		return c.Dead == n && c.Retry == 0
	})
}

func (s *scene[TX]) want(results []store.Result, err error, outcome string) {
	s.t.Helper()
	if err != nil || len(results) != 1 || results[0].Outcome != outcome {
		s.t.Fatalf("got %v, %v, want %s", results, err, outcome)
	}
}

// An event dies five times over, and a tombstone once: each death has its
// letter, of one size, and a retry applies the event in the end.
func deadLetterAndRetry[TX any](s *scene[TX], group string) {
	var mended atomic.Bool
	s.consumer(group, func(context.Context, TX, waybill.Event) error {
		if mended.Load() {
			return nil
		}
		return errBoom
	}, func(c *inbox.Config) { c.DeadLetters = s.broker.Connect() })
	if err := errors.Join(s.broker.Publish(s.t.Context(), []waybill.Record{{Topic: topic, Key: "tombstone"}})...); err != nil {
		s.t.Fatal(err)
	}
	s.send(event(group, 1))
	letters := func(n int) (sizes []int) {
		lab.Until(s.t, patience, fmt.Sprintf("%d letters", n), func() bool { return len(s.broker.Records(topic+inbox.DeadLetterSuffix)) == n })
		for _, r := range s.broker.Records(topic + inbox.DeadLetterSuffix) {
			if r.Key == "tombstone" {
				continue
			}
			size := 0
			for _, h := range r.Headers {
				if !bytes.HasSuffix([]byte(h.Key), []byte("-failed-at")) {
					size += len(h.Key) + len(h.Value)
				}
			}
			sizes = append(sizes, size)
		}
		return sizes
	}
	v := ops.NewHeld(s.bench.st)
	letters(2)
	for n := 2; n <= 5; n++ {
		results, err := v.Retry(s.t.Context(), wish, group, group+"/1")
		s.want(results, err, store.OutcomeRetried)
		sizes := letters(n + 1)
		if slices.Min(sizes) != slices.Max(sizes) {
			s.t.Errorf("headers of the letters have %v bytes, want one size", sizes)
		}
	}
	mended.Store(true)
	results, err := v.Retry(s.t.Context(), wish, group, group+"/1")
	if err == nil {
		results, err = v.Await(s.t.Context(), group, results, patience)
	}
	s.want(results, err, store.OutcomeApplied)
	s.effectsOf(group + "/1")
	results, err = v.Retry(s.t.Context(), wish, group, group+"/1")
	s.want(results, err, store.OutcomeDuplicate)
}

// Version 3 dies, and the key goes on to 5.
func staleAndForced[TX any](s *scene[TX], group string) {
	var mended atomic.Bool
	s.consumer(group, func(_ context.Context, _ TX, e waybill.Event) error {
		if e.AggregateVersion == 3 && !mended.Load() {
			return errBoom
		}
		return nil
	}, func(c *inbox.Config) { c.OnDead = inbox.Continue })
	for version := int64(1); version <= 5; version++ {
		s.send(event(group, version))
	}
	s.effectsOf(group+"/1", group+"/2", group+"/4", group+"/5")
	s.dead(group, 1)
	mended.Store(true)
	v := ops.NewHeld(s.bench.st)
	results, err := v.Retry(s.t.Context(), wish, group, group+"/3")
	s.want(results, err, store.OutcomeStale)
	results, err = v.Force(s.t.Context(), wish, group, group+"/3")
	s.want(results, err, store.OutcomeRetried)
	s.effectsOf(group+"/1", group+"/2", group+"/4", group+"/5", group+"/3")
}

// A service that knows no keys gives no answer.
func doubtAndResolution[TX any](s *scene[TX], group string) {
	var calls atomic.Int64
	s.consumer(group, func(ctx context.Context, _ TX, e waybill.Event) error {
		if result, _ := inbox.EffectResult(ctx, "coupon"); string(result) != "C-"+e.ID {
			return inbox.Dead(fmt.Errorf("the result is %q", result))
		}
		return nil
	}, func(c *inbox.Config) {
		c.Effects = []inbox.Effect{{Name: "coupon", Call: func(_ context.Context, _ string, e waybill.Event) ([]byte, error) {
			if calls.Add(1) == 1 {
				return nil, errBoom
			}
			return []byte("C-" + e.ID), nil
		}}}
	})
	s.send(event(group, 1), event(group, 2))
	s.dead(group, 1)
	v := ops.NewHeld(s.bench.st)
	results, err := v.Retry(s.t.Context(), wish, group, group+"/1")
	s.want(results, err, store.OutcomeInDoubt)
	results, err = v.Resolve(s.t.Context(), wish, group, ops.Resolution{Done: true, Result: []byte("C-" + group + "/1")}, group+"/1")
	s.want(results, err, store.OutcomeRetried)
	s.effectsOf(group+"/1", group+"/2")
	if n := calls.Load(); n != 2 {
		s.t.Errorf("%d calls, want one for each event", n)
	}
}

// Ids are forgotten, and the events come again.
func behindTheHorizon[TX any](s *scene[TX], group string) {
	s.consumer(group, func(context.Context, TX, waybill.Event) error { return nil }, func(*inbox.Config) {})
	free := func(id string, age time.Duration) waybill.Event {
		e := event(group, 0)
		e.ID, e.OccurredAt = group+"/"+id, time.Now().Add(-age).UTC()
		return e
	}
	s.send(free("old", time.Hour), free("newer", time.Hour))
	s.effectsOf(group+"/old", group+"/newer")
	cleaner := s.bench.st.(interface {
		CleanupConsumed(ctx context.Context, group string, retention time.Duration, limit int) (int, error)
	})
	if n, err := cleaner.CleanupConsumed(s.t.Context(), group, 0, 0); err != nil || n != 1 {
		s.t.Fatalf("cleanup: got %d, %v, want 1", n, err)
	}
	last := free("last", 0)
	last.AggregateID = "another" // the parked event holds its key
	s.send(free("old", time.Hour), last)
	s.effectsOf(group + "/last")
	s.dead(group, 1)
	s.effectsOf(group + "/old") // once
}
