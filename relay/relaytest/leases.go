package relaytest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/store"
)

func testLeases[TX any](t *testing.T, h Harness[TX]) {
	each(t, h, "a send longer than the lease is one send while the lease is renewed", func(e *env[TX]) {
		patient := func(c *relay.Config) {
			c.LeaseTTL, c.PublishTimeout = 5*time.Second, time.Minute
		}
		e.relay(patient)
		e.relay(patient)
		e.broker.Delay(8 * time.Second)
		e.append(event("k", 1))
		e.sent(topic, 1)
		e.settled()
		e.inOrder(true, event("k", 1))
	})

	each(t, h, "a late owner's write changes nothing and is counted", func(e *env[TX]) {
		short := func(c *relay.Config) {
			c.LeaseTTL, c.RenewEvery, c.PublishTimeout = 600*time.Millisecond, 100*time.Millisecond, 10*time.Second
		}
		e.overlap = true
		frozen := &moody{Outbox: e.db.Store}
		release := make(chan struct{})
		e.broker.SetGate(func(ctx context.Context, _ []waybill.Record) error {
			frozen.away(true, "renew", "claim") // its lease runs out while it waits for the broker
			select {
			case <-release:
			case <-ctx.Done():
			}
			return nil
		})
		late := e.relayOn(frozen, short)
		e.until("lanes of the first", func() bool { return late.get(&late.lanes) == store.Lanes })
		e.append(events("k", 1, 3)...)
		e.until("a call", func() bool { return e.broker.Calls() > 0 })
		e.broker.SetGate(nil)
		e.relay(short)
		e.settled()
		close(release)
		e.until("the late write", func() bool { return late.get(&late.stale) > 0 || len(e.broker.EventIDs(topic)) >= 6 })
		e.until("the late write", func() bool { return late.get(&late.stale) > 0 })
		e.inOrder(false, events("k", 1, 3)...)
	})

	each(t, h, "retry and DEAD of a stale owner change nothing", func(e *env[TX]) {
		e.append(event("k", 1))
		ctx := t.Context()
		old, err := e.db.Store.Claim(ctx, "old", 50*time.Millisecond, store.Lanes)
		if err != nil {
			t.Fatal(err)
		}
		e.until("a take-over", func() bool {
			taken, err := e.db.Store.Claim(ctx, "new", time.Minute, store.Lanes)
			return err == nil && len(taken) == store.Lanes
		})
		row := e.tracked("k-1").Row
		for _, dead := range []bool{false, true} {
			err := e.db.Store.Apply(ctx, store.Guard{Owner: "old", Lanes: old}, store.Changes{Failed: []store.FailedChange{
				{Change: store.Change{ID: row.ID, EventID: "k-1"}, Dead: dead, Retries: 5, Error: "late"},
			}})
			if _, ok := asStale(err); !ok {
				t.Errorf("stale write with dead=%v: %v, want a StaleError", dead, err)
			}
		}
		if got := e.tracked("k-1"); got.Status != store.StatusPending || got.Row.Retries != 0 || got.Row.Parked {
			t.Errorf("row after stale writes %+v, want it untouched", got.Row)
		}
	})

	each(t, h, "relays that start together send each event once", func(e *env[TX]) {
		var all []waybill.Event
		for n := range 100 {
			all = append(all, event(fmt.Sprintf("k%d", n%25), n/25+1))
		}
		e.append(all...)
		for range 3 {
			e.relay(nil)
		}
		e.sent(topic, 100)
		e.settled()
		e.inOrder(true, all...)
	})

	if h.Follows {
		return // one relay holds all lanes
	}
	each(t, h, "relays share the lanes, join and leave without a repetition", func(e *env[TX]) {
		a := e.relay(nil)
		e.until("all lanes", func() bool { return a.get(&a.lanes) == store.Lanes })
		var all []waybill.Event
		var mu sync.Mutex
		stop := make(chan struct{})
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			for n := 1; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				for k := range 10 {
					mu.Lock()
					all = append(all, event(fmt.Sprintf("k%d", k), n))
					batch := all[len(all)-1:]
					mu.Unlock()
					e.append(batch...)
				}
				e.pause(time.Millisecond)
			}
		}()
		b := e.relay(nil)
		e.until("a fair share", func() bool { return a.get(&a.lanes) == 32 && b.get(&b.lanes) == 32 })
		c := e.relay(nil)
		e.until("a fair share of three", func() bool {
			x, y, z := a.get(&a.lanes), b.get(&b.lanes), c.get(&c.lanes)
			return x+y+z == store.Lanes && max(x, y, z) <= 22
		})
		if err := b.stop(); err != nil {
			t.Error(err)
		}
		e.until("the others take over", func() bool { return a.get(&a.lanes) == 32 && c.get(&c.lanes) == 32 })
		close(stop)
		<-stopped
		e.settled()
		e.inOrder(true, all...)
	})
}

func testStopping[TX any](t *testing.T, h Harness[TX]) {
	each(t, h, "stopping waits for what the broker owes, settles and leaves", func(e *env[TX]) {
		run := e.relay(nil)
		e.broker.Delay(200 * time.Millisecond)
		e.append(events("k", 1, 3)...)
		e.until("a call", func() bool { return e.broker.Calls() > 0 })
		if err := run.stop(); err != nil {
			t.Errorf("Run returned %v, want nil", err)
		}
		e.broker.Delay(0)
		leases, err := e.db.Store.ListLeases(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, lease := range leases {
			if lease.Owner != "" {
				t.Fatalf("lane %d is still owned by %s", lease.Lane, lease.Owner)
			}
		}
		e.relay(nil)
		e.settled()
		e.inOrder(true, events("k", 1, 3)...)
	})

	each(t, h, "a drain that takes too long is cut short and says so", func(e *env[TX]) {
		run := e.relay(func(c *relay.Config) { c.Grace, c.PublishTimeout = 50*time.Millisecond, time.Minute })
		e.broker.SetGate(func(ctx context.Context, _ []waybill.Record) error {
			<-ctx.Done()
			return ctx.Err()
		})
		e.append(event("k", 1))
		e.until("a call", func() bool { return e.broker.Calls() > 0 })
		if err := run.stop(); err == nil {
			t.Error("Run returned nil, want the number of events left")
		}
		if got := e.tracked("k-1").Status; got != store.StatusPending {
			t.Errorf("event is %s, want PENDING", got)
		}
	})
}

// gateOnce runs f when the first Publish comes.
func gateOnce(f func()) membroker.Gate {
	var once sync.Once
	return func(context.Context, []waybill.Record) error {
		once.Do(f)
		return nil
	}
}

func topicSpecs(names ...string) (specs []broker.TopicSpec) {
	for _, name := range names {
		specs = append(specs, broker.TopicSpec{Name: name})
	}
	return specs
}
