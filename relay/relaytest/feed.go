package relaytest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/cdc"
	"github.com/waybillhq/waybill/cdc/memlog"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/store"
)

// RunFeed runs the cases about a database's own log that need nothing of it but a
// source.
func RunFeed[TX any](t *testing.T, h Harness[TX]) { testFeed(t, h) }

// follows starts a relay and waits until it follows the log.
func (e *env[TX]) follows(adjust func(*relay.Config)) *running {
	e.t.Helper()
	run := e.relay(adjust)
	run.in(e, cdc.Streaming)
	return run
}

// in waits until the feed is in a state.
func (r *running) in(e interface{ until(string, func() bool) }, state cdc.State) {
	r.t.Helper()
	e.until("the feed "+string(state), func() bool { return r.state() == state })
}

func (r *running) state() cdc.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.states) == 0 {
		return ""
	}
	return r.states[len(r.states)-1]
}

// was reports whether the feed has been in a state.
func (r *running) was(state cdc.State) bool { return r.times(state) > 0 }

// times returns how often the feed came into a state, however shortly.
func (r *running) times(state cdc.State) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.states {
		if s == state {
			n++
		}
	}
	return n
}

// feed returns the status after the next renewal.
func (r *running) feed(e interface{ until(string, func() bool) }, what string, ok func(*relay.FeedStatus) bool) {
	r.t.Helper()
	e.until(what, func() bool { st := r.Health().Stats.Feed; return st != nil && ok(st) })
}

func testFeed[TX any](t *testing.T, h Harness[TX]) {
	if !h.Follows {
		t.Skip("no log is read")
	}
	each(t, h, "what is committed is told, and the lanes are not walked", func(e *env[TX]) {
		e.append(events("before", 1, 5)...)
		run := e.follows(nil)
		e.sent(topic, 5)
		e.settled()
		e.until("the walks to end", func() bool {
			n := e.store.called("walk")
			e.pause(300 * time.Millisecond)
			return e.store.called("walk") == n && e.store.walksEnded() == n
		})
		walks := e.store.called("walk")
		var all []waybill.Event
		for n := 1; n <= 10; n++ {
			for k := range 5 {
				all = append(all, event(fmt.Sprintf("k%d", k), n))
			}
			e.append(all[len(all)-5:]...)
		}
		e.sent(topic, 5+len(all))
		e.settled()
		e.inOrder(true, append(all, events("before", 1, 5)...)...)
		if n := e.store.called("walk"); n != walks {
			t.Errorf("the lanes were walked %d times while the log was followed", n-walks)
		}
		if got := e.tracked("k1-7").Receipt; got == nil || got.Via != store.ModeCDC {
			t.Errorf("receipt %+v, want one via %s", got, store.ModeCDC)
		}
		run.feed(e, "a position", func(st *relay.FeedStatus) bool {
			return st.State == cdc.Streaming && st.Position != "" && st.Told >= uint64(len(all)) && st.Log != nil
		})
		if got := run.Health(); got.State != relay.Green {
			t.Errorf("health is %v, want green", got)
		}
	})

	each(t, h, "the joint of queue and log keeps the order under load", func(e *env[TX]) {
		stop := e.load(12)
		for range 3 {
			run := e.relay(nil)
			run.in(e, cdc.Streaming)
			e.pause(e.span(2 * time.Second))
			if err := run.stop(); err != nil {
				t.Error(err)
			}
		}
		all := stop()
		e.follows(nil)
		e.settled()
		e.inOrder(false, all...)
	})

	each(t, h, "more than memory holds is caught up with from the queue, in order", func(e *env[TX]) {
		run := e.follows(func(c *relay.Config) { c.MaxRows, c.FetchBatch, c.PublishBatch = 50, 20, 10 })
		release := make(chan struct{})
		e.broker.SetGate(func(ctx context.Context, _ []waybill.Record) error {
			select {
			case <-release:
			case <-ctx.Done():
			}
			return nil
		})
		var all []waybill.Event
		for n := 1; n <= 100; n++ {
			for k := range 7 {
				all = append(all, event(fmt.Sprintf("k%d", k), n))
			}
			e.append(all[len(all)-7:]...)
		}
		run.feed(e, "a catch-up", func(st *relay.FeedStatus) bool {
			if st.Queued > 300 {
				t.Errorf("%d ids are kept, want at most 200 and one batch", st.Queued)
			}
			return st.CatchUps > 0 && st.Told >= uint64(len(all))
		})
		if rows := run.Health().Stats.Rows; rows > 50 {
			t.Errorf("%d rows are known, want at most 50", rows)
		}
		e.broker.SetGate(nil)
		close(release)
		e.settled()
		e.inOrder(false, all...)
		run.in(e, cdc.Streaming)
		e.append(event("after", 1))
		e.untilStatus("after-1", store.StatusSent)
	})

	each(t, h, "a second relay waits, and takes over when the first ends", func(e *env[TX]) {
		first := e.follows(nil)
		second := e.relay(nil)
		second.in(e, cdc.Standby)
		stop := e.load(5)
		e.pause(e.span(10 * time.Second))
		if second.state() != cdc.Standby || second.get(&second.lanes) != 0 {
			t.Errorf("the second relay is %s with %d lanes, want it to wait", second.state(), second.get(&second.lanes))
		}
		if got := second.Health().State; got != relay.Green {
			t.Errorf("health of the second is %s, want green", got)
		}
		if err := first.stop(); err != nil {
			t.Error(err)
		}
		second.in(e, cdc.Streaming)
		e.pause(e.span(time.Second))
		all := stop()
		e.settled()
		e.inOrder(true, all...)
	})

	each(t, h, "relays that share lanes come to one when the log is read", func(e *env[TX]) {
		e.setMode(store.ModePoll)
		a, b := e.relay(nil), e.relay(nil)
		e.until("a fair share", func() bool { return a.get(&a.lanes) == 32 && b.get(&b.lanes) == 32 })
		stop := e.load(8)
		e.setMode(store.ModeCDC)
		e.until("one that follows", func() bool { return a.state() == cdc.Streaming || b.state() == cdc.Streaming })
		e.until("one that waits", func() bool { return a.state() == cdc.Standby || b.state() == cdc.Standby })
		e.setMode(store.ModePoll)
		e.until("a fair share again", func() bool { return a.get(&a.lanes) == 32 && b.get(&b.lanes) == 32 })
		all := stop()
		e.settled()
		e.inOrder(true, all...)
	})

	each(t, h, "the mode is switched under load, again and again", func(e *env[TX]) {
		run := e.relay(nil)
		stop := e.load(10)
		for range 4 {
			e.setMode(store.ModeCDC)
			run.in(e, cdc.Streaming)
			e.pause(100 * time.Millisecond)
			e.setMode(store.ModePoll)
			run.in(e, cdc.Off)
			e.until("the log is let go", func() bool {
				status, err := e.db.Source.Status(t.Context())
				return err == nil && status.RetainedBytes <= 0 && status.State != cdc.Streaming
			})
		}
		all := stop()
		e.settled()
		e.inOrder(true, all...)
	})
}

