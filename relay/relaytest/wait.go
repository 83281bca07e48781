package relaytest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

const patience = 2 * time.Minute

// until waits for a condition and fails the test when it does not come.
func (e *env[TX]) until(what string, condition func() bool) {
	e.t.Helper()
	for deadline := time.Now().Add(patience); !condition(); {
		if time.Now().After(deadline) {
			e.t.Fatalf("never came: %s\nlog:\n%s", what, e.log)
		}
		e.pause(2 * time.Millisecond)
	}
}

// stopwatch returns a function that tells the time since.
func stopwatch() func() time.Duration {
	began := time.Now()
	return func() time.Duration { return time.Since(began) }
}

func (e *env[TX]) pause(d time.Duration) { time.Sleep(d) }

// sent waits for n records in a topic, and returns all event ids in order of acceptance.
func (e *env[TX]) sent(topic string, n int) []string {
	e.t.Helper()
	e.until(fmt.Sprintf("%d records in %s, have %v", n, topic, e.broker.EventIDs(topic)), func() bool { return len(e.broker.EventIDs(topic)) >= n })
	return e.broker.EventIDs(topic)
}

// settled waits until the queue is empty.
func (e *env[TX]) settled() {
	e.t.Helper()
	e.until("an empty queue", func() bool {
		c := e.counts()
		return c.Pending+c.Dead == 0
	})
}

func (e *env[TX]) counts() store.Counts {
	e.t.Helper()
	c, err := e.db.Store.Counts(e.t.Context())
	if err != nil {
		e.t.Fatal(err)
	}
	return c
}

// tracked returns what the outbox knows of an event.
func (e *env[TX]) tracked(id string) store.Tracked {
	e.t.Helper()
	all, err := e.db.Store.Find(e.t.Context(), store.Filter{EventIDs: []string{id}})
	if err != nil {
		e.t.Fatal(err)
	}
	if len(all) != 1 {
		e.t.Fatalf("found %d events of id %s, want 1", len(all), id)
	}
	return all[0]
}

func (e *env[TX]) untilStatus(id string, status store.Status) {
	e.t.Helper()
	e.until(id+" "+string(status), func() bool { return e.tracked(id).Status == status })
}

// inOrder checks that every event was accepted, and per key in this order, first
// occurrences counting; exact also refuses repetitions.
func (e *env[TX]) inOrder(exact bool, want ...waybill.Event) {
	e.t.Helper()
	type place struct{ topic, key string }
	wanted := make(map[place][]string)
	for i := range want {
		p := place{want[i].Topic, want[i].EffectiveKey()}
		wanted[p] = append(wanted[p], want[i].ID)
	}
	got := make(map[place][]string)
	seen := make(map[string]bool)
	topics := make(map[string]bool)
	for p := range wanted {
		topics[p.topic] = true
	}
	for name := range topics {
		for _, record := range e.records(name) {
			if seen[record.EventID] {
				if exact {
					e.t.Errorf("event %s was sent twice", record.EventID)
				}
				continue
			}
			seen[record.EventID] = true
			p := place{name, record.Key}
			got[p] = append(got[p], record.EventID)
		}
	}
	for p, ids := range wanted {
		if !slices.Equal(got[p], ids) {
			e.t.Errorf("topic %s key %s: sent %v, want %v", p.topic, p.key, brief(got[p]), brief(ids))
		}
	}
	if v := e.broker.Violations(); len(v) > 0 && !e.overlap {
		e.t.Errorf("a key was in two calls at once: %v", v)
	}
}

func brief(ids []string) []string {
	if len(ids) > 40 {
		return append(slices.Clone(ids[:40]), fmt.Sprintf("... %d", len(ids)))
	}
	return ids
}

// lines is a log that tests can read.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *lines) WithGroup(string) slog.Handler            { return l }
func (l *lines) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, text)
	return nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all, "\n")
}

