package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// suite is one case's view of the store, with the steps that cases share.
type suite[TX any] struct {
	*Subject[TX]
	harness Harness[TX]
	options Options
	last    int // of the events made
	// lastPosition is that of the last event consumed in turn.
	lastPosition int64
	guard        store.Guard
}

// open opens the store with its tables.
func (s *suite[TX]) open(t testing.TB) { s.openWith(t, s.options) }

func (s *suite[TX]) openWith(t testing.TB, options Options) {
	t.Helper()
	options.NoTrigger = s.options.NoTrigger
	s.Subject = s.harness.Open(t, options)
	s.guard = store.Guard{}
}

// made counts the events of all cases, so that no id comes twice: where a case
// before has deleted one, a database may make the insert of the same id wait.
var made atomic.Int64

// event returns a valid event with a key of the caller's.
func (s *suite[TX]) event(key string) waybill.Event {
	s.last++
	e := waybill.Event{
		ID:               fmt.Sprintf("event-%06d", made.Add(1)),
		Type:             "OrderPaid",
		Topic:            "orders",
		AggregateType:    "order",
		AggregateID:      key,
		AggregateVersion: int64(s.last),
		Data:             []byte(`{"amount":1.10}`),
	}
	e.Normalize(today())
	return e
}

// events returns one event per key.
func (s *suite[TX]) events(keys ...string) []waybill.Event {
	var events []waybill.Event
	for _, key := range keys {
		events = append(events, s.event(key))
	}
	return events
}

// transact runs do in an application's transaction and commits it.
func (s *suite[TX]) transact(t testing.TB, do func(tx TX) error) {
	t.Helper()
	if err := s.try(t.Context(), do); err != nil {
		t.Fatal(err)
	}
}