// testFeedFaults runs over a log in memory: what real ones do when they fail is
// tried where these are.
func testFeedFaults[TX any](t *testing.T, h Harness[TX]) {
	if !h.Follows {
		t.Skip("no log is read")
	}
	faulty := func(name string, test func(e *env[TX], log *memlog.Log)) {
		each(t, h, name, func(e *env[TX]) {
			if e.db.Log == nil {
				e.t.Fatal("the log cannot be made to fail")
			}
			test(e, e.db.Log)
		})
	}

	faulty("a lost position is named, and costs no event", func(e *env[TX], log *memlog.Log) {
		run := e.follows(nil)
		stop := e.load(6)
		for n := range 3 {
			e.pause(100 * time.Millisecond)
			log.Lose()
			run.feed(e, "a loss", func(st *relay.FeedStatus) bool { return st.Losses > uint64(n) })
			run.in(e, cdc.Streaming)
		}
		all := stop()
		e.settled()
		e.inOrder(true, all...)
		if !run.was(cdc.WALRemoved) {
			t.Errorf("states were %v, want %s among them", run.states, cdc.WALRemoved)
		}
		run.feed(e, "the last loss", func(st *relay.FeedStatus) bool { return st.LastLoss == cdc.WALRemoved && st.State == cdc.Streaming })
	})

	faulty("streams that break lose and repeat nothing", func(e *env[TX], log *memlog.Log) {
		run := e.follows(nil)
		stop := e.load(6)
		for n := range 6 {
			e.pause(70 * time.Millisecond)
			log.Break()
			e.until("a broken stream", func() bool { return run.times(cdc.Unreachable) > n })
			run.in(e, cdc.Streaming)
		}
		all := stop()
		e.settled()
		e.inOrder(true, all...)
	})

	faulty("what the server refuses is shown, and the queue is read meanwhile", func(e *env[TX], log *memlog.Log) {
		log.Refuse(cdc.Refused(cdc.Misconfigured, errors.New("wal_level is replica"), "set it to logical"))
		run := e.relay(nil)
		run.in(e, cdc.Misconfigured)
		e.append(events("k", 1, 3)...)
		e.sent(topic, 3)
		e.until("yellow", func() bool {
			health := run.Health()
			return health.State == relay.Yellow && len(health.Reasons) == 1 && health.Reasons[0].Name == "cdc"
		})
		log.Refuse(nil)
		run.in(e, cdc.Streaming)
		e.until("green", func() bool { return run.Health().State == relay.Green })
		e.append(events("k", 4, 6)...)
		e.settled()
		e.inOrder(true, events("k", 1, 6)...)
	})

	faulty("another reader of the log is waited for", func(e *env[TX], log *memlog.Log) {
		source := log.Source(e.db.Source.Name())
		other, err := source.Open(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		run := e.relay(nil)
		run.in(e, cdc.Waiting)
		e.append(event("k", 1))
		e.sent(topic, 1)
		if err := other.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		run.in(e, cdc.Streaming)
		e.append(event("k", 2))
		e.settled()
		e.inOrder(true, events("k", 1, 2)...)
	})

	faulty("a log that shows nothing any more is not waited for", func(e *env[TX], log *memlog.Log) {
		run := e.follows(func(c *relay.Config) { c.Heartbeat = time.Second })
		log.Freeze(true)
		e.append(events("k", 1, 3)...)
		e.sent(topic, 3)
		log.Freeze(false)
		run.in(e, cdc.Streaming)
		e.append(events("k", 4, 6)...)
		e.settled()
		e.inOrder(true, events("k", 1, 6)...)
	})

	faulty("ids that cannot be read are found in the queue", func(e *env[TX], log *memlog.Log) {
		run := e.follows(nil)
		e.append(event("k", 1))
		e.sent(topic, 1)
		log.Garble(true)
		e.append(events("k", 2, 4)...)
		e.sent(topic, 4)
		log.Garble(false)
		e.append(event("k", 5))
		e.sent(topic, 5)
		e.settled()
		e.inOrder(true, events("k", 1, 5)...)
		run.feed(e, "the count", func(st *relay.FeedStatus) bool { return st.Undecodable == 3 && st.State == cdc.Streaming })
	})

	faulty("a truncation is counted and the log goes on", func(e *env[TX], log *memlog.Log) {
		run := e.follows(nil)
		e.append(event("k", 1))
		e.sent(topic, 1)
		log.Truncate()
		e.append(event("k", 2))
		e.sent(topic, 2)
		e.settled()
		e.inOrder(true, events("k", 1, 2)...)
		run.feed(e, "the count", func(st *relay.FeedStatus) bool { return st.Truncates == 1 && st.State == cdc.Streaming })
	})

	faulty("a silent broker does not keep the log", func(e *env[TX], log *memlog.Log) {
		run := e.follows(func(c *relay.Config) { c.MaxRows, c.PublishBatch = 40, 10 })
		stop := e.load(10)
		e.broker.SetGate(func(context.Context, []waybill.Record) error { return errAwayBroker })
		most := 0
		for range 10 {
			e.pause(e.span(time.Second))
			most = max(most, log.Retained())
		}
		if most > 20 {
			t.Errorf("the log kept %d transactions for the relay, want none but the latest", most)
		}
		e.broker.SetGate(nil)
		all := stop()
		e.settled()
		e.inOrder(false, all...)
		run.in(e, cdc.Streaming)
	})

	faulty("an event that is told before it is visible holds its key, and no other", func(e *env[TX], log *memlog.Log) {
		e.follows(nil)
		// The second of the key cannot be committed before the first is visible, but
		// it can be told and loaded in the same moment.
		e.store.hide()
		e.append(event("k", 1))
		e.pause(e.span(3 * time.Second))
		if n := len(e.broker.EventIDs(topic)); n > 0 {
			t.Fatalf("%d events were sent, none was visible", n)
		}
		e.store.reveal(func() { e.append(event("k", 2)) })
		e.sent(topic, 2)
		e.append(event("other", 1))
		e.settled()
		e.inOrder(true, event("k", 1), event("k", 2), event("other", 1))
	})

	faulty("a crash of the one that follows is taken over from", func(e *env[TX], log *memlog.Log) {
		e.overlap = true
		frozen := &moody{Outbox: e.db.Store}
		first := e.relayOn(frozen, nil)
		first.in(e, cdc.Streaming)
		second := e.relay(nil)
		second.in(e, cdc.Standby)
		stop := e.load(6)
		e.pause(200 * time.Millisecond)
		frozen.away(true, everything...)
		log.Break() // its connection ends with it
		second.in(e, cdc.Streaming)
		frozen.away(false, everything...)
		e.pause(e.span(5 * time.Second))
		all := stop()
		e.settled()
		e.inOrder(false, all...)
	})
}

var errAwayBroker = broker.Unavailable(broker.ScopeBroker, errors.New("the broker is away"), "")

func (e *env[TX]) setMode(mode string) {
	e.t.Helper()
	if err := e.db.Store.SetMode(e.t.Context(), store.Action{Actor: "test", Reason: "because"}, mode); err != nil {
		e.t.Fatal(err)
	}
}

// load appends an event of each of so many keys every few moments until it is
// stopped, and returns them.
func (e *env[TX]) load(keys int) (stop func() []waybill.Event) {
	ended, done := make(chan struct{}), make(chan struct{})
	var all []waybill.Event
	go func() {
		defer close(done)
		for n := 1; ; n++ {
			for k := range keys {
				select {
				case <-ended:
					return
				default:
				}
				all = append(all, event(fmt.Sprintf("load%d", k), n))
				e.append(all[len(all)-1])
			}
			e.pause(10 * time.Millisecond)
		}
	}()
	return func() []waybill.Event {
		close(ended)
		<-done
		return all
	}
}
