package storetest

import (
	"testing"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

func plainCases[TX any]() []testCase[TX] {
	return []testCase[TX]{
		{"the minimal insert is an event", plainMinimal[TX]},
		{"a rolled back insert leaves nothing", plainRollback[TX]},
		{"what the table must refuse", plainRefused[TX]},
		{"insert and append agree on lane and hashes", plainHashes[TX]},
		{"trigger and append beside each other queue once", plainTriggerAdded[TX]},
		{"a fact alone is found and requeued", plainTriggerRemoved[TX]},
		{"an id that comes again resets its queue row", plainIDConflict[TX]},
		{"a late change spares the event that took the id", plainIDTaken[TX]},
	}
}

func (s *suite[TX]) plain(key string) waybill.Event {
	made := s.event(key)
	return waybill.Event{
		ID: made.ID, Type: made.Type, Topic: made.Topic,
		AggregateType: made.AggregateType, AggregateID: key, Data: []byte(`{"n":1}`),
	}
}

func (s *suite[TX]) exec(t testing.TB, statement Statement) {
	t.Helper()
	s.transact(t, func(tx TX) error { return s.Exec(t.Context(), tx, statement) })
}

// queueAll gives facts without a queue row one, as an operator would.
func (s *suite[TX]) queueAll(t testing.TB) int {
	t.Helper()
	found, err := s.Outbox.Find(t.Context(), store.Filter{Unqueued: true, Limit: 1000})
	if err != nil {
		t.Fatalf("find unqueued: %v", err)
	}
	var ids []string
	for _, f := range found {
		ids = append(ids, f.Event.ID)
	}
	if len(ids) == 0 {
		return 0
	}
	results, err := s.Outbox.Requeue(t.Context(), store.Action{Actor: "test", Reason: "fact alone"}, ids)
	if err != nil {
		t.Fatalf("requeue: %v", err)
	}
	for _, result := range results {
		if result.Outcome != store.OutcomeQueued {
			t.Errorf("requeue %s: got %s", result.EventID, result.Outcome)
		}
	}
	return len(ids)
}

func plainMinimal[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	e := s.plain("it's O-1")
	s.exec(t, Statement{Event: e})
	if s.options.NoTrigger {
		found := s.tracked(t, e.ID)
		if found.Queued() || found.Status != store.StatusPending {
			t.Errorf("without a trigger: got %+v", found)
		}
		s.wantHot(t)
		if n := s.queueAll(t); n != 1 {
			t.Fatalf("unqueued events: got %d, want 1", n)
		}
	}
	row := s.wantHot(t, e.ID)[e.ID]
	if row.Event.OccurredAt.IsZero() || row.Age < 0 {
		t.Errorf("times were not filled: %v, age %v", row.Event.OccurredAt, row.Age)
	}
	want := e
	want.Normalize(row.Event.OccurredAt)
	s.wantEvent(t, "fetch", row.Event, want)
	if row.Event.Key != e.AggregateID || row.Event.AggregateVersion != 0 {
		t.Errorf("key %q, version %d: want the aggregate's id, and none", row.Event.Key, row.Event.AggregateVersion)
	}
}

func plainRollback[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	tx := s.begin(t)
	if err := s.Exec(t.Context(), tx, Statement{Event: s.plain("a")}); err != nil {
		t.Fatal(err)
	}
	s.rollback(t, tx)
	s.wantHot(t)
	if orphans, err := s.Outbox.Orphans(t.Context(), 10); err != nil || len(orphans) != 0 {
		t.Errorf("orphans: got %v, %v, want none", orphans, err)
	}
}

func plainRefused[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	stored := s.plain("a")
	s.exec(t, Statement{Event: stored})
	noID, noTopic, twice := s.plain("a"), s.plain("a"), s.plain("a")
	noID.ID, noTopic.Topic, twice.ID = "", "", stored.ID
	for _, c := range []struct {
		name  string
		event waybill.Event
	}{{"empty id", noID}, {"empty topic", noTopic}, {"an id that is there", twice}} {
		t.Run(c.name, func(t *testing.T) {
			err := s.try(t.Context(), func(tx TX) error { return s.Exec(t.Context(), tx, Statement{Event: c.event}) })
			if err == nil {
				t.Error("the table took it")
			}
		})
	}
	found, err := s.Outbox.Find(t.Context(), store.Filter{})
	if err != nil || len(found) != 1 {
		t.Errorf("events afterwards: got %d, %v, want 1", len(found), err)
	}
}

func plainHashes[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	for _, key := range []string{"k", "schlüssel 钥匙", "it's", "A"} {
		plain, appended := s.plain(key), s.event(key)
		s.exec(t, Statement{Event: plain})
		s.append(t, appended)
		s.queueAll(t)
		a, b := s.row(t, plain.ID), s.row(t, appended.ID)
		if a.Lane != b.Lane || a.KeyHash != b.KeyHash || a.TopicHash != b.TopicHash {
			t.Errorf("key %q: insert gives %d %d %d, append %d %d %d", key, a.Lane, a.KeyHash, a.TopicHash, b.Lane, b.KeyHash, b.TopicHash)
		}
	}
}

// plainTriggerAdded: somebody migrates with the trigger while producers still
// write the queue row themselves.
func plainTriggerAdded[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	if err := s.Outbox.Migrate(t.Context(), store.MigrateOptions{}); err != nil {
		t.Fatalf("migrate: %v", err)
	}
	appended, plain := s.event("a"), s.plain("a")
	s.append(t, appended)
	s.exec(t, Statement{Event: plain})
	s.wantHot(t, appended.ID, plain.ID)
}

// plainTriggerRemoved: the trigger is gone, and a producer writes the fact alone.
func plainTriggerRemoved[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	if err := s.Outbox.Migrate(t.Context(), store.MigrateOptions{NoTrigger: true}); err != nil {
		t.Fatalf("migrate: %v", err)
	}
	plain := s.plain("a")
	s.exec(t, Statement{Event: plain})
	s.wantHot(t)
	if n := s.queueAll(t); n != 1 {
		t.Errorf("unqueued events: got %d, want 1", n)
	}
	s.wantHot(t, plain.ID)
	if n := s.queueAll(t); n != 0 {
		t.Errorf("unqueued events after requeue: got %d, want none", n)
	}
}

// plainIDConflict: the facts were emptied and their ids begin anew, while a
// queue row of old stayed behind.
func plainIDConflict[TX any](t *testing.T, s *suite[TX]) {
	if s.options.NoTrigger {
		t.Skip("without a trigger a plain insert writes no queue row")
	}
	s.open(t)
	old := s.event("old")
	s.append(t, old)
	row := s.row(t, old.ID)
	s.apply(t, s.own(t), failed(row, true, 0, "refused"))
	s.exec(t, Statement{Delete: true, Event: old})
	orphans, err := s.Outbox.Orphans(t.Context(), 10)
	if err != nil || len(orphans) != 1 || orphans[0].ID != row.ID || orphans[0].Event.ID != "" {
		t.Fatalf("orphans: got %+v, %v, want one", orphans, err)
	}
	fresh, reference := s.plain("fresh"), s.event("fresh")
	s.exec(t, Statement{ID: row.ID, Event: fresh})
	s.append(t, reference)
	got, like := s.row(t, fresh.ID), s.row(t, reference.ID)
	if got.ID != row.ID {
		t.Fatalf("id: got %d, want %d", got.ID, row.ID)
	}
	if got.Status != store.StatusPending || got.Parked || got.Skip || got.Retries != 0 || got.HasRetry || got.FirstErr != "" || got.LastErr != "" {
		t.Errorf("the queue row was not reset: %+v", got)
	}
	if got.Lane != like.Lane || got.KeyHash != like.KeyHash {
		t.Errorf("lane and key are those of the old event: %d %d, want %d %d", got.Lane, got.KeyHash, like.Lane, like.KeyHash)
	}
}

// plainIDTaken: the facts were emptied and their ids begin anew while a relay
// had sent, or failed to send, the old ones and not yet written it.
func plainIDTaken[TX any](t *testing.T, s *suite[TX]) {
	if s.options.NoTrigger {
		t.Skip("without a trigger a plain insert writes no queue row")
	}
	s.open(t)
	for _, c := range []struct {
		name   string
		change func(row *store.Row) store.Changes
	}{
		{"settled", func(row *store.Row) store.Changes { return settled(row) }},
		{"forgotten", func(row *store.Row) store.Changes {
			changes := settled(row)
			changes.Forget = true
			return changes
		}},
		{"failed", func(row *store.Row) store.Changes { return failed(row, true, 0, "refused") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			old, fresh, other := s.event("old"), s.plain("fresh"), s.event("other")
			s.append(t, old, other)
			row, beside := s.row(t, old.ID), s.row(t, other.ID)
			s.exec(t, Statement{Delete: true, Event: old})
			s.exec(t, Statement{ID: row.ID, Event: fresh})
			guard := s.own(t)
			s.apply(t, guard, c.change(row))
			if got := s.row(t, fresh.ID); got.ID != row.ID || got.Status != store.StatusPending || got.Parked {
				t.Errorf("the new event, never sent: got %+v", got)
			}
			s.apply(t, guard, settled(beside))
			if got := s.tracked(t, other.ID); got.Queued() {
				t.Errorf("the event beside it: got %+v, want it settled", got)
			}
		})
	}
}