func (s *suite[TX]) try(ctx context.Context, do func(tx TX) error) error {
	tx, err := s.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	if err := do(tx); err != nil {
		_ = s.Rollback(ctx, tx)
		return err
	}
	if err := s.Commit(ctx, tx); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// begin starts a transaction that is rolled back with the test if the case
// leaves it open.
func (s *suite[TX]) begin(t testing.TB) TX {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	tx, err := s.Begin(ctx)
	if err != nil {
		t.Fatalf("begin: %v", err)
	}
	t.Cleanup(func() { _ = s.Rollback(ctx, tx) })
	return tx
}

func (s *suite[TX]) commit(t testing.TB, tx TX) {
	t.Helper()
	if err := s.Commit(t.Context(), tx); err != nil {
		t.Fatalf("commit: %v", err)
	}
}

func (s *suite[TX]) rollback(t testing.TB, tx TX) {
	t.Helper()
	if err := s.Rollback(t.Context(), tx); err != nil {
		t.Fatalf("rollback: %v", err)
	}
}

// appendTo appends events, none of which may be a duplicate.
func (s *suite[TX]) appendTo(t testing.TB, tx TX, events ...waybill.Event) {
	t.Helper()
	if err := s.appendIn(t.Context(), tx, events); err != nil {
		t.Fatal(err)
	}
}

func (s *suite[TX]) appendIn(ctx context.Context, tx TX, events []waybill.Event) error {
	results, err := s.Appender.Append(ctx, tx, events)
	if err != nil {
		return fmt.Errorf("append: %w", err)
	}
	if len(results) != len(events) {
		return fmt.Errorf("append: %d results for %d events", len(results), len(events))
	}
	for i, result := range results {
		if result != nil {
			return fmt.Errorf("append %s: %w", events[i].ID, result)
		}
	}
	return nil
}

// append appends events in a transaction of their own.
func (s *suite[TX]) append(t testing.TB, events ...waybill.Event) {
	t.Helper()
	s.transact(t, func(tx TX) error { return s.appendIn(t.Context(), tx, events) })
}

func allLanes() []int {
	lanes := make([]int, store.Lanes)
	for i := range lanes {
		lanes[i] = i
	}
	return lanes
}

func allCursors() []store.LaneCursor {
	cursors := make([]store.LaneCursor, store.Lanes)
	for i := range cursors {
		cursors[i].Lane = i
	}
	return cursors
}

// Hot walks once and loads what was found.
func Hot(ctx context.Context, queue store.Queue, request store.WalkRequest) ([]*store.Row, error) {
	walked, err := queue.Walk(ctx, request)
	if err != nil {
		return nil, fmt.Errorf("walk: %w", err)
	}
	ids := make([]int64, len(walked.Refs))
	for i, ref := range walked.Refs {
		ids[i] = ref.ID
	}
	slices.Sort(ids)
	loaded, err := queue.Load(ctx, ids, 0)
	switch {
	case err != nil:
		return nil, fmt.Errorf("load: %w", err)
	case loaded.Full || request.Limit == 0 && walked.Full:
		return nil, errors.New("an answer without a bound was cut by one")
	}
	return loaded.Rows, nil
}

// hot returns all hot rows, by id.
func (s *suite[TX]) hot(t testing.TB) []*store.Row {
	t.Helper()
	rows, err := Hot(t.Context(), s.Outbox, store.WalkRequest{Lanes: allCursors()})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// hotByID returns the hot rows by event id, each of which must come once.
func (s *suite[TX]) hotByID(t testing.TB) map[string]*store.Row {
	t.Helper()
	rows := make(map[string]*store.Row)
	for _, row := range s.hot(t) {
		if _, twice := rows[row.Event.ID]; twice {
			t.Fatalf("event %s was fetched twice", row.Event.ID)
		}
		rows[row.Event.ID] = row
	}
	return rows
}

// wantHot requires the hot rows to be those of the ids, in any order.
func (s *suite[TX]) wantHot(t testing.TB, ids ...string) map[string]*store.Row {
	t.Helper()
	rows := s.hotByID(t)
	for _, id := range ids {
		if _, ok := rows[id]; !ok {
			t.Errorf("event %s is not hot", id)
		}
	}
	if len(rows) != len(ids) {
		t.Errorf("hot rows: got %d, want %d", len(rows), len(ids))
	}
	if t.Failed() {
		t.FailNow()
	}
	return rows
}

// row returns the hot row of an event.
func (s *suite[TX]) row(t testing.TB, id string) *store.Row {
	t.Helper()
	row, ok := s.hotByID(t)[id]
	if !ok {
		t.Fatalf("event %s is not hot", id)
	}
	return row
}

func (s *suite[TX]) fetchKey(t testing.TB, request store.KeyRequest) store.FetchResult {
	t.Helper()
	result, err := s.Outbox.FetchKey(t.Context(), request)
	if err != nil {
		t.Fatalf("fetch key: %v", err)
	}
	return result
}

// tracked returns all that the outbox knows of an event.
func (s *suite[TX]) tracked(t testing.TB, id string) store.Tracked {
	t.Helper()
	found, ok := s.lookUp(t, id)
	if !ok {
		t.Fatalf("event %s is not in the outbox", id)
	}
	return found
}

func (s *suite[TX]) lookUp(t testing.TB, id string) (store.Tracked, bool) {
	t.Helper()
	found, err := s.Outbox.Find(t.Context(), store.Filter{EventIDs: []string{id}})
	if err != nil {
		t.Fatalf("find %s: %v", id, err)
	}
	switch len(found) {
	case 0:
		return store.Tracked{}, false
	case 1:
		return found[0], true
	}
	t.Fatalf("find %s: got %d events", id, len(found))
	panic("unreachable")
}

const owner = "relay-1"

// own claims all lanes, once.
func (s *suite[TX]) own(t testing.TB) store.Guard {
	t.Helper()
	if s.guard.Lanes == nil {
		s.guard = s.ownFor(t, owner, time.Hour)
	}
	return s.guard
}

func (s *suite[TX]) ownFor(t testing.TB, owner string, ttl time.Duration) store.Guard {
	t.Helper()
	leases, err := s.Outbox.Claim(t.Context(), owner, ttl, store.Lanes)
	if err != nil {
		t.Fatalf("claim: %v", err)
	}
	if len(leases) != store.Lanes {
		t.Fatalf("claim: got %d lanes, want %d", len(leases), store.Lanes)
	}
	return store.Guard{Owner: owner, Lanes: leases}
}

func (s *suite[TX]) apply(t testing.TB, guard store.Guard, changes store.Changes) {
	t.Helper()
	if err := s.Outbox.Apply(t.Context(), guard, changes); err != nil {
		t.Fatalf("apply: %v", err)
	}
}

func settled(rows ...*store.Row) store.Changes {
	var changes store.Changes
	for _, row := range rows {
		changes.Settled = append(changes.Settled, store.SettledChange{
			Change: store.Change{ID: row.ID, EventID: row.Event.ID}, Outcome: store.StatusSent, Via: "poll", PublishedTo: row.Event.Topic,
		})
	}
	return changes
}

func failed(row *store.Row, dead bool, retryIn time.Duration, message string) store.Changes {
	return store.Changes{Failed: []store.FailedChange{{
		Change: store.Change{ID: row.ID, EventID: row.Event.ID}, Dead: dead, Retries: row.Retries + 1, RetryIn: retryIn, Error: message,
	}}}
}

// wantEvent compares an event as stored with the event as appended.
func (s *suite[TX]) wantEvent(t testing.TB, where string, got, want waybill.Event) {
	t.Helper()
	if s.harness.Exceptions.Microseconds != "" {
		got.OccurredAt = got.OccurredAt.Truncate(time.Millisecond)
		want.OccurredAt = want.OccurredAt.Truncate(time.Millisecond)
	}
	if !got.OccurredAt.Equal(want.OccurredAt) {
		t.Errorf("%s: occurred at: got %v, want %v", where, got.OccurredAt, want.OccurredAt)
	}
	if got.OccurredAt.Location() != time.UTC {
		t.Errorf("%s: occurred at is in zone %v, want UTC", where, got.OccurredAt.Location())
	}
	if !bytes.Equal(got.Data, want.Data) {
		t.Errorf("%s: data: got %s, want %s", where, excerpt(got.Data), excerpt(want.Data))
	}
	if !maps.Equal(got.Headers, want.Headers) {
		t.Errorf("%s: headers: got %q, want %q", where, got.Headers, want.Headers)
	}
	got.OccurredAt, got.Data, got.Headers = want.OccurredAt, nil, nil
	want.Data, want.Headers = nil, nil
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		t.Errorf("%s:\n got %s\nwant %s", where, g, w)
	}
}

func excerpt(data []byte) string {
	if len(data) > 64 {
		return fmt.Sprintf("%q... (%d bytes)", data[:64], len(data))
	}
	return fmt.Sprintf("%q", data)
}
