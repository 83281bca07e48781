package relaytest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/store"
)

func testPartialOutages[TX any](t *testing.T, h Harness[TX]) {
	each(t, h, "one failing statement beside good ones does not flood the log", func(e *env[TX]) {
		e.relay(nil)
		e.store.away(true, "walk")
		span := e.span(time.Minute)
		e.pause(span)
		most := 2 + int(span/(10*time.Second))
		for _, text := range []string{"database unavailable", "database available again"} {
			if n := e.log.count(text); n > most {
				e.t.Errorf("%d log lines %q in %v, want at most %d", n, text, span, most)
			}
		}
		e.store.away(false, "walk")
		e.append(event("k", 1))
		e.settled()
	})

	each(t, h, "what is due and cannot be sent does not hide what can", func(e *env[TX]) {
		refuse := func(_ context.Context, record waybill.Record) membroker.Verdict {
			switch {
			case record.Key == "dead":
				return membroker.Verdict{Err: broker.Permanent(errors.New("refused"), "")}
			case record.Topic == "refunds":
				return membroker.Verdict{Err: broker.Retryable(errors.New("refused"))}
			}
			return membroker.Verdict{}
		}
		e.broker.SetFault(refuse)
		var stuck []waybill.Event
		for n := range 40 {
			stuck = append(stuck, in("refunds", event(fmt.Sprintf("r%d", n), 1))...)
		}
		e.append(append(stuck, event("dead", 1))...)
		e.relay(func(c *relay.Config) { c.FetchBatch, c.MaxAttempts = 4, 1_000_000 })
		e.until("failures", func() bool { c := e.counts(); return c.Failed == 40 && c.Dead == 1 })
		e.broker.DenyTopic("refunds", true)
		e.broker.SetFault(nil)
		e.pause(300 * time.Millisecond) // the backoffs end, and all of the topic are due
		if _, err := e.db.Store.RetryDead(e.t.Context(), store.Action{Actor: "test", Reason: "mended"}, []string{"dead-1"}); err != nil {
			e.t.Fatal(err)
		}
		e.untilStatus("dead-1", store.StatusSent)
		e.broker.DenyTopic("refunds", false)
		e.settled()
	})

	each(t, h, "a slow search for what is due leaves time for the rest", func(e *env[TX]) {
		e.store.dawdle(300*time.Millisecond, "fetchdue")
		e.relay(nil)
		e.append(events("k", 1, 3)...)
		e.settled()
	})

	each(t, h, "slow reads miss neither new events nor late ones", func(e *env[TX]) {
		if h.SerialWriters {
			e.t.Skip("no transaction can commit a lower id late")
		}
		e.append(event("first", 1))
		e.relay(nil)
		e.settled()
		late := e.begin()
		e.add(late, event("k", 6)) // in the same lane, with a lower id
		e.store.dawdle(30*time.Millisecond, "walk")
		for n := range 5 {
			e.append(event("k", n+1))
			e.untilStatus(fmt.Sprintf("k-%d", n+1), store.StatusSent)
		}
		e.commit(late)
		e.untilStatus("k-6", store.StatusSent)
		e.settled()
		e.inOrder(true, events("k", 1, 6)...)
	})

	// One lane is read in many parts. Between two of them a transaction commits
	// whose id lies below, and then its key's next event.
	each(t, h, "a read in parts keeps the order of late ones", func(e *env[TX]) {
		if h.SerialWriters {
			e.t.Skip("no transaction can commit a lower id late")
		}
		e.append(event("k", 1))
		lane := e.tracked("k-1").Row.Lane
		other := ""
		for n := 0; other == ""; n++ {
			name := fmt.Sprintf("other%d", n)
			e.append(event(name, 1))
			if e.tracked(name+"-1").Row.Lane == lane {
				other = name
			}
		}
		late := e.begin()
		e.add(late, event("k", 2))
		e.append(events(other, 2, 120)...)
		e.store.dawdle(10*time.Millisecond, "walk")
		e.relay(func(c *relay.Config) { c.FetchBatch, c.PublishBatch = 5, 5 })
		e.untilStatus(other+"-20", store.StatusSent)
		e.commit(late)
		e.append(event("k", 3))
		e.untilStatus("k-3", store.StatusSent)
		e.settled()
		e.inOrder(true, append(events("k", 1, 3), events(other, 1, 120)...)...)
	})

	// While reads are slow most of them begin above what was seen, so that a later
	// event of the key is found before the one whose transaction stayed open.
	each(t, h, "slow reads keep the order of late ones", func(e *env[TX]) {
		if h.SerialWriters {
			e.t.Skip("no transaction can commit a lower id late")
		}
		var all []waybill.Event
		commit := func(some ...waybill.Event) {
			e.append(some...)
			all = append(all, some...)
		}
		// One of them is in the lane of each key below.
		others := func(round int) (some []waybill.Event) {
			for n := range 300 {
				some = append(some, event(fmt.Sprintf("other-%d", n), round))
			}
			return some
		}
		commit(others(1)...)
		e.relay(nil)
		e.settled()
		e.store.dawdle(30*time.Millisecond, "walk")
		for round := range 5 {
			var firsts, seconds []waybill.Event
			for k := range 3 + 30*(round%2) { // few are read one by one
				key := fmt.Sprintf("k%d-%d", round, k)
				firsts, seconds = append(firsts, event(key, 1)), append(seconds, event(key, 2))
			}
			late := e.begin()
			e.add(late, firsts...)
			commit(others(round + 2)...)
			e.sent(topic, len(all))
			e.pause(100 * time.Millisecond)
			e.commit(late)
			all = append(all, firsts...)
			commit(seconds...)
			e.sent(topic, len(all))
		}
		e.settled()
		e.inOrder(true, all...)
	})

	// The lanes' cursors stand still meanwhile, so that every full pass shows them.
	each(t, h, "rows that wait for a silent broker are not walked over all the time", func(e *env[TX]) {
		const total, later = 600, 100
		var all []waybill.Event
		for n := range total {
			all = append(all, event(fmt.Sprintf("k%d", n%50), n/50+1))
		}
		if !h.SerialWriters {
			open := e.begin()
			e.add(open, event("open", 1))
			defer e.rollback(open)
		}
		e.append(all...)
		silent := make(chan struct{})
		e.broker.SetGate(func(context.Context, []waybill.Record) error {
			<-silent
			return nil
		})
		e.store.dawdle(15*time.Millisecond, "walk")
		run := e.relay(func(c *relay.Config) { c.PublishTimeout = time.Hour })
		e.until("rows that are known", func() bool { return run.Health().Stats.Rows == total })
		before, took := e.store.walkedOver(), stopwatch()
		for n := range later {
			e.append(event("new", n+1))
			e.pause(e.span(10*time.Second) / later)
		}
		span := took()
		if n, most := e.store.walkedOver()-before, total*(2+int(span/(100*time.Millisecond))); n > most {
			t.Errorf("%d rows were walked over in %v, want at most %d", n, span, most)
		}
		close(silent)
		e.broker.SetGate(nil)
		e.sent(topic, total+later)
		e.settled()
		e.inOrder(true, append(all, events("new", 1, later)...)...)
	})

	each(t, h, "a statement that never returns is given up", func(e *env[TX]) {
		if h.Bubble == nil {
			e.t.Skip("it takes half a minute")
		}
		e.relay(nil)
		for _, op := range []string{"walk", "apply"} {
			e.store.stall(1, op)
			e.append(event(op, 1))
			e.settled()
		}
	})
}
