package relaytest

import (
	"context"
	"errors"
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

var errIllegal = broker.Permanent(errors.New("illegal"), "")

func testHolds[TX any](t *testing.T, h Harness[TX]) {
	act := store.Action{Actor: "test", Reason: "because"}

	each(t, h, "a dead event holds its key until it is retried", func(e *env[TX]) {
		e.broker.Refuse("k-1", 1, errIllegal)
		e.append(append(events("k", 1, 3), event("other", 1))...)
		run := e.relay(nil)
		e.sent(topic, 1)
		e.untilStatus("k-1", store.StatusDead)
		e.append(event("k", 4))
		e.until("parked followers", func() bool { return e.counts().Parked == 4 })
		e.until("yellow", func() bool { return run.Health().State == relay.Yellow })
		results, err := e.db.Store.RetryDead(t.Context(), act, []string{"k-1", "k-2"})
		if err != nil || results[0].Outcome != store.OutcomeRetried || results[1].Outcome != store.OutcomeNotDead {
			t.Fatalf("retry: %v %v", results, err)
		}
		e.sent(topic, 5)
		e.settled()
		e.inOrder(true, append(events("k", 1, 4), event("other", 1))...)
		audit, err := e.db.Store.Audit(t.Context(), 10)
		if err != nil || len(audit) != 1 || audit[0].Target != "k-1" || audit[0].Reason != "because" {
			t.Errorf("audit %+v %v, want the retry of k-1", audit, err)
		}
		e.until("green", func() bool { return run.Health().State == relay.Green })
	})

	each(t, h, "followers of a skipped event go out in order, newcomers behind them", func(e *env[TX]) {
		followers := 2000
		if h.Bubble == nil {
			followers = 300
		}
		e.broker.Refuse("k-1", 1, errIllegal)
		e.append(event("k", 1))
		e.relay(func(c *relay.Config) { c.MaxRows, c.FetchBatch = 150, 70 })
		e.untilStatus("k-1", store.StatusDead)
		e.append(events("k", 2, followers)...)
		e.until("parked followers", func() bool { return e.counts().Parked == int64(followers) })
		var healthy []waybill.Event
		for n := range 50 {
			healthy = append(healthy, event(fmt.Sprintf("h%d", n), 1))
		}
		e.append(healthy...)
		e.sent(topic, len(healthy))
		results, err := e.db.Store.SkipDead(t.Context(), act, []string{"k-1"})
		if err != nil || results[0].Outcome != store.OutcomeSkipped {
			t.Fatalf("skip: %v %v", results, err)
		}
		e.append(events("k", followers+1, followers+3)...)
		e.sent(topic, len(healthy)+followers+3)
		e.settled()
		e.inOrder(true, append(events("k", 1, followers+3), healthy...)...)
		var marker waybill.Event
		for _, record := range e.broker.Records(topic) {
			if record.EventID == "k-1" {
				if marker, err = waybill.Decode(&record); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !marker.IsSkipMarker() || marker.AggregateVersion != 1 || string(marker.Data) != "{}" {
			t.Errorf("marker %+v, want a skip marker of version 1", marker)
		}
		if got := e.tracked("k-1"); got.Receipt == nil || got.Receipt.Outcome != store.StatusSkipped {
			t.Errorf("receipt %+v, want SKIPPED", got.Receipt)
		}
	})

	each(t, h, "a new owner finds held keys before it sends anything of them", func(e *env[TX]) {
		e.broker.Refuse("dead-1", 1, errIllegal)
		e.broker.Refuse("slow-1", membroker.Always, errRefused)
		e.append(append(events("dead", 1, 3), events("slow", 1, 3)...)...)
		wait := e.span(10 * time.Second)
		first := e.relay(func(c *relay.Config) { c.BackoffMin, c.BackoffMax = wait, wait })
		e.until("holds", func() bool { return e.counts().Parked == 6 })
		if err := first.stop(); err != nil {
			t.Fatal(err)
		}
		e.broker.Refuse("slow-1", 0, nil)
		e.append(append(events("dead", 4, 5), events("slow", 4, 5)...)...)
		second := e.relay(nil)
		e.until("the hold of the dead event", func() bool { return second.Health().Stats.HeldKeys > 0 })
		if _, err := e.db.Store.RetryDead(t.Context(), act, []string{"dead-1"}); err != nil {
			t.Fatal(err)
		}
		e.sent(topic, 10)
		e.settled()
		e.inOrder(true, append(events("dead", 1, 5), events("slow", 1, 5)...)...)
	})

	// The holder is settled, and the process ends before its followers are read.
	each(t, h, "followers whose holder is gone go out before newer ones", func(e *env[TX]) {
		e.append(events("k", 1, 6)...)
		e.parkAll("k-1", "k-2", "k-3")
		e.relay(nil)
		e.sent(topic, 6)
		e.settled()
		e.inOrder(true, events("k", 1, 6)...)
	})

	each(t, h, "many held keys are drained when their time comes", func(e *env[TX]) {
		keys := 200
		var all []waybill.Event
		for n := 1; n <= 3; n++ {
			for k := range keys {
				all = append(all, event(fmt.Sprintf("k%d", k), n))
			}
		}
		for k := range keys {
			e.broker.Refuse(fmt.Sprintf("k%d-1", k), 2, errRefused)
		}
		e.append(all...)
		e.relay(nil)
		e.sent(topic, len(all))
		e.settled()
		e.inOrder(true, all...)
	})

	each(t, h, "a hold shorter than its write repeats nothing", func(e *env[TX]) {
		e.store.dawdle(30*time.Millisecond, "fetchkey", "apply")
		var all []waybill.Event
		for n := range 60 {
			all = append(all, event(fmt.Sprintf("k%d", n%6), n/6+1))
		}
		for k := range 6 {
			e.broker.Refuse(fmt.Sprintf("k%d-3", k), 3, errRefused)
		}
		e.append(all...)
		e.relay(func(c *relay.Config) { c.BackoffMin, c.BackoffMax = time.Millisecond, 2*time.Millisecond })
		e.sent(topic, len(all))
		e.settled()
		e.inOrder(true, all...)
	})

	each(t, h, "random refusals, silences and losses keep the order", func(e *env[TX]) {
		verdicts := newDice(7)
		e.broker.SetFault(verdicts.roll)
		var all []waybill.Event
		total := 400
		if h.Bubble == nil {
			total = 120
		}
		for n := range total {
			all = append(all, event(fmt.Sprintf("k%d", n%13), n/13+1))
		}
		e.relay(func(c *relay.Config) {
			c.MaxAttempts, c.PublishTimeout, c.PublishBatch, c.MaxRows = 1000, 30*time.Millisecond, 20, 60
			c.SweepEvery = 100 * time.Millisecond
		})
		for n := 0; n < len(all); n += 40 {
			e.append(all[n : n+40]...)
			e.pause(5 * time.Millisecond)
		}
		e.settled()
		e.inOrder(false, all...)
	})
}

// parkAll parks queue rows as a relay would, that crashes right afterwards.
func (e *env[TX]) parkAll(ids ...string) {
	e.t.Helper()
	ctx := e.t.Context()
	var changes store.Changes
	lanes := make(map[int]bool)
	for _, id := range ids {
		row := e.tracked(id).Row
		changes.Parked = append(changes.Parked, row.ID)
		lanes[row.Lane] = true
	}
	leases, err := e.db.Store.Claim(ctx, "crashed", time.Minute, store.Lanes)
	if err != nil {
		e.t.Fatal(err)
	}
	guard := store.Guard{Owner: "crashed"}
	for _, lease := range leases {
		if lanes[lease.Lane] {
			guard.Lanes = append(guard.Lanes, lease)
		}
	}
	if err := e.db.Store.Apply(ctx, guard, changes); err != nil {
		e.t.Fatal(err)
	}
	if err := e.db.Store.Release(ctx, "crashed", leases); err != nil {
		e.t.Fatal(err)
	}
}

// A dice rolls the same faults for the same seed, whatever the interleaving.
type dice struct {
	mu    sync.Mutex
	state uint64
}

func newDice(seed uint64) *dice { return &dice{state: seed} }

func (d *dice) roll(context.Context, waybill.Record) membroker.Verdict {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.state = d.state*6364136223846793005 + 1442695040888963407
	switch d.state >> 33 % 20 {
	case 0, 1:
		return membroker.Verdict{Err: errRefused}
	case 2:
		return membroker.Verdict{Silent: true}
	case 3:
		return membroker.Verdict{Silent: true, Stored: true}
	}
	return membroker.Verdict{}
}
