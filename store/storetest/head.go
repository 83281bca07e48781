package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

func headCases[TX any]() []testCase[TX] {
	return []testCase[TX]{
		{"the highest version is the head", headNewest[TX]},
		{"a rolled back event is no head", headRollback[TX]},
		{"what has no version leaves heads alone", headUnversioned[TX]},
		{"many aggregates in one call", headMany[TX]},
		{"two that cross do not block each other for ever", headCrossing[TX]},
		{"a head outlives its event", headOutlives[TX]},
		{"heads of the events that were there before", headAdded[TX]},
		{"a lost trigger is noticed, and made good", headTriggerLost[TX]},
		{"without the table there are none", headAbsent[TX]},
		{"heads with any names", headNames[TX]},
	}
}

func (s *suite[TX]) openHead(t testing.TB) { s.openWith(t, Options{Head: true}) }

// versioned returns an event of an aggregate at a version.
func (s *suite[TX]) versioned(id string, version int64) waybill.Event {
	e := s.event(id)
	e.AggregateVersion, e.Data = version, fmt.Appendf(nil, `{"version":%d}`, version)
	return e
}

func (s *suite[TX]) head(t testing.TB, tenantID, id string) (store.Head, bool) {
	t.Helper()
	reader, ok := s.Outbox.(store.HeadReader)
	if !ok {
		t.Fatal("the store does not read heads")
	}
	head, found, err := reader.Head(t.Context(), tenantID, "order", id)
	if err != nil {
		t.Fatalf("head of %s: %v", id, err)
	}
	return head, found
}

func (s *suite[TX]) wantHead(t testing.TB, want waybill.Event) {
	t.Helper()
	got, found := s.head(t, want.TenantID, want.AggregateID)
	if !found || got.TenantID != want.TenantID || got.AggregateType != want.AggregateType || got.AggregateID != want.AggregateID ||
		got.Version != want.AggregateVersion || got.EventID != want.ID || got.EventType != want.Type || !bytes.Equal(got.Data, want.Data) {
		t.Errorf("head of %s: got %+v, %t, want v%d, %s", want.AggregateID, got, found, want.AggregateVersion, want.ID)
	}
	if got.OutboxID <= 0 || got.CreatedAt.IsZero() {
		t.Errorf("head of %s: outbox id %d, created %v", want.AggregateID, got.OutboxID, got.CreatedAt)
	}
}

func headNewest[TX any](t *testing.T, s *suite[TX]) {
	s.openHead(t)
	meta := s.wholeMeta()
	meta.Head, meta.HeadTrigger = true, !s.options.NoTrigger
	s.wantMeta(t, meta)
	first, third, second, again := s.versioned("a", 1), s.versioned("a", 3), s.versioned("a", 2), s.versioned("a", 3)
	s.append(t, first)
	s.wantHead(t, first)
	s.append(t, third)
	s.wantHead(t, third)
	if got, want := must(s.head(t, "", "a")).OutboxID, s.row(t, third.ID).ID; got != want {
		t.Errorf("outbox id: got %d, want %d", got, want)
	}
	s.append(t, second)
	s.append(t, again)
	s.wantHead(t, third)
	s.wantHot(t, first.ID, second.ID, third.ID, again.ID)
}

func must[V any](v V, _ bool) V { return v }

func headRollback[TX any](t *testing.T, s *suite[TX]) {
	s.openHead(t)
	first := s.versioned("a", 1)
	s.append(t, first)
	tx := s.begin(t)
	s.appendTo(t, tx, s.versioned("a", 2), s.versioned("b", 1))
	s.rollback(t, tx)
	s.wantHead(t, first)
	if _, found := s.head(t, "", "b"); found {
		t.Error("the head outlived the rollback")
	}
}

// A plain INSERT has its head from the trigger alone.
func headUnversioned[TX any](t *testing.T, s *suite[TX]) {
	s.openHead(t)
	first := s.versioned("a", 1)
	s.append(t, first)
	none := s.versioned("a", 0)
	s.append(t, none)
	s.exec(t, Statement{Event: s.plain("a")})
	s.wantHead(t, first)
	s.append(t, s.versioned("b", 0))
	if _, found := s.head(t, "", "b"); found {
		t.Error("an event without version is a head")
	}
	plain := s.plain("c")
	plain.AggregateVersion = 7
	s.exec(t, Statement{Event: plain})
	if s.options.NoTrigger {
		if _, found := s.head(t, "", "c"); found {
			t.Error("a head without trigger or Append")
		}
		return
	}
	s.wantHead(t, plain)
}

