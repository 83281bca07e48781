package storetest

import (
	"testing"
	"time"

	"github.com/waybillhq/waybill/store"
)

func auditCases[TX any]() []testCase[TX] {
	return []testCase[TX]{
		{"an entry comes with its transaction", auditCommitted[TX]},
		{"an entry goes with its transaction or savepoint", auditUndone[TX]},
		{"a consumer's database has an audit of its own", auditConsumerAlone[TX]},
	}
}

var heldEntry = store.AuditEntry{
	Actor: "änne", Verb: "held skip", Target: "it's ü", Reason: "told 'so'", Before: `{"state":"DEAD"}`, After: `{"outcome":"SKIPPED"}`,
}

func (s *suite[TX]) wantAudit(t *testing.T, want ...store.AuditEntry) {
	t.Helper()
	entries, err := s.Outbox.Audit(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != len(want) {
		t.Fatalf("audit: got %+v, want %d entries", entries, len(want))
	}
	for i, entry := range entries {
		if entry.At.IsZero() || entry.At.Location() != time.UTC {
			t.Errorf("entry is at %v, want a time in UTC", entry.At)
		}
		entry.At = time.Time{}
		if entry != want[i] {
			t.Errorf("entry %d: got %+v, want %+v", i, entry, want[i])
		}
	}
}

func record[TX any](t *testing.T, tx store.InboxTx[TX], entry store.AuditEntry) {
	t.Helper()
	if err := tx.Record(t.Context(), entry); err != nil {
		t.Fatalf("record: %v", err)
	}
}

func auditCommitted[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	s.hold(t, kept("1", "k", store.HeldDead))
	second := heldEntry
	second.Target, second.Before, second.After = "2", "", ""
	s.inInbox(t, func(tx store.InboxTx[TX]) {
		if _, err := tx.DeleteHeld(t.Context(), group, "1"); err != nil {
			t.Fatal(err)
		}
		record(t, tx, heldEntry)
		record(t, tx, second)
		s.wantAudit(t)
	})
	s.wantAudit(t, second, heldEntry)
}

func auditUndone[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	tx := s.beginInbox(t)
	record(t, tx, heldEntry)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.inInbox(t, func(tx store.InboxTx[TX]) {
		if err := tx.Savepoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		record(t, tx, heldEntry)
		if err := tx.RollbackTo(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	s.wantAudit(t)
}

func auditConsumerAlone[TX any](t *testing.T, s *suite[TX]) {
	s.openWith(t, Options{Bare: true})
	if err := s.Outbox.Migrate(t.Context(), store.MigrateOptions{SkipOutbox: true, NoTrigger: s.options.NoTrigger}); err != nil {
		t.Fatal(err)
	}
	s.inInbox(t, func(tx store.InboxTx[TX]) { record(t, tx, heldEntry) })
	s.wantAudit(t, heldEntry)
}
