package relaytest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/relay"
)

func testOrder[TX any](t *testing.T, h Harness[TX]) {
	each(t, h, "events of many keys arrive once and in order", func(e *env[TX]) {
		var all []waybill.Event
		for n := 1; n <= 5; n++ {
			for k := range 60 {
				all = append(all, event(fmt.Sprintf("k%d", k), n))
			}
		}
		e.append(all[:100]...)
		e.relay(nil)
		e.append(all[100:]...)
		e.sent(topic, len(all))
		e.settled()
		e.inOrder(true, all...)
		if got := e.tracked("k0-1").Receipt; got == nil || got.Via != "poll" || !strings.HasPrefix(got.PublishedTo, topic+"[") {
			t.Errorf("receipt %+v, want one that tells the place in %s", got, topic)
		}
	})

	each(t, h, "slow reads repeat nothing", func(e *env[TX]) {
		e.store.dawdle(25*time.Millisecond, "walk")
		e.broker.Delay(5 * time.Millisecond)
		var all []waybill.Event
		for n := range 120 {
			all = append(all, event(fmt.Sprintf("k%d", n%11), n/11+1))
		}
		e.relay(nil)
		for n := 0; n < len(all); n += 12 {
			e.append(all[n : n+12]...)
			e.pause(40 * time.Millisecond)
		}
		e.sent(topic, len(all))
		e.settled()
		e.inOrder(true, all...)
	})

	// A takes the lower id and commits after B was sent; a rollback leaves a hole.
	each(t, h, "late commits and holes delay nothing and lose nothing", func(e *env[TX]) {
		e.relay(nil)
		if !h.SerialWriters {
			a := e.begin()
			e.add(a, event("k1", 1))
			e.append(event("k2", 1))
			e.sent(topic, 1)
			e.pause(100 * time.Millisecond) // many polls, so that a high-water mark would have passed A
			e.commit(a)
			e.sent(topic, 2)
		} else {
			e.append(event("k2", 1))
			e.append(event("k1", 1))
			e.sent(topic, 2)
		}
		tx := e.begin()
		e.add(tx, event("k3", 1))
		e.rollback(tx)
		e.append(event("k4", 1))
		e.sent(topic, 3)
		e.settled()
		e.inOrder(true, event("k1", 1), event("k2", 1), event("k4", 1))
	})

	each(t, h, "one aggregate's visible events go out in version order", func(e *env[TX]) {
		mixed := []waybill.Event{
			{ID: "a7", Type: "T", Topic: topic, Key: "k", AggregateType: "A", AggregateID: "a", AggregateVersion: 7},
			{ID: "b1", Type: "T", Topic: topic, Key: "k", AggregateType: "B", AggregateID: "b", AggregateVersion: 1},
		}
		swapped := []waybill.Event{event("s", 2), event("s", 1)}
		e.append(append(mixed, swapped...)...)
		run := e.relay(nil)
		e.sent(topic, 4)
		e.settled()
		e.inOrder(true, append(mixed, event("s", 1), event("s", 2))...)
		e.append(event("late", 2))
		e.untilStatus("late-2", "SENT")
		e.append(event("late", 1))
		e.untilStatus("late-1", "SENT") // at once: its successor is gone
		if n := run.get(&run.behind); n > 1 {
			t.Errorf("counted %d events out of order, want at most 1", n)
		}
	})

	each(t, h, "a backlog larger than memory drains in order", func(e *env[TX]) {
		var all []waybill.Event
		for n := range 900 {
			all = append(all, event(fmt.Sprintf("k%d", n%7), n/7+1))
		}
		e.append(all...)
		e.relay(func(c *relay.Config) { c.MaxRows, c.FetchBatch, c.PublishBatch = 50, 20, 7 })
		e.sent(topic, len(all))
		e.settled()
		e.inOrder(true, all...)
	})

	each(t, h, "data larger than memory drains", func(e *env[TX]) {
		var all []waybill.Event
		for n := 1; n <= 30; n++ {
			ev := event("big", n)
			ev.Data = make([]byte, 50_000)
			all = append(all, ev)
		}
		e.append(all...)
		e.relay(func(c *relay.Config) { c.MaxBytes = 60_000 })
		e.sent(topic, len(all))
		e.inOrder(true, all...)
	})

	each(t, h, "with forget nothing is kept", func(e *env[TX]) {
		e.append(events("k", 1, 20)...)
		e.relay(func(c *relay.Config) { c.Forget = true })
		e.sent(topic, 20)
		e.settled()
		if f, err := e.db.Store.Frontier(t.Context()); err != nil || f.MaxID != 0 {
			t.Errorf("greatest event id is %d (%v), want an empty table", f.MaxID, err)
		}
	})

	// As a crash may leave them: their holder is settled, they are not released.
	each(t, h, "parked rows without a holder go out before newer ones", func(e *env[TX]) {
		e.append(events("k", 1, 3)...)
		e.parkAll("k-1", "k-2", "k-3")
		e.append(events("k", 4, 6)...)
		e.relay(func(c *relay.Config) { c.SweepEvery = 300 * time.Millisecond })
		e.sent(topic, 6)
		e.settled()
		e.append(event("k", 7)) // the key is open again
		e.sent(topic, 7)
		e.inOrder(true, events("k", 1, 7)...)
	})
}
