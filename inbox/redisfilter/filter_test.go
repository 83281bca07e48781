package redisfilter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/inbox/redisfilter"
	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/store/memstore"
)

// eachRedis runs a test over an imitation, which is always there, and over a
// real server.
func eachRedis(t *testing.T, test func(t *testing.T, client rueidis.Client, filter *redisfilter.Filter)) {
	for name, address := range map[string]func(t *testing.T) string{
		"imitation": func(t *testing.T) string { return miniredis.RunT(t).Addr() },
		"redis7":    func(t *testing.T) string { return testenv.Redis7(t) },
	} {
		t.Run(name, func(t *testing.T) {
			client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address(t)}, DisableCache: true, SelectDB: 7})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			test(t, client, redisfilter.New(client, &redisfilter.Config{Prefix: fmt.Sprintf("test:%d:%s:", os.Getpid(), t.Name())}))
		})
	}
}

func flush(t *testing.T, client rueidis.Client) {
	t.Helper()
	if err := client.Do(t.Context(), client.B().Flushdb().Build()).Error(); err != nil {
		t.Fatal(err)
	}
}

// consumer is a processor with a filter, over a database and a broker in memory.
type consumer struct {
	t                   *testing.T
	st                  *memstore.Store
	b                   *membroker.Broker
	applied, duplicates atomic.Int64
}

const group = "points"

