package relaytest

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/cdc"
	"github.com/waybillhq/waybill/cdc/memlog"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/store"
)

// Harness makes databases for the suite. TX is the caller's transaction.
type Harness[TX any] struct {
	// Open returns an empty, migrated database; the test closes it.
	Open func(t *testing.T) Database[TX]
	// SerialWriters says that a second transaction cannot insert while one is
	// open, so that events never become visible out of the order of their ids.
	SerialWriters bool
	// Bubble runs a test with fake time. nil means real time: the long waits of
	// the suite are then shortened.
	Bubble func(t *testing.T, test func(t *testing.T))
	// Follows says that relays follow the Source of each database.
	Follows bool
	// Behind opens a real broker with empty [Topics]; the test closes it. nil means
	// that the suite's own broker, in memory, is all there is.
	Behind func(t *testing.T) Behind
}

// Database is one fresh database.
type Database[TX any] struct {
	Store    store.Outbox
	Appender store.Appender[TX]
	// Begin starts a transaction of the application's.
	Begin func(ctx context.Context) (TX, error)
	// Commit and Rollback end it.
	Commit, Rollback func(ctx context.Context, tx TX) error
	// Source is the database's own log; nil where it is not read.
	Source cdc.Source
	// Log is what Source reads, where it is in memory and can be made to fail.
	Log *memlog.Log
}

// Run runs the whole suite.
func Run[TX any](t *testing.T, h Harness[TX]) {
	for _, group := range []struct {
		name string
		run  func(*testing.T, Harness[TX])
	}{
		{"Order", testOrder[TX]},
		{"Refusals", testRefusals[TX]},
		{"Outages", testOutages[TX]},
		{"Partial outages", testPartialOutages[TX]},
		{"Holds", testHolds[TX]},
		{"Leases", testLeases[TX]},
		{"Stopping", testStopping[TX]},
		{"Feed", testFeed[TX]},
		{"FeedFaults", testFeedFaults[TX]},
	} {
		t.Run(group.name, func(t *testing.T) {
			if h.Bubble == nil {
				t.Parallel()
			}
			group.run(t, h)
		})
	}
}

// RunShort runs the cases about order alone, for one more way to a database for
// which [Run] is run.
func RunShort[TX any](t *testing.T, h Harness[TX]) { testOrder(t, h) }

// An env is one database, one broker, and the relays of one test.
type env[TX any] struct {
	t      *testing.T
	h      Harness[TX]
	db     Database[TX]
	store  *moody // what relays see
	broker *membroker.Broker
	behind *Behind
	writer *outbox.Writer[TX]
	log    *lines
	// overlap says that a stale relay's call may still be open beside its successor's.
	overlap bool
}

const topic = "orders"

// each runs a test in its own environment.
func each[TX any](t *testing.T, h Harness[TX], name string, test func(e *env[TX])) {
	t.Run(name, func(t *testing.T) {
		body := func(t *testing.T) {
			db := h.Open(t)
			e := &env[TX]{
				t: t, h: h, db: db, store: &moody{Outbox: db.Store}, broker: membroker.New(topic, "refunds"),
				writer: outbox.NewWriter(db.Appender, nil), log: &lines{},
			}
			if h.Behind != nil {
				behind := h.Behind(t)
				e.behind = &behind
			}
			test(e)
		}
		if h.Bubble != nil {
			h.Bubble(t, body)
			return
		}
		t.Parallel() // most of the time is waiting
		body(t)
	})
}

// span is a long time in a bubble, and a bearable one outside.
func (e *env[TX]) span(d time.Duration) time.Duration {
	if e.h.Bubble != nil {
		return d
	}
	return min(d/20, 1500*time.Millisecond)
}

// event is version n of the aggregate that is also the key, in topic orders.
func event(key string, n int) waybill.Event {
	return waybill.Event{
		ID: fmt.Sprintf("%s-%d", key, n), Type: "OrderChanged", Topic: topic, AggregateType: "order",
		AggregateID: key, AggregateVersion: int64(n), Data: fmt.Appendf(nil, `{"key":%q,"n":%d}`, key, n),
	}
}

// events are the versions from..to of one key.
func events(key string, from, to int) []waybill.Event {
	var all []waybill.Event
	for n := from; n <= to; n++ {
		all = append(all, event(key, n))
	}
	return all
}

