package relaytest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/store"
)

var (
	errRefused   = broker.Retryable(errors.New("not now"))
	errAwayTopic = broker.Unavailable(broker.ScopeTopic, errors.New("the topic is away"), "")
)

func testRefusals[TX any](t *testing.T, h Harness[TX]) {
	each(t, h, "a refused event delays only its key", func(e *env[TX]) {
		e.broker.Refuse("a-1", membroker.Always, errRefused)
		e.append(event("a", 1), event("a", 2), event("b", 1))
		run := e.relay(func(c *relay.Config) { c.MaxAttempts = 1_000_000 })
		if got := e.sent(topic, 1); got[0] != "b-1" {
			t.Errorf("sent %v, want b-1 first", got)
		}
		e.until("a second refusal", func() bool { return run.failures("retryable") >= 2 })
		e.broker.Refuse("a-1", 0, nil)
		e.settled()
		e.inOrder(true, event("a", 1), event("a", 2), event("b", 1))
	})

	each(t, h, "an event that is not answered stays and is sent again", func(e *env[TX]) {
		e.broker.Lose("lost-1", 1)
		e.broker.Mute("mute-1", 2)
		// Once it has been silent twice, it accepts nothing before it was looked at.
		e.broker.SetFault(func(_ context.Context, record waybill.Record) membroker.Verdict {
			if record.EventID != "mute-1" {
				return membroker.Verdict{}
			}
			return membroker.Verdict{Err: errAwayTopic}
		})
		e.append(event("lost", 1), event("mute", 1), event("mute", 2), event("ok", 1))
		run := e.relay(func(c *relay.Config) { c.PublishTimeout = 400 * time.Millisecond })
		e.until("an unanswered attempt", func() bool { return run.failures("unknown") > 0 })
		if got := e.tracked("mute-1"); got.Status != store.StatusPending || got.Row == nil || got.Row.Retries != 0 {
			t.Errorf("unanswered event is %s with row %+v, want PENDING without an attempt", got.Status, got.Row)
		}
		e.broker.SetFault(nil)
		e.settled()
		e.inOrder(false, event("lost", 1), event("mute", 1), event("mute", 2), event("ok", 1))
		if n := count(e.broker.EventIDs(topic), "lost-1"); n != 2 {
			t.Errorf("lost-1 was accepted %d times, want 2: its first answer was lost", n)
		}
	})

	each(t, h, "an event that is never answered is its own fault in the end", func(e *env[TX]) {
		e.broker.Mute("mute-1", membroker.Always)
		e.append(event("mute", 1), event("mute", 2))
		e.relay(func(c *relay.Config) { c.MaxAttempts, c.PublishTimeout = 2, 100*time.Millisecond })
		n := 0
		e.until("mute-1 DEAD", func() bool {
			n++
			e.append(event(fmt.Sprintf("n%d", n), 1))
			e.pause(20 * time.Millisecond)
			return e.tracked("mute-1").Status == store.StatusDead
		})
		e.until("its neighbours", func() bool { return len(e.broker.EventIDs(topic)) >= n })
		if got := e.tracked("mute-2"); got.Status != store.StatusPending {
			t.Errorf("mute-2 is %s, want PENDING: its key is held", got.Status)
		}
	})

	// It is all that is known when the broker is taken for silent.
	each(t, h, "an event that is never answered does not stop the reading", func(e *env[TX]) {
		e.broker.Mute("mute-1", membroker.Always)
		e.append(event("mute", 1))
		e.relay(func(c *relay.Config) { c.PublishTimeout = 50 * time.Millisecond })
		e.until("the pause", func() bool { return e.log.count("broker unavailable") > 0 })
		e.append(events("k", 1, 20)...)
		e.sent(topic, 20)
		e.inOrder(true, events("k", 1, 20)...)
	})

	each(t, h, "a batch of failures at the head does not starve the rest", func(e *env[TX]) {
		var good []waybill.Event
		for n := range 10 {
			bad := event(fmt.Sprintf("bad%d", n), 1)
			e.broker.Refuse(bad.ID, membroker.Always, errRefused)
			e.append(bad)
		}
		for n := range 100 {
			good = append(good, event(fmt.Sprintf("good%d", n), 1))
		}
		e.append(good...)
		e.relay(func(c *relay.Config) {
			c.FetchBatch, c.PublishBatch, c.MaxRows, c.MaxAttempts = 10, 10, 10, 1000
			c.BackoffMin, c.BackoffMax = 200*time.Millisecond, time.Second
		})
		e.sent(topic, 100)
		e.inOrder(true, good...)
	})

	each(t, h, "one failing event makes no hot loop", func(e *env[TX]) {
		e.broker.Refuse("bad-1", membroker.Always, errRefused)
		e.append(event("bad", 1))
		e.relay(func(c *relay.Config) {
			c.MaxAttempts, c.PollIdle = 1000, 50*time.Millisecond
			c.BackoffMin, c.BackoffMax = 200*time.Millisecond, 5*time.Minute
		})
		e.until("a first attempt", func() bool { return e.broker.Calls() > 0 })
		took := stopwatch()
		e.pause(e.span(10 * time.Second))
		span := took()
		if n := e.broker.Calls(); n > 60 {
			t.Errorf("%d Publish calls in %v, want a few", n, span)
		}
		if n, most := e.store.called("walk"), int(span/time.Millisecond)/10+50; n > most {
			t.Errorf("%d reads in %v, want at most %d", n, span, most)
		}
		if n := e.store.called("apply"); n > 150 {
			t.Errorf("%d writes in %v, want a few", n, span)
		}
	})

	each(t, h, "results are positional", func(e *env[TX]) {
		e.broker.Refuse("b-1", 1, errRefused)
		e.broker.Lose("c-1", 1)
		all := []waybill.Event{event("a", 1), event("b", 1), event("b", 2), event("c", 1)}
		e.append(all...)
		run := e.relay(nil)
		e.sent(topic, 5)
		e.settled()
		e.inOrder(false, all...)
		if n := run.failures("retryable"); n != 1 {
			t.Errorf("%d refusals, want 1", n)
		}
		if n := count(e.broker.EventIDs(topic), "c-1"); n != 2 {
			t.Errorf("c-1 was accepted %d times, want twice with the same id", n)
		}
	})

	each(t, h, "an event that is too large is dead at once and alone", func(e *env[TX]) {
		e.broker.MaxRecordBytes(5000)
		var all []waybill.Event
		for n := range 10 {
			all = append(all, event(fmt.Sprintf("k%d", n), 1))
		}
		all[4].Data = []byte(`"` + strings.Repeat("x", 9000) + `"`)
		e.append(all...)
		e.relay(nil)
		e.sent(topic, 9)
		e.untilStatus("k4-1", store.StatusDead)
		row := e.tracked("k4-1").Row
		for _, part := range []string{"too large", "k4-1", "5000"} {
			if !strings.Contains(row.LastErr, part) || !strings.Contains(row.FirstErr, part) {
				t.Errorf("reason %q does not say %q", row.LastErr, part)
			}
		}
		e.inOrder(true, slices.Delete(slices.Clone(all), 4, 5)...)
	})

	each(t, h, "attempts end in DEAD with the first and the last error", func(e *env[TX]) {
		n := 0
		e.broker.SetFault(func(_ context.Context, record waybill.Record) membroker.Verdict {
			if record.EventID != "bad-1" {
				return membroker.Verdict{}
			}
			n++
			return membroker.Verdict{Err: broker.Retryable(fmt.Errorf("refusal %d", n))}
		})
		e.append(event("bad", 1), event("bad", 2))
		e.relay(func(c *relay.Config) { c.MaxAttempts = 3 })
		e.untilStatus("bad-1", store.StatusDead)
		row := e.tracked("bad-1").Row
		if row.Retries != 3 || !strings.Contains(row.FirstErr, "refusal 1") || !strings.Contains(row.LastErr, "refusal 3") {
			t.Errorf("dead row has retries %d, first %q, last %q", row.Retries, row.FirstErr, row.LastErr)
		}
	})

	each(t, h, "a topic may go on past its dead events", func(e *env[TX]) {
		e.broker.Refuse("k-2", membroker.Always, broker.Permanent(errors.New("illegal"), ""))
		e.append(events("k", 1, 4)...)
		e.relay(func(c *relay.Config) { c.Topics = map[string]relay.TopicConfig{topic: {OnDead: relay.Continue}} })
		e.sent(topic, 3)
		e.untilStatus("k-2", store.StatusDead)
		e.append(event("k", 5))
		e.sent(topic, 4)
		e.inOrder(true, event("k", 1), event("k", 3), event("k", 4), event("k", 5))
	})
}

func count(ids []string, id string) (n int) {
	for _, other := range ids {
		if other == id {
			n++
		}
	}
	return n
}
