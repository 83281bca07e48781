package storetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// externalCases run where the store implements [store.External].
func externalCases[TX any]() []testCase[TX] {
	return []testCase[TX]{
		{"relays deliver until they are told not to", externalBefore[TX]},
		{"after a hand-over nothing is queued", externalHandOver[TX]},
		{"a plain insert has its key after a hand-over", externalPlain[TX]},
		{"each event is on one side of the cut", externalCut[TX]},
		{"a receipt is written for what another program sent", externalConfirm[TX]},
		{"what relays send is not confirmed", externalNotOurs[TX]},
		{"a take-back queues what was not confirmed", externalTakeBack[TX]},
		{"a migration leaves the delivery alone", externalMigrate[TX]},
		{"a switch has a reason and an entry in the audit", externalAudit[TX]},
		{"topics are found by their events", externalTopics[TX]},
	}
}

// external opens the store, with the trigger that a hand-over takes away.
func (s *suite[TX]) external(t *testing.T) store.External {
	t.Helper()
	s.open(t)
	e, ok := s.Outbox.(store.External)
	if !ok {
		t.Skip("no other program reads this database's log: the store has no store.External")
	}
	if s.options.NoTrigger {
		t.Skip("there is no trigger to take away; a case of its own tries")
	}
	// The tables may serve other cases afterwards.
	t.Cleanup(func() {
		if _, err := e.TakeBack(context.WithoutCancel(t.Context()), because); err != nil {
			t.Errorf("take back: %v", err)
		}
	})
	return e
}

func externalBefore[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	e, ok := s.Outbox.(store.External)
	if !ok {
		t.Skip("no other program reads this database's log: the store has no store.External")
	}
	d, err := e.Delivery(t.Context())
	if err != nil || d != (store.Delivery{}) || d.Mode() != "relay" {
		t.Errorf("delivery: got %+v, %v, want that of relays", d, err)
	}
	if n, err := e.TakeBack(t.Context(), because); err != nil || n != 0 {
		t.Errorf("take back: got %d, %v, want nothing done", n, err)
	}
	if s.options.NoTrigger {
		if _, err := e.HandOver(t.Context(), because); !errors.Is(err, store.ErrNoTrigger) {
			t.Errorf("hand over: got %v, want ErrNoTrigger", err)
		}
	}
}

func (s *suite[TX]) handOver(t *testing.T, e store.External) store.Delivery {
	t.Helper()
	d, err := e.HandOver(t.Context(), because)
	if err != nil {
		t.Fatalf("hand over: %v", err)
	}
	if !d.External || d.Returning || d.Mode() != store.ViaExternal {
		t.Fatalf("hand over: got %+v", d)
	}
	return d
}

func externalHandOver[TX any](t *testing.T, s *suite[TX]) {
	e := s.external(t)
	first := s.event("a")
	s.append(t, first)
	d := s.handOver(t, e)
	if want := s.tracked(t, first.ID).ID; d.Cut != want {
		t.Errorf("cut: got %d, want %d, the id of the last event", d.Cut, want)
	}
	second := s.event("a")
	s.append(t, second)
	s.wantHot(t, first.ID)
	found := s.tracked(t, second.ID)
	if found.Row != nil || found.Receipt != nil || found.Status != store.StatusPending || found.ID <= d.Cut {
		t.Errorf("the second event: got %+v, want it above the cut and not queued", found)
	}
	again := s.handOver(t, e)
	if again != d {
		t.Errorf("a second hand-over: got %+v, want nothing changed: %+v", again, d)
	}
	meta, err := s.Outbox.ReadMeta(t.Context())
	if err != nil || meta.Trigger {
		t.Errorf("meta: got %+v, %v, want no trigger", meta, err)
	}
	u, err := e.Unconfirmed(t.Context())
	if err != nil || u.Events != 1 || u.OldestAge < 0 {
		t.Errorf("unconfirmed: got %+v, %v, want one event", u, err)
	}
}

func externalPlain[TX any](t *testing.T, s *suite[TX]) {
	e := s.external(t)
	s.handOver(t, e)
	event := s.event("a")
	event.Key = ""
	s.exec(t, Statement{Event: event})
	found := s.tracked(t, event.ID)
	if found.Row != nil || found.Event.Key != "a" {
		t.Errorf("got %+v, want the key a and no queue row", found)
	}
}