func (l *lines) count(part string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

var errAway = errors.New("the database is away")

// moody is a store whose operations fail while a test wants them to.
type moody struct {
	store.Outbox
	mu     sync.Mutex
	fails  map[string]bool
	calls  map[string]int
	walks  int // that ended
	walked int // rows
	slow   map[string]time.Duration
	stuck  map[string]int
	hidden *int64 // greater ids are not visible
}

// hide keeps events that are committed from now on from being visible.
func (m *moody) hide() {
	f, err := m.Outbox.Frontier(context.Background())
	if err != nil {
		panic(err) // it is in memory
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hidden = &f.MaxID
}

// reveal makes all visible, and does something at once.
func (m *moody) reveal(do func()) {
	m.mu.Lock()
	m.hidden = nil
	m.mu.Unlock()
	do()
}

func (m *moody) hides() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hidden != nil
}

func (m *moody) sees(id int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hidden == nil || id <= *m.hidden
}

func (m *moody) seen(found store.FetchResult) store.FetchResult {
	found.Rows = slices.DeleteFunc(found.Rows, func(r *store.Row) bool { return !m.sees(r.ID) })
	return found
}

// away makes the named operations fail, or work again.
func (m *moody) away(down bool, ops ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fails == nil {
		m.fails = make(map[string]bool)
	}
	for _, op := range ops {
		m.fails[op] = down
	}
}

var everything = []string{"walk", "load", "fetchkey", "fetchdue", "heldkeys", "frontier", "apply", "renew", "claim"}

func (m *moody) enter(op string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.calls == nil {
		m.calls = make(map[string]int)
	}
	m.calls[op]++
	if m.fails[op] {
		return errAway
	}
	return nil
}

// stall makes the next times calls of an operation wait until their context ends.
func (m *moody) stall(times int, op string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stuck = map[string]int{op: times}
}

func (m *moody) stalls(op string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stuck[op] == 0 {
		return false
	}
	m.stuck[op]--
	return true
}

// dawdle makes reads or writes take their time after the database has done its
// part, so that what they tell is old when it arrives.
func (m *moody) dawdle(d time.Duration, ops ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.slow = make(map[string]time.Duration)
	for _, op := range ops {
		m.slow[op] = d
	}
}

func (m *moody) linger(op string) {
	m.mu.Lock()
	d := m.slow[op]
	m.mu.Unlock()
	if d > 0 {
		time.Sleep(d)
	}
}

func (m *moody) walksEnded() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.walks
}

func (m *moody) walkedOver() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.walked
}

func (m *moody) called(op string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls[op]
}

func (m *moody) Walk(ctx context.Context, request store.WalkRequest) (store.WalkResult, error) {
	if err := m.enter("walk"); err != nil {
		return store.WalkResult{}, err
	}
	if m.stalls("walk") {
		<-ctx.Done()
		return store.WalkResult{}, ctx.Err()
	}
	defer m.linger("walk")
	result, err := m.Outbox.Walk(ctx, request)
	result.Refs = slices.DeleteFunc(result.Refs, func(r store.Ref) bool { return !m.sees(r.ID) })
	m.mu.Lock()
	defer m.mu.Unlock()
	m.walks++
	m.walked += len(result.Refs)
	return result, err
}

func (m *moody) Load(ctx context.Context, ids []int64, maxBytes int) (store.FetchResult, error) {
	if err := m.enter("load"); err != nil {
		return store.FetchResult{}, err
	}
	defer m.linger("load")
	found, err := m.Outbox.Load(ctx, ids, maxBytes)
	return m.seen(found), err
}

func (m *moody) FetchKey(ctx context.Context, request store.KeyRequest) (store.FetchResult, error) {
	if err := m.enter("fetchkey"); err != nil {
		return store.FetchResult{}, err
	}
	defer m.linger("fetchkey")
	found, err := m.Outbox.FetchKey(ctx, request)
	return m.seen(found), err
}

func (m *moody) FetchDue(ctx context.Context, lanes []int, limit int) ([]*store.Row, error) {
	if err := m.enter("fetchdue"); err != nil {
		return nil, err
	}
	defer m.linger("fetchdue")
	return m.Outbox.FetchDue(ctx, lanes, limit)
}

func (m *moody) HeldKeys(ctx context.Context, lanes []int) ([]store.HeldKey, error) {
	if err := m.enter("heldkeys"); err != nil {
		return nil, err
	}
	return m.Outbox.HeldKeys(ctx, lanes)
}

func (m *moody) Frontier(ctx context.Context) (store.Frontier, error) {
	if err := m.enter("frontier"); err != nil {
		return store.Frontier{}, err
	}
	f, err := m.Outbox.Frontier(ctx)
	if m.hides() {
		f.Opened++ // a transaction is under way
	}
	return f, err
}

func (m *moody) Apply(ctx context.Context, guard store.Guard, changes store.Changes) error {
	if err := m.enter("apply"); err != nil {
		return err
	}
	if m.stalls("apply") {
		<-ctx.Done()
		return ctx.Err()
	}
	defer m.linger("apply")
	return m.Outbox.Apply(ctx, guard, changes)
}

func (m *moody) Renew(ctx context.Context, beat store.Heartbeat) ([]store.Lease, int, error) {
	if err := m.enter("renew"); err != nil {
		return nil, 0, err
	}
	if m.stalls("renew") {
		<-ctx.Done()
		return nil, 0, ctx.Err()
	}
	return m.Outbox.Renew(ctx, beat)
}

func (m *moody) Claim(ctx context.Context, owner string, ttl time.Duration, limit int) ([]store.Lease, error) {
	if err := m.enter("claim"); err != nil {
		return nil, err
	}
	return m.Outbox.Claim(ctx, owner, ttl, limit)
}

func asStale(err error) (*store.StaleError, bool) {
	var stale *store.StaleError
	return stale, errors.As(err, &stale)
}
