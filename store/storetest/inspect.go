package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

func inspectCases[TX any]() []testCase[TX] {
	return []testCase[TX]{
		{"counts sum up the queue", inspectCounts[TX]},
		{"find selects by every condition", inspectFind[TX]},
		{"find pages up and down", inspectPages[TX]},
		{"find selects by time", inspectTimes[TX]},
		{"orphans are queue rows without an event", inspectOrphans[TX]},
	}
}

func inspectCounts[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	counts := func() store.Counts {
		t.Helper()
		got, err := s.Outbox.Counts(t.Context())
		if err != nil {
			t.Fatalf("counts: %v", err)
		}
		return got
	}
	if got := counts(); got != (store.Counts{}) {
		t.Errorf("counts of an empty queue: got %+v", got)
	}
	events := s.events("a", "b", "c", "d", "e")
	s.append(t, events...)
	rows := s.hotByID(t)
	guard := s.own(t)
	s.apply(t, guard, settled(rows[events[0].ID]))
	s.apply(t, guard, failed(rows[events[1].ID], false, time.Hour, "x"))
	s.apply(t, guard, failed(rows[events[2].ID], true, 0, "x"))
	s.apply(t, guard, store.Changes{Parked: []int64{rows[events[3].ID].ID}})
	eventually(t, "the oldest has an age", func() bool { return counts().OldestAge > 0 })
	got := counts()
	if got.OldestAge > time.Hour {
		t.Errorf("oldest age: got %v", got.OldestAge)
	}
	got.OldestAge = 0
	if want := (store.Counts{Pending: 3, Failed: 1, Dead: 1, Parked: 3}); got != want {
		t.Errorf("counts: got %+v, want %+v", got, want)
	}
	s.apply(t, guard, settled(rows[events[1].ID], rows[events[3].ID], rows[events[4].ID]))
	if got, want := counts(), (store.Counts{Dead: 1, Parked: 1}); got != want {
		t.Errorf("counts with nothing pending: got %+v, want %+v", got, want)
	}
}

func (s *suite[TX]) find(t testing.TB, filter store.Filter) []string {
	t.Helper()
	found, err := s.Outbox.Find(t.Context(), filter)
	if err != nil {
		t.Fatalf("find: %v", err)
	}
	var ids []string
	for _, f := range found {
		ids = append(ids, f.Event.ID)
	}
	return ids
}

func inspectFind[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	tenant, none := "t'1", ""
	a, b, c, d, e := s.event("a"), s.event("b"), s.event("c"), s.event("d"), s.event("e")
	a.TenantID = tenant
	b.Topic = "payments"
	c.Type = "OrderShipped"
	d.Key, d.AggregateID = "route-7", "O-7"
	s.append(t, a, b, c, d, e)
	rows := s.hotByID(t)
	guard := s.own(t)
	s.apply(t, guard, settled(rows[a.ID]))
	s.apply(t, guard, failed(rows[b.ID], true, 0, "x"))
	skipped := settled(rows[c.ID])
	skipped.Settled[0].Outcome = store.StatusSkipped
	s.apply(t, guard, skipped)

	for _, q := range []struct {
		name   string
		filter store.Filter
		want   []string
	}{
		{"all", store.Filter{}, []string{a.ID, b.ID, c.ID, d.ID, e.ID}},
		{"ids", store.Filter{EventIDs: []string{e.ID, "missing", b.ID}}, []string{b.ID, e.ID}},
		{"key", store.Filter{Key: "route-7"}, []string{d.ID}},
		{"aggregate id", store.Filter{Key: "O-7"}, []string{d.ID}},
		{"tenant", store.Filter{TenantID: &tenant}, []string{a.ID}},
		{"no tenant", store.Filter{TenantID: &none}, []string{b.ID, c.ID, d.ID, e.ID}},
		{"topic", store.Filter{Topic: "payments"}, []string{b.ID}},
		{"type", store.Filter{Type: "OrderShipped"}, []string{c.ID}},
		{"sent", store.Filter{Status: store.StatusSent}, []string{a.ID}},
		{"dead", store.Filter{Status: store.StatusDead}, []string{b.ID}},
		{"skipped", store.Filter{Status: store.StatusSkipped}, []string{c.ID}},
		{"pending", store.Filter{Status: store.StatusPending}, []string{d.ID, e.ID}},
		{"unqueued", store.Filter{Unqueued: true}, nil},
		{"all conditions hold", store.Filter{Topic: "orders", Status: store.StatusPending, Key: "e"}, []string{e.ID}},
		{"conditions that exclude each other", store.Filter{Topic: "payments", Status: store.StatusSent}, nil},
		{"ids and status", store.Filter{EventIDs: []string{a.ID, b.ID}, Status: store.StatusDead}, []string{b.ID}},
		{"no such key", store.Filter{Key: "' OR 1=1 --"}, nil},
	} {
		if got := s.find(t, q.filter); !slices.Equal(got, q.want) {
			t.Errorf("%s: got %v, want %v", q.name, got, q.want)
		}
	}
}

