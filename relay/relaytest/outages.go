package relaytest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/store"
)

func testOutages[TX any](t *testing.T, h Harness[TX]) {
	each(t, h, "an outage of the broker costs no attempt", func(e *env[TX]) {
		e.broker.Outage(true)
		var all []waybill.Event
		for n := range 24 {
			all = append(all, event(fmt.Sprintf("k%d", n%6), n/6+1))
		}
		e.append(all...)
		run := e.relay(func(c *relay.Config) { c.MaxAttempts = 2 })
		e.until("red", func() bool { return run.Health().State == relay.Red })
		e.pause(e.span(10 * time.Minute))
		if c := e.counts(); c.Pending != 24 || c.Failed != 0 || c.Dead != 0 {
			t.Errorf("during the outage %+v, want 24 pending and no attempt spent", c)
		}
		e.broker.Outage(false)
		e.sent(topic, 24)
		e.settled()
		e.inOrder(true, all...)
		e.until("green", func() bool { return run.Health().State == relay.Green })
	})

	each(t, h, "a broker that answers nothing costs no attempt", func(e *env[TX]) {
		e.broker.SetFault(func(context.Context, waybill.Record) membroker.Verdict { return membroker.Verdict{Silent: true} })
		e.append(append(events("a", 1, 5), events("b", 1, 5)...)...)
		run := e.relay(func(c *relay.Config) { c.MaxAttempts, c.PublishTimeout = 2, 50*time.Millisecond })
		e.until("red", func() bool { return run.Health().State == relay.Red })
		e.pause(e.span(time.Minute))
		if c := e.counts(); c.Pending != 10 || c.Failed != 0 || c.Dead != 0 {
			t.Errorf("during the silence %+v, want 10 pending and no attempt spent", c)
		}
		e.broker.SetFault(nil)
		e.sent(topic, 10)
		e.settled()
		e.inOrder(true, append(events("a", 1, 5), events("b", 1, 5)...)...)
	})

	each(t, h, "a denied topic stops alone and catches up in order", func(e *env[TX]) {
		e.broker.DenyTopic("refunds", true)
		many := 3000
		if h.Bubble == nil {
			many = 600
		}
		var denied, free []waybill.Event
		for n := range many {
			denied = append(denied, in("refunds", event(fmt.Sprintf("r%d", n%50), n/50+1))...)
		}
		e.append(denied...)
		run := e.relay(func(c *relay.Config) { c.MaxRows, c.FetchBatch = 120, 120 })
		for n := range 100 {
			free = append(free, event(fmt.Sprintf("o%d", n%10), n/10+1))
		}
		e.append(free...)
		e.sent(topic, len(free))
		e.until("yellow", func() bool { return run.Health().State == relay.Yellow })
		if n := len(e.broker.EventIDs("refunds")); n != 0 {
			t.Errorf("%d records in the denied topic", n)
		}
		if c := e.counts(); c.Failed != 0 || c.Dead != 0 {
			t.Errorf("%+v, want no attempt spent", c)
		}
		e.broker.DenyTopic("refunds", false)
		e.sent("refunds", many)
		e.settled()
		e.inOrder(true, append(denied, free...)...)
	})

	each(t, h, "a topic that does not exist waits for it", func(e *env[TX]) {
		e.append(append(in("later", events("k", 1, 3)...), event("other", 1))...)
		e.relay(nil)
		e.sent(topic, 1)
		e.pause(50 * time.Millisecond)
		if err := e.broker.EnsureTopics(t.Context(), topicSpecs("later")); err != nil {
			t.Fatal(err)
		}
		e.sent("later", 3)
		e.settled()
		e.inOrder(true, in("later", events("k", 1, 3)...)...)
	})

	each(t, h, "an outage of the database is waited for", func(e *env[TX]) {
		e.append(event("k", 1))
		run := e.relay(nil)
		e.settled()
		e.store.away(true, everything...)
		e.append(event("k", 2))
		e.until("red", func() bool { return run.Health().State == relay.Red })
		span := e.span(time.Minute)
		e.pause(span)
		if n, most := e.log.count("database unavailable"), 2+int(span/(10*time.Second)); n < 1 || n > most {
			t.Errorf("%d log lines in %v, want 1 to %d", n, span, most)
		}
		if n := len(e.broker.EventIDs(topic)); n != 1 {
			t.Errorf("%d records sent, want 1: nothing may be sent that cannot be settled", n)
		}
		e.store.away(false, everything...)
		e.sent(topic, 2)
		e.settled()
		e.until("green", func() bool { return run.Health().State == relay.Green })
		e.inOrder(true, events("k", 1, 2)...)
	})

	each(t, h, "a busy database delays the start and does not refuse it", func(e *env[TX]) {
		e.append(event("k", 1))
		e.store.stall(2, "renew")
		e.relay(func(c *relay.Config) { c.LeaseTTL, c.RenewEvery = time.Second, 250*time.Millisecond })
		e.sent(topic, 1)
		e.settled()
		if n := e.log.count("the database is busy"); n < 2 || h.Bubble != nil && n > 2 {
			t.Errorf("the log says %d times that the database is busy, want the 2 that were planned", n)
		}
	})

	each(t, h, "a read-only database stops the sending", func(e *env[TX]) {
		run := e.relay(func(c *relay.Config) { c.LeaseTTL, c.RenewEvery = 12*time.Second, 4*time.Second })
		e.until("lanes", func() bool { return run.get(&run.lanes) == store.Lanes })
		// After an idle spell the last proof is old. A renewal meanwhile is one.
		for spell := false; !spell; {
			renewals := e.store.called("renew")
			e.pause(1500 * time.Millisecond)
			e.store.away(true, "apply", "renew", "claim")
			if spell = e.store.called("renew") == renewals; !spell {
				e.store.away(false, "apply", "renew", "claim")
			}
		}
		e.append(events("k", 1, 5)...)
		e.until("red", func() bool { return run.Health().State == relay.Red })
		if n := len(e.broker.EventIDs(topic)); n != 0 {
			t.Errorf("%d records sent without the means to settle them", n)
		}
		e.pause(e.span(10 * time.Second))
		if state := run.Health().State; state != relay.Red {
			t.Errorf("health is %s while nothing can be written, want red", state)
		}
		if n := e.log.count("database available again"); n != 0 {
			t.Errorf("the log says %d times that the database is back, want 0", n)
		}
		e.store.away(false, "apply", "renew", "claim")
		e.sent(topic, 5)
		e.settled()
		e.inOrder(true, events("k", 1, 5)...)
	})

	each(t, h, "a failed settle is tried again and nothing is sent again", func(e *env[TX]) {
		e.append(event("warm", 1))
		e.relay(func(c *relay.Config) { c.LeaseTTL = 30 * time.Second })
		e.settled()
		e.broker.SetGate(gateOnce(func() { e.store.away(true, "apply") }))
		e.append(events("k", 1, 5)...)
		e.until("records", func() bool { return len(e.broker.EventIDs(topic)) > 1 })
		e.pause(e.span(3 * time.Second))
		e.store.away(false, "apply")
		e.sent(topic, 6)
		e.settled()
		e.inOrder(true, events("k", 1, 5)...)
	})

	// An event that was sent, settled and queued again has a receipt already.
	each(t, h, "an existing receipt does not fail the batch", func(e *env[TX]) {
		e.append(events("k", 1, 3)...)
		e.relay(nil)
		e.settled()
		action := store.Action{Actor: "test", Reason: "again"}
		results, err := e.db.Store.Requeue(t.Context(), action, []string{"k-2", "k-9"})
		if err != nil || results[0].Outcome != store.OutcomeQueued || results[1].Outcome != store.OutcomeGone {
			t.Fatalf("requeue: %v %v", results, err)
		}
		e.append(event("k", 4))
		e.sent(topic, 5)
		e.settled()
		if n := count(e.broker.EventIDs(topic), "k-2"); n != 2 {
			t.Errorf("k-2 was sent %d times, want 2", n)
		}
		if got := e.tracked("k-2"); got.Receipt == nil || got.Receipt.Outcome != store.StatusSent {
			t.Errorf("receipt %+v, want SENT", got.Receipt)
		}
	})
}