func in(topic string, all ...waybill.Event) []waybill.Event {
	for i := range all {
		all[i].Topic = topic
	}
	return all
}

// append commits the events, in one transaction.
func (e *env[TX]) append(all ...waybill.Event) {
	e.t.Helper()
	tx := e.begin()
	e.add(tx, all...)
	e.commit(tx)
}

func (e *env[TX]) begin() TX {
	e.t.Helper()
	tx, err := e.db.Begin(e.t.Context())
	if err != nil {
		e.t.Fatal(err)
	}
	return tx
}

func (e *env[TX]) add(tx TX, all ...waybill.Event) {
	e.t.Helper()
	for len(all) > 0 {
		n := min(len(all), 1000)
		if err := e.writer.Append(e.t.Context(), tx, all[:n]...); err != nil {
			e.t.Fatal(err)
		}
		all = all[n:]
	}
}

func (e *env[TX]) commit(tx TX) {
	e.t.Helper()
	if err := e.db.Commit(e.t.Context(), tx); err != nil {
		e.t.Fatal(err)
	}
}

func (e *env[TX]) rollback(tx TX) {
	e.t.Helper()
	if err := e.db.Rollback(e.t.Context(), tx); err != nil {
		e.t.Fatal(err)
	}
}

// A running relay.
type running struct {
	*relay.Relay
	t      *testing.T
	cancel context.CancelFunc
	done   chan error

	mu     sync.Mutex
	failed []relay.FailedInfo
	stale  int
	lanes  int
	behind int
	states []cdc.State
}

// relay starts a relay; adjust, which may be nil, changes its config first.
func (e *env[TX]) relay(adjust func(*relay.Config)) *running {
	e.t.Helper()
	return e.relayOn(e.store, adjust)
}

func (e *env[TX]) relayOn(st relay.Store, adjust func(*relay.Config)) *running {
	e.t.Helper()
	run := &running{t: e.t, done: make(chan error, 1)}
	note := func(f func()) {
		run.mu.Lock()
		defer run.mu.Unlock()
		f()
	}
	config := &relay.Config{
		LeaseTTL: 2 * time.Second, RenewEvery: 200 * time.Millisecond, Grace: 5 * time.Second,
		PublishTimeout: 400 * time.Millisecond, PollIdle: 10 * time.Millisecond,
		BackoffMin: 10 * time.Millisecond, BackoffMax: 80 * time.Millisecond, SweepEvery: time.Hour,
		Logger: slog.New(e.log),
		Events: relay.Events{
			Failed:     func(i relay.FailedInfo) { note(func() { run.failed = append(run.failed, i) }) },
			StaleWrite: func(i relay.StaleWriteInfo) { note(func() { run.stale += i.Rows }) },
			Leases:     func(i relay.LeasesInfo) { note(func() { run.lanes = i.Owned }) },
			OutOfOrder: func(relay.PublishedInfo) { note(func() { run.behind++ }) },
			Feed:       func(i relay.FeedInfo) { note(func() { run.states = append(run.states, i.State) }) },
		},
	}
	if e.h.Follows {
		config.Source, config.Mode, config.Heartbeat = e.db.Source, store.ModeCDC, time.Second
	}
	if e.h.Bubble == nil {
		// A machine that stands still for a moment must neither lose a lease nor
		// leave a record unanswered: both would rightly be sent again.
		config.LeaseTTL, config.Grace, config.PublishTimeout = 30*time.Second, 30*time.Second, 10*time.Second
		config.Heartbeat = 5 * time.Second
	}
	if adjust != nil {
		adjust(config)
	}
	r, err := relay.New(st, e.connect(), config)
	if err != nil {
		e.t.Fatal(err)
	}
	run.Relay = r
	ctx, cancel := context.WithCancel(context.Background())
	run.cancel = cancel
	go func() { run.done <- r.Run(ctx) }()
	e.t.Cleanup(func() {
		cancel()
		<-run.done //nolint:errcheck // a test that cares about the error has read it
	})
	return run
}

// stop ends a relay in good order and returns what Run returned.
func (r *running) stop() error {
	r.cancel()
	err := <-r.done
	r.done <- err
	return err
}

func (r *running) failures(class string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.failed {
		if f.Class == class {
			n++
		}
	}
	return n
}

func (r *running) get(field *int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return *field
}