// externalCut writes all the time while the delivery is handed over.
func externalCut[TX any](t *testing.T, s *suite[TX]) {
	if s.harness.Exceptions.SingleWriter != "" {
		t.Skip("writers come one after another: " + s.harness.Exceptions.SingleWriter)
	}
	e := s.external(t)
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	batches := make([][]waybill.Event, 3)
	for i := range batches {
		for range 400 {
			batches[i] = append(batches[i], s.event("a"))
		}
	}
	var written [3][]string
	errs := make([]error, len(batches))
	for i := range batches {
		writers.Go(func() {
			for j := 0; j+1 < len(batches[i]) && ctx.Err() == nil && errs[i] == nil; j += 2 {
				pair := batches[i][j : j+2]
				// A database may take a transaction back that meets the change of its
				// tables, as a deadlock; it is then done again, as applications do.
				for range 3 {
					errs[i] = s.try(t.Context(), func(tx TX) error {
						return errors.Join(s.appendIn(t.Context(), tx, pair[:1]), s.appendIn(t.Context(), tx, pair[1:]))
					})
					if errs[i] == nil {
						break
					}
				}
				written[i] = append(written[i], pair[0].ID, pair[1].ID)
			}
		})
	}
	d := s.handOver(t, e)
	for range 20 {
		s.append(t, s.event("b"))
	}
	stop()
	writers.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	queued := s.hotByID(t)
	for _, id := range slices.Concat(written[:]...) {
		found := s.tracked(t, id)
		if _, hot := queued[id]; hot != (found.ID <= d.Cut) {
			t.Errorf("event %d, with the cut at %d: queued is %t", found.ID, d.Cut, hot)
		}
	}
}

func (s *suite[TX]) confirm(t *testing.T, e store.External, want int, ids ...string) {
	t.Helper()
	var all []store.Confirmation
	for _, id := range ids {
		all = append(all, store.Confirmation{EventID: id, PublishedTo: "orders[3]@" + id})
	}
	if n, err := e.Confirm(t.Context(), all); err != nil || n != want {
		t.Fatalf("confirm: got %d, %v, want %d", n, err, want)
	}
}

func externalConfirm[TX any](t *testing.T, s *suite[TX]) {
	e := s.external(t)
	s.handOver(t, e)
	events := s.events("a", "b", "c")
	s.append(t, events...)
	s.confirm(t, e, 0)
	s.confirm(t, e, 2, events[0].ID, "unknown", events[2].ID, events[0].ID)
	s.confirm(t, e, 0, events[0].ID)
	for i, event := range events {
		found := s.tracked(t, event.ID)
		if i == 1 {
			if found.Receipt != nil {
				t.Errorf("event %d has a receipt: %+v", i, found.Receipt)
			}
			continue
		}
		r := found.Receipt
		if r == nil || r.Outcome != store.StatusSent || r.Via != store.ViaExternal || r.PublishedTo != "orders[3]@"+event.ID || r.PublishedAt.IsZero() || found.Status != store.StatusSent {
			t.Errorf("event %d: got %+v with receipt %+v, want one via external", i, found, r)
		}
	}
	if u, err := e.Unconfirmed(t.Context()); err != nil || u.Events != 1 {
		t.Errorf("unconfirmed: got %+v, %v, want one", u, err)
	}
}

func externalNotOurs[TX any](t *testing.T, s *suite[TX]) {
	e := s.external(t)
	early := s.event("a")
	s.append(t, early)
	s.confirm(t, e, 0, early.ID)
	s.handOver(t, e)
	s.confirm(t, e, 0, early.ID)
	if found := s.tracked(t, early.ID); found.Receipt != nil || found.Row == nil {
		t.Errorf("an event of the relays: got %+v, want it queued and without a receipt", found)
	}
}