func start(t *testing.T, filter inbox.Prefilter, before func(ctx context.Context, e waybill.Event) error) *consumer {
	t.Helper()
	c := &consumer{t: t, st: memstore.New(nil), b: membroker.New("orders")}
	handle := func(ctx context.Context, tx *memstore.Tx, e waybill.Event) error {
		if err := tx.Update(ctx, "points", e.AggregateID, func(old string, _ bool) string { return old + "x" }); err != nil {
			return err
		}
		return before(ctx, e)
	}
	p, err := inbox.New(c.st, c.b.Connect(), handle, &inbox.Config{
		Group: group, Topics: []string{"orders"}, Prefilter: filter, PollWait: 5 * time.Millisecond,
		Schedule: []time.Duration{time.Millisecond, time.Millisecond}, SweepEvery: 10 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		Events: inbox.Events{
			Applied:   func(inbox.AppliedInfo) { c.applied.Add(1) },
			Duplicate: func(inbox.DuplicateInfo) { c.duplicates.Add(1) },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return c
}

func (c *consumer) deliver(orders ...string) {
	c.t.Helper()
	for _, order := range orders {
		e := waybill.Event{ID: "paid-" + order, Type: "OrderPaid", Topic: "orders", AggregateType: "order", AggregateID: order}
		record, err := waybill.Encode(waybill.FormatEnvelope, &e)
		if err != nil {
			c.t.Fatal(err)
		}
		if err := errors.Join(c.b.Publish(c.t.Context(), []waybill.Record{record})...); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *consumer) until(what string, condition func() bool) {
	c.t.Helper()
	deadline, tick := time.After(30*time.Second), time.NewTicker(2*time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			c.t.Fatalf("never: %s; applied %d, duplicates %d, points %v", what, c.applied.Load(), c.duplicates.Load(), c.st.Rows("points"))
		}
	}
}

// wantOnce checks that each order has its points, once.
func (c *consumer) wantOnce(orders ...string) {
	c.t.Helper()
	rows := c.st.Rows("points")
	for _, order := range orders {
		if rows[order] != "x" {
			c.t.Errorf("order %s has effects %q, want one", order, rows[order])
		}
	}
	if len(rows) != len(orders) {
		c.t.Errorf("effects %v, want those of %v", rows, orders)
	}
}

func TestRollbackAfterTheMark(t *testing.T) {
	eachRedis(t, func(t *testing.T, _ rueidis.Client, filter *redisfilter.Filter) {
		var tries atomic.Int64
		c := start(t, filter, func(ctx context.Context, e waybill.Event) error {
			// Far too early, as hand-written filters do it.
			if err := filter.Remember(ctx, group, []string{e.ID}); err != nil {
				return err
			}
			if tries.Add(1) == 1 {
				return errors.New("boom")
			}
			return nil
		})
		c.deliver("O-1")
		c.until("the retry", func() bool { return c.applied.Load() == 1 })
		c.deliver("O-1", "O-2")
		c.until("the rest", func() bool { return c.applied.Load() == 2 && c.duplicates.Load() == 1 })
		c.wantOnce("O-1", "O-2")
	})
}

// The process that set the mark never committed; its event comes to another,
// which has only Redis' word for it.
func TestMarkWithoutCommit(t *testing.T) {
	eachRedis(t, func(t *testing.T, _ rueidis.Client, filter *redisfilter.Filter) {
		if err := filter.Remember(t.Context(), group, []string{"paid-O-1"}); err != nil {
			t.Fatal(err)
		}
		c := start(t, filter, func(context.Context, waybill.Event) error { return nil })
		c.deliver("O-1", "O-1")
		c.until("both deliveries", func() bool { return c.applied.Load() == 1 && c.duplicates.Load() == 1 })
		c.wantOnce("O-1")
	})
}

func TestFlush(t *testing.T) {
	eachRedis(t, func(t *testing.T, client rueidis.Client, filter *redisfilter.Filter) {
		c := start(t, filter, func(context.Context, waybill.Event) error { return nil })
		c.deliver("O-1")
		c.until("the mark after the commit", func() bool {
			seen, err := filter.Seen(t.Context(), group, []string{"paid-O-1", "paid-O-2"})
			return err == nil && seen[0] && !seen[1]
		})
		c.deliver("O-1")
		c.until("a duplicate told by the filter", func() bool { return c.duplicates.Load() == 1 })
		if n := c.counted("paid-O-1"); n != 0 {
			t.Errorf("the table counts %d duplicates, want 0: the filter spares it", n)
		}
		flush(t, client)
		c.deliver("O-1", "O-2")
		c.until("a duplicate told by the table", func() bool { return c.duplicates.Load() == 2 && c.applied.Load() == 2 })
		if n := c.counted("paid-O-1"); n != 1 {
			t.Errorf("the table counts %d duplicates, want 1: the filter had forgotten", n)
		}
		c.wantOnce("O-1", "O-2")
	})
}

func (c *consumer) counted(id string) int64 {
	c.t.Helper()
	rows, err := c.st.FindConsumed(c.t.Context(), id)
	if err != nil || len(rows) != 1 {
		c.t.Fatalf("consumed %v, %v", rows, err)
	}
	return rows[0].Duplicates
}

func TestRedisAway(t *testing.T) {
	server := miniredis.RunT(t)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true, DisableRetry: true})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	filter := redisfilter.New(client, nil)
	c := start(t, filter, func(context.Context, waybill.Event) error { return nil })
	c.deliver("O-1")
	c.until("the first", func() bool { return c.applied.Load() == 1 })
	server.Close()
	c.deliver("O-1", "O-2")
	c.until("the second and a duplicate", func() bool { return c.applied.Load() == 2 && c.duplicates.Load() == 1 })
	c.wantOnce("O-1", "O-2")
}

func TestOnceAsksTheDatabaseBeforeItPassesOver(t *testing.T) {
	eachRedis(t, func(t *testing.T, client rueidis.Client, filter *redisfilter.Filter) {
		var mu sync.Mutex
		committed, effects := false, 0
		consumed := func(context.Context) (bool, error) { return committed, nil }
		consume := func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			if !committed {
				committed = true
				effects++
			}
			return nil
		}
		errBoom := errors.New("boom")
		if err := filter.Once(t.Context(), group, "e-1", consumed, func(context.Context) error { return errBoom }); !errors.Is(err, errBoom) {
			t.Fatal(err)
		}
		if seen, err := filter.Seen(t.Context(), group, []string{"e-1"}); err != nil || seen[0] {
			t.Errorf("seen %v, %v after a failure, want it not remembered", seen, err)
		}
		for _, step := range []string{"first", "again", "marked and lost", "flushed"} {
			switch step {
			case "marked and lost": // a database set back to yesterday
				committed, effects = false, 0
			case "flushed":
				flush(t, client)
			}
			if err := filter.Once(t.Context(), group, "e-1", consumed, consume); err != nil || effects != 1 {
				t.Errorf("%s: %d effects, %v; want 1", step, effects, err)
			}
		}
	})
}

func TestGroupsAndIDsDoNotMeet(t *testing.T) {
	eachRedis(t, func(t *testing.T, _ rueidis.Client, filter *redisfilter.Filter) {
		if err := filter.Remember(t.Context(), "a:b", []string{"c"}); err != nil {
			t.Fatal(err)
		}
		for _, pair := range [][2]string{{"a", "b:c"}, {"a:b:c", ""}, {"A:b", "c"}} {
			if seen, err := filter.Seen(t.Context(), pair[0], []string{pair[1]}); err != nil || seen[0] {
				t.Errorf("group %q, id %q: seen %v, %v, want not", pair[0], pair[1], seen, err)
			}
		}
	})
}