func headMany[TX any](t *testing.T, s *suite[TX]) {
	s.openHead(t)
	other := s.versioned("a", 9)
	other.TenantID = "other"
	events := []waybill.Event{
		s.versioned("b", 1), s.versioned("a", 2), other, s.versioned("b", 3), s.versioned("a", 1), s.versioned("b", 2), s.versioned("A", 5),
	}
	duplicate := events[3]
	duplicate.AggregateVersion = 8
	s.transact(t, func(tx TX) error {
		results, err := s.Appender.Append(t.Context(), tx, append(slices.Clone(events), duplicate))
		if err != nil {
			return err
		}
		for i, result := range results {
			if errors.Is(result, waybill.ErrDuplicateEvent) != (i == len(events)) {
				return fmt.Errorf("event %d: %w", i, result)
			}
		}
		return nil
	})
	for _, i := range []int{1, 2, 3, 6} {
		s.wantHead(t, events[i])
	}
}

func headCrossing[TX any](t *testing.T, s *suite[TX]) {
	s.openHead(t)
	const rounds = 15
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	calls := make([][][]waybill.Event, 2)
	for round := range rounds {
		for i := range calls {
			var events []waybill.Event
			for _, name := range names {
				events = append(events, s.versioned(name, int64(2*round+i+1)))
			}
			if i == 1 {
				slices.Reverse(events)
			}
			calls[i] = append(calls[i], events)
		}
	}
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			for _, events := range calls[i] {
				if err := s.try(t.Context(), func(tx TX) error { return s.appendIn(t.Context(), tx, events) }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, e := range calls[1][rounds-1] {
		s.wantHead(t, e)
	}
}

func headOutlives[TX any](t *testing.T, s *suite[TX]) {
	s.openHead(t)
	cleaned, deleted := s.versioned("a", 2), s.versioned("b", 1)
	s.append(t, cleaned)
	s.apply(t, s.own(t), settled(s.row(t, cleaned.ID)))
	if n := s.cleanup(t, store.CleanupRequest{}); n != 1 {
		t.Errorf("cleanup: got %d, want 1", n)
	}
	forgotten := s.versioned("c", 4)
	s.append(t, forgotten)
	changes := settled(s.row(t, forgotten.ID))
	changes.Forget = true
	s.apply(t, s.own(t), changes)
	if _, found := s.lookUp(t, forgotten.ID); found {
		t.Error("the event was not forgotten")
	}
	s.append(t, deleted)
	s.exec(t, Statement{Delete: true, Event: deleted})
	s.wantHead(t, cleaned)
	s.wantHead(t, forgotten)
	s.wantHead(t, deleted)
	late := s.versioned("a", 1)
	s.append(t, late)
	s.wantHead(t, cleaned)
}

func headAdded[TX any](t *testing.T, s *suite[TX]) {
	s.openWith(t, Options{Bare: true, Head: true})
	s.migrate(t, s.migrateOptions())
	s.wantMeta(t, s.wholeMeta())
	second, first := s.versioned("a", 2), s.versioned("a", 1)
	if !s.options.NoTrigger { // Append is told of heads, and there is no table
		s.append(t, second)
		s.append(t, first)
	}
	options := s.migrateOptions()
	options.Head = true
	s.migrate(t, options)
	meta := s.wholeMeta()
	meta.Head, meta.HeadTrigger = true, !s.options.NoTrigger
	s.wantMeta(t, meta)
	if !s.options.NoTrigger {
		s.wantHead(t, second)
	}
	s.migrate(t, s.migrateOptions()) // which does not mention it
	s.wantMeta(t, meta)
	third := s.versioned("a", 3)
	s.append(t, third)
	s.wantHead(t, third)
}

// Without its trigger the table of heads still looks alive: Meta tells, and
// Migrate, which nobody told of heads, fills in what was missed.
func headTriggerLost[TX any](t *testing.T, s *suite[TX]) {
	if s.options.NoTrigger {
		t.Skip("there is no trigger")
	}
	s.openHead(t)
	first, second, other := s.versioned("a", 1), s.versioned("a", 2), s.versioned("b", 4)
	s.append(t, first)
	if err := s.DropHeadTrigger(t.Context()); err != nil {
		t.Fatal(err)
	}
	meta := s.wholeMeta()
	meta.Head = true
	s.wantMeta(t, meta)
	s.append(t, second)
	s.exec(t, Statement{Event: other})
	s.wantHead(t, first)
	s.migrate(t, s.migrateOptions())
	meta.HeadTrigger = true
	s.wantMeta(t, meta)
	s.wantHead(t, second)
	s.wantHead(t, other)
	third := s.versioned("a", 3)
	s.append(t, third)
	s.wantHead(t, third)
}

func headAbsent[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	if _, _, err := s.Outbox.(store.HeadReader).Head(t.Context(), "", "order", "a"); err == nil {
		t.Error("a head was looked for where there is no table")
	}
}

func headNames[TX any](t *testing.T, s *suite[TX]) {
	if why := s.harness.Exceptions.Names; why != "" {
		t.Skipf("needs names of one's own: %s", why)
	}
	names := oddNames()
	names.Head = "head of head"
	s.openWith(t, Options{Names: names, Head: true})
	e := s.versioned("a", 1)
	s.append(t, e)
	s.wantHead(t, e)
}