func externalTakeBack[TX any](t *testing.T, s *suite[TX]) {
	e := s.external(t)
	early := s.event("a")
	s.append(t, early)
	s.handOver(t, e)
	var events []waybill.Event
	for range 1100 { // more than one statement queues
		events = append(events, s.event("a"))
	}
	s.append(t, events...)
	s.confirm(t, e, 1, events[0].ID)
	n, err := e.TakeBack(t.Context(), because)
	if err != nil || n != len(events)-1 {
		t.Fatalf("take back: got %d, %v, want %d", n, err, len(events)-1)
	}
	late := s.event("a")
	s.append(t, late)
	rows := s.hotByID(t)
	if len(rows) != len(events)+1 {
		t.Errorf("hot rows: got %d, want %d", len(rows), len(events)+1)
	}
	if _, hot := rows[events[0].ID]; hot {
		t.Error("what was confirmed is queued")
	}
	row := rows[events[1].ID]
	if want := rows[late.ID]; row.Lane != want.Lane || row.KeyHash != want.KeyHash || row.TopicHash != want.TopicHash {
		t.Errorf("a queued row: got %+v, want the places of %+v", row, want)
	}
	if !row.HasRetry || row.RetryIn > 0 {
		t.Errorf("a queued row: got %+v, want it due", row)
	}
	d, err := e.Delivery(t.Context())
	if err != nil || d != (store.Delivery{}) {
		t.Errorf("delivery: got %+v, %v, want that of relays", d, err)
	}
	meta, err := s.Outbox.ReadMeta(t.Context())
	if err != nil || !meta.Trigger {
		t.Errorf("meta: got %+v, %v, want the trigger", meta, err)
	}
	s.confirm(t, e, 0, events[1].ID)
	if next := s.handOver(t, e); next.Cut < s.tracked(t, late.ID).ID {
		t.Errorf("the next hand-over: the cut %d lies before the last event", next.Cut)
	}
}

func externalMigrate[TX any](t *testing.T, s *suite[TX]) {
	e := s.external(t)
	d := s.handOver(t, e)
	if err := s.Outbox.Migrate(t.Context(), store.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	event := s.event("a")
	s.append(t, event)
	if found := s.tracked(t, event.ID); found.Row != nil {
		t.Errorf("after a migration an event is queued: %+v", found)
	}
	if after, err := e.Delivery(t.Context()); err != nil || after != d {
		t.Errorf("delivery: got %+v, %v, want %+v", after, err, d)
	}
}

func externalAudit[TX any](t *testing.T, s *suite[TX]) {
	e := s.external(t)
	silent := store.Action{Actor: "anna"}
	_, over := e.HandOver(t.Context(), silent)
	_, back := e.TakeBack(t.Context(), silent)
	for _, err := range []error{over, back} {
		if !errors.Is(err, store.ErrNoReason) {
			t.Errorf("got %v, want ErrNoReason", err)
		}
	}
	s.handOver(t, e)
	s.handOver(t, e)
	if _, err := e.TakeBack(t.Context(), because); err != nil {
		t.Fatal(err)
	}
	entries, err := s.Outbox.Audit(t.Context(), 10)
	if err != nil || len(entries) != 2 {
		t.Fatalf("audit: got %+v, %v, want two entries", entries, err)
	}
	for i, want := range []string{"relay", store.ViaExternal} {
		entry := entries[i]
		if entry.Verb != "delivery switch" || entry.Reason != because.Reason || entry.Target != "delivery" || !strings.Contains(entry.After, want) {
			t.Errorf("entry %d: got %+v, want a switch to %s", i, entry, want)
		}
	}
}

func externalTopics[TX any](t *testing.T, s *suite[TX]) {
	e := s.external(t)
	d := s.handOver(t, e)
	topics, last, err := e.EventTopics(t.Context(), d.Cut)
	if err != nil || len(topics) != 0 || last != d.Cut {
		t.Errorf("no event: got %v, %d, %v", topics, last, err)
	}
	events := s.events("a", "b", "c")
	events[1].Topic = "bills"
	s.append(t, events...)
	topics, last, err = e.EventTopics(t.Context(), d.Cut)
	if err != nil || !slices.Equal(topics, []string{"bills", "orders"}) || last != s.tracked(t, events[2].ID).ID {
		t.Errorf("got %v, %d, %v, want both topics and the last id", topics, last, err)
	}
}