func inspectPages[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	rows := s.spread(t, 120)
	var ids []string
	for _, row := range rows {
		ids = append(ids, row.Event.ID)
	}
	if got := s.find(t, store.Filter{}); !slices.Equal(got, ids[:100]) {
		t.Errorf("without a limit: got %d events, want the first 100", len(got))
	}
	if got, want := s.find(t, store.Filter{After: rows[9].ID, Limit: 3}), ids[10:13]; !slices.Equal(got, want) {
		t.Errorf("a page up: got %v, want %v", got, want)
	}
	if got, want := s.find(t, store.Filter{Newest: true, Limit: 2}), []string{ids[119], ids[118]}; !slices.Equal(got, want) {
		t.Errorf("the newest: got %v, want %v", got, want)
	}
	if got, want := s.find(t, store.Filter{Newest: true, After: rows[10].ID, Limit: 2}), []string{ids[9], ids[8]}; !slices.Equal(got, want) {
		t.Errorf("a page down: got %v, want %v", got, want)
	}
	if got := s.find(t, store.Filter{After: rows[119].ID}); len(got) != 0 {
		t.Errorf("after the last: got %v", got)
	}
}

func inspectTimes[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	e := s.event("a")
	s.append(t, e)
	at := s.tracked(t, e.ID).CreatedAt
	if at.IsZero() || at.Location() != time.UTC {
		t.Errorf("created at: got %v, want a time in UTC", at)
	}
	for _, c := range []struct {
		name        string
		from, until time.Time
		want        int
	}{
		{"from its time", at, time.Time{}, 1},
		{"from later", at.Add(time.Millisecond), time.Time{}, 0},
		{"until its time", time.Time{}, at, 0},
		{"until later", time.Time{}, at.Add(time.Millisecond), 1},
		{"around, in another zone", at.Add(-time.Hour).In(time.FixedZone("east", 9*3600)), at.Add(time.Hour).In(time.FixedZone("west", -9*3600)), 1},
		{"before", at.Add(-time.Hour), at.Add(-time.Minute), 0},
	} {
		if got := s.find(t, store.Filter{From: c.from, Until: c.until}); len(got) != c.want {
			t.Errorf("%s: got %d events, want %d", c.name, len(got), c.want)
		}
	}
}

func inspectOrphans[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	events := []waybill.Event{s.event("a"), s.event("b"), s.event("c")}
	s.append(t, events...)
	rows := s.hotByID(t)
	s.exec(t, Statement{Delete: true, Event: events[0]})
	s.exec(t, Statement{Delete: true, Event: events[2]})
	orphans, err := s.Outbox.Orphans(t.Context(), 10)
	if err != nil || len(orphans) != 2 || orphans[0].ID != rows[events[0].ID].ID || orphans[1].ID != rows[events[2].ID].ID {
		t.Fatalf("orphans: got %+v, %v, want the first and the third row", orphans, err)
	}
	if orphans[0].KeyHash != rows[events[0].ID].KeyHash || orphans[0].Event.ID != "" {
		t.Errorf("orphan: got %+v", orphans[0])
	}
	if one, err := s.Outbox.Orphans(t.Context(), 1); err != nil || len(one) != 1 {
		t.Errorf("orphans, limit 1: got %d, %v", len(one), err)
	}
	s.wantHot(t, events[1].ID) // the relay is never shown one
	request := store.KeyRequest{Lane: orphans[0].Lane, KeyHash: orphans[0].KeyHash, Limit: 10}
	if got := s.fetchKey(t, request); len(got.Rows) != 0 {
		t.Errorf("fetch key shows an orphan: %+v", got.Rows)
	}
}
