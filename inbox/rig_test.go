package inbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
)

const topic = "orders"

var errBoom = errors.New("boom")

// rig is a store, a broker and what a consumer of both did. Its time is that
// of a synctest bubble.
type rig struct {
	t   *testing.T
	st  *memstore.Store
	b   *membroker.Broker
	log *syncBuffer

	mu  sync.Mutex
	now []string // what the hooks said
}

// bubble runs a test with fake time. Goroutines that outlive it fail it.
func bubble(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, st: memstore.New(nil), b: membroker.New(), log: &syncBuffer{}}
		if err := r.b.EnsureTopics(t.Context(), []broker.TopicSpec{{Name: topic, Partitions: 2}}); err != nil {
			t.Fatal(err)
		}
		test(t, r)
	})
}

// ev makes the event "key/version" of an aggregate named by its key.
func ev(key string, version int64) waybill.Event {
	return waybill.Event{
		ID: fmt.Sprintf("%s/%d", key, version), Type: "OrderChanged", Topic: topic, Key: key,
		AggregateType: "order", AggregateID: key, AggregateVersion: version, Data: []byte(`{"n":1}`),
	}
}

func (r *rig) publish(events ...waybill.Event) {
	r.t.Helper()
	var records []waybill.Record
	for i := range events {
		record, err := waybill.Encode(waybill.FormatEnvelope, &events[i])
		if err != nil {
			r.t.Fatal(err)
		}
		records = append(records, record)
	}
	r.publishRecords(records...)
}

func (r *rig) publishRecords(records ...waybill.Record) {
	r.t.Helper()
	if err := errors.Join(r.b.Publish(context.Background(), records)...); err != nil {
		r.t.Fatal(err)
	}
}

// apply is the effect that tests look for: it counts the event and adds it to
// its key's history.
func apply(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
	err := tx.Update(ctx, "history", event.Key, func(old string, found bool) string {
		return strings.TrimSpace(old + " " + strconv.FormatInt(event.AggregateVersion, 10))
	})
	if err != nil {
		return err
	}
	return tx.Update(ctx, "count", event.ID, func(old string, found bool) string { return old + "x" })
}

func (r *rig) config() *Config {
	note := func(i fmt.Stringer) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.now = append(r.now, i.String())
	}
	return &Config{
		Group: "g", Topics: []string{topic},
		Logger: slog.New(slog.NewTextHandler(r.log, nil)),
		Events: Events{
			Applied:    func(i AppliedInfo) { note(i) },
			Duplicate:  func(i DuplicateInfo) { note(i) },
			Held:       func(i HeldInfo) { note(i) },
			OutOfOrder: func(i OutOfOrderInfo) { note(i) },
			Conflict:   func(i ConflictInfo) { note(i) },
			Gap:        func(i GapInfo) { note(i) },
			Paused:     func(i PausedInfo) { note(i) },
		},
	}
}

// ungated is config for events whose versions do not count.
func (r *rig) ungated() *Config {
	config := r.config()
	config.Gate = GateNone
	return config
}

// said returns how many of the hooks' lines begin so.
func (r *rig) said(prefix string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, line := range r.now {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}

// running is a processor at work.
type running struct {
	*Processor[*memstore.Tx]
	t      *testing.T
	cancel context.CancelFunc
	result chan error
}

func (r *rig) start(handler Handler[*memstore.Tx], config *Config) *running {
	r.t.Helper()
	return r.startOn(r.st, r.b.Connect(), handler, config)
}

func (r *rig) startOn(st store.Consumer[*memstore.Tx], sub broker.Subscriber, handler Handler[*memstore.Tx], config *Config) *running {
	r.t.Helper()
	if config == nil {
		config = r.config()
	}
	p, err := New(st, sub, handler, config)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	run := &running{Processor: p, t: r.t, cancel: cancel, result: make(chan error, 1)}
	go func() { run.result <- p.Run(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		synctest.Wait()
	})
	return run
}

// stop ends the processor and returns what Run returned.
func (run *running) stop() error {
	run.cancel()
	return <-run.result
}

func (run *running) mustStop() {
	run.t.Helper()
	if err := run.stop(); err != nil {
		run.t.Fatalf("Run: %v", err)
	}
}

// after lets time pass, and then all goroutines settle.
func (r *rig) after(d time.Duration) {
	pauseFor(context.Background(), d)
	synctest.Wait()
}

// until waits for a condition, for at most an hour of fake time.
func (r *rig) until(what string, condition func() bool) {
	r.t.Helper()
	for range 3600 * 10 {
		synctest.Wait()
		if condition() {
			return
		}
		pauseFor(context.Background(), 100*time.Millisecond)
	}
	states, _ := r.st.ListReaders(context.Background(), "g")
	for _, s := range states {
		at, _ := r.b.Committed("g", broker.Partition{Topic: s.Topic, ID: s.Partition})
		r.t.Logf("committed %d, reader %+v", at, s)
	}
	r.t.Fatalf("never: %s\nhistory %v\nheld %v\nhooks:\n%s\nlog:\n%s", what, r.history(), r.held(), strings.Join(r.lines(), "\n"), r.log.String())
}

func (r *rig) lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.now)
}

func (r *rig) history() map[string]string { return r.st.Rows("history") }

func (r *rig) wantHistory(want map[string]string) {
	r.t.Helper()
	if got := r.history(); !maps.Equal(got, want) {
		r.t.Errorf("history: got %v, want %v", got, want)
	}
	for id, count := range r.st.Rows("count") {
		if count != "x" {
			r.t.Errorf("event %s has had its effect %d times", id, len(count))
		}
	}
}

// held shows the held events by Seq, as "id STATE attempts".
func (r *rig) held() []string {
	var out []string
	for _, h := range r.heldRows() {
		out = append(out, fmt.Sprintf("%s %s %d", h.Event.ID, h.State, h.Attempts))
	}
	return out
}

func (r *rig) heldRows() []store.Held {
	rows, err := r.st.ListHeld(context.Background(), "g", store.HeldFilter{Limit: 10_000})
	if err != nil {
		r.t.Fatal(err)
	}
	return rows
}

func (r *rig) wantHeld(want ...string) {
	r.t.Helper()
	if got := r.held(); !slices.Equal(got, want) {
		r.t.Errorf("held: got %q, want %q", got, want)
	}
}

// wantSettled checks that the broker was told of everything.
func (r *rig) wantSettled() {
	r.t.Helper()
	if lag := r.b.Lag("g", topic); lag != 0 {
		r.t.Errorf("the broker has %d records that are not settled", lag)
	}
}

// crash makes what follows look like the end of the process: nothing reaches
// the database any more.
func (r *rig) crash(run *running) {
	r.t.Helper()
	r.st.SetError(func(string) error { return errors.New("the process is gone") })
	_ = run.stop()
	r.st.SetError(nil)
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
