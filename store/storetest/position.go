package storetest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill/store"
)

func positionCases[TX any]() []testCase[TX] {
	return []testCase[TX]{
		{"a position is kept until it is replaced or removed", positionKept[TX]},
		{"a position is not saved without its leases", positionGuarded[TX]},
		{"a mode is set for all and recorded", positionMode[TX]},
		{"a mode is refused without a reason, or when it is unknown", positionModeRefused[TX]},
	}
}

func (s *suite[TX]) positions(t testing.TB) map[string]store.Position {
	t.Helper()
	list, err := s.Outbox.ListPositions(t.Context())
	if err != nil {
		t.Fatalf("list positions: %v", err)
	}
	bySource := make(map[string]store.Position)
	last := ""
	for _, p := range list {
		if p.Source <= last {
			t.Errorf("source %q comes after %q", p.Source, last)
		}
		last = p.Source
		bySource[p.Source] = p
	}
	return bySource
}

func (s *suite[TX]) savePosition(t testing.TB, guard store.Guard, source, position string) {
	t.Helper()
	if err := s.Outbox.SavePosition(t.Context(), guard, source, position); err != nil {
		t.Fatalf("save position: %v", err)
	}
}

func positionKept[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	if found := s.positions(t); len(found) != 0 {
		t.Fatalf("got %v in new tables, want none", found)
	}
	guard := s.own(t)
	long := strings.Repeat("0-1-18446744073709551615,", 1000)
	s.savePosition(t, guard, "mysql:Größe", "short")
	s.savePosition(t, guard, "mysql:Größe", long)
	s.savePosition(t, guard, "postgres:a", "0/16B3748")
	found := s.positions(t)
	if len(found) != 2 || found["mysql:Größe"].Position != long || found["postgres:a"].Position != "0/16B3748" {
		t.Errorf("got positions %.200v", found)
	}
	if at := found["postgres:a"].UpdatedAt; at.Before(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)) || at.Location() != time.UTC {
		t.Errorf("updated at %v", at)
	}
	for range 2 {
		s.savePosition(t, guard, "mysql:Größe", "")
	}
	if found := s.positions(t); len(found) != 1 || found["postgres:a"].Position == "" {
		t.Errorf("got positions %v after a removal", found)
	}
}

func positionGuarded[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	guard := s.own(t)
	s.savePosition(t, guard, "source", "1")
	stale := store.Guard{Owner: guard.Owner, Lanes: []store.Lease{{Lane: 3, Fence: 1000}}}
	var lost *store.StaleError
	if err := s.Outbox.SavePosition(t.Context(), stale, "source", "2"); !errors.As(err, &lost) {
		t.Errorf("got %v, want a StaleError", err)
	}
	if err := s.Outbox.SavePosition(t.Context(), stale, "source", ""); !errors.Is(err, store.ErrStale) {
		t.Errorf("got %v, want ErrStale", err)
	}
	if found := s.positions(t); found["source"].Position != "1" {
		t.Errorf("a stale owner left %v", found)
	}
}

func (s *suite[TX]) wantMode(t testing.TB, want string) {
	t.Helper()
	mode, err := s.Outbox.ReadMode(t.Context())
	if err != nil || mode != want {
		t.Fatalf("mode: got %q, %v, want %q", mode, err, want)
	}
}

func positionMode[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	s.wantMode(t, "")
	for _, mode := range []string{store.ModeCDC, store.ModeCDC, store.ModePoll, ""} {
		if err := s.Outbox.SetMode(t.Context(), because, mode); err != nil {
			t.Fatalf("set mode %q: %v", mode, err)
		}
		s.wantMode(t, mode)
	}
	entries, err := s.Outbox.Audit(t.Context(), 10)
	if err != nil || len(entries) != 3 {
		t.Fatalf("audit: got %+v, %v, want 3 entries", entries, err)
	}
	got := entries[1]
	want := store.AuditEntry{
		At: got.At, Actor: because.Actor, Verb: "relay mode", Target: "mode", Reason: because.Reason,
		Before: `{"mode":"cdc"}`, After: `{"mode":"poll"}`,
	}
	if got != want {
		t.Errorf("got audit entry %+v, want %+v", got, want)
	}
	// What the tables say of themselves is not disturbed.
	if meta, err := s.Outbox.ReadMeta(t.Context()); err != nil || !meta.Outbox {
		t.Errorf("read meta: %+v, %v", meta, err)
	}
}

func positionModeRefused[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	if err := s.Outbox.SetMode(t.Context(), store.Action{Actor: "anna"}, store.ModeCDC); !errors.Is(err, store.ErrNoReason) {
		t.Errorf("got %v, want ErrNoReason", err)
	}
	if err := s.Outbox.SetMode(t.Context(), because, "push"); !errors.Is(err, store.ErrUnknownMode) {
		t.Errorf("got %v, want ErrUnknownMode", err)
	}
	s.wantMode(t, "")
}
