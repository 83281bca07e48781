package storetest

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

func operateCases[TX any]() []testCase[TX] {
	return []testCase[TX]{
		{"a retried event is due and fresh", operateRetry[TX]},
		{"a skipped event is due to be skipped", operateSkip[TX]},
		{"a retry takes back a skip", operateSkipThenRetry[TX]},
		{"a requeued event is fresh", operateRequeue[TX]},
		{"every id gets its answer", operateAnswers[TX]},
		{"without a reason nothing happens", operateNoReason[TX]},
		{"the audit tells who, what and why", operateAudit[TX]},
	}
}

// dead appends events and lets them die.
func (s *suite[TX]) dead(t testing.TB, keys ...string) []waybill.Event {
	t.Helper()
	events := s.events(keys...)
	s.append(t, events...)
	rows := s.hotByID(t)
	guard := s.own(t)
	for _, e := range events {
		s.apply(t, guard, failed(rows[e.ID], true, 0, "refused"))
	}
	return events
}

func wantOutcomes(t *testing.T, results []store.Result, err error, ids []string, outcomes ...string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != len(ids) {
		t.Fatalf("got %d results, want %d", len(results), len(ids))
	}
	for i, result := range results {
		if want := (store.Result{EventID: ids[i], Outcome: outcomes[i]}); result != want {
			t.Errorf("result %d: got %+v, want %+v", i, result, want)
		}
	}
}

var because = store.Action{Actor: "anna", Reason: "it's mended"}

func operateRetry[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	e := s.dead(t, "a")[0]
	results, err := s.Outbox.RetryDead(t.Context(), because, []string{e.ID})
	wantOutcomes(t, results, err, []string{e.ID}, store.OutcomeRetried)
	row := s.tracked(t, e.ID).Row
	if row == nil || row.Status != store.StatusPending || row.Retries != 0 || !row.HasRetry || row.RetryIn > 0 || row.Skip {
		t.Errorf("row: got %+v, want it pending and due", row)
	}
	if !row.Parked {
		t.Error("a verb unparked a row: only the lane's owner may")
	}
	if row.FirstErr != "refused" {
		t.Errorf("the error was forgotten: %+v", row)
	}
	results, err = s.Outbox.RetryDead(t.Context(), because, []string{e.ID})
	wantOutcomes(t, results, err, []string{e.ID}, store.OutcomeNotDead)
}

func operateSkip[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	e := s.dead(t, "a")[0]
	results, err := s.Outbox.SkipDead(t.Context(), because, []string{e.ID})
	wantOutcomes(t, results, err, []string{e.ID}, store.OutcomeSkipped)
	due, err := s.Outbox.FetchDue(t.Context(), allLanes(), 10)
	if err != nil || len(due) != 1 || due[0].Event.ID != e.ID {
		t.Fatalf("due: got %+v, %v, want the skipped one", due, err)
	}
	row := due[0]
	if !row.Skip || !row.Parked || row.Status != store.StatusDead {
		t.Errorf("row: got %+v, want skip set and nothing else changed", row)
	}
	found := row.Event
	found.Data, found.Headers = e.Data, e.Headers // which may be left out
	s.wantEvent(t, "fetch due", found, e)
	// The marker itself may be refused, and is then tried again.
	guard := s.own(t)
	s.apply(t, guard, failed(row, false, time.Hour, "marker refused"))
	if row := s.tracked(t, e.ID).Row; row == nil || !row.Skip || !row.HasRetry || row.RetryIn <= 0 {
		t.Errorf("after the marker was refused: got %+v, want skip kept and a later try", row)
	}
	change := settled(row)
	change.Settled[0].Outcome = store.StatusSkipped
	s.apply(t, guard, change)
	if got := s.tracked(t, e.ID).Status; got != store.StatusSkipped {
		t.Errorf("status: got %s, want SKIPPED", got)
	}
}

func operateSkipThenRetry[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	e := s.dead(t, "a")[0]
	results, err := s.Outbox.SkipDead(t.Context(), because, []string{e.ID})
	wantOutcomes(t, results, err, []string{e.ID}, store.OutcomeSkipped)
	results, err = s.Outbox.RetryDead(t.Context(), because, []string{e.ID})
	wantOutcomes(t, results, err, []string{e.ID}, store.OutcomeRetried)
	if row := s.tracked(t, e.ID).Row; row == nil || row.Skip || row.Status != store.StatusPending {
		t.Errorf("row: got %+v, want it pending and not skipped", row)
	}
}

func operateRequeue[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	e := s.event("a")
	s.append(t, e)
	before := s.row(t, e.ID)
	guard := s.own(t)
	s.apply(t, guard, failed(before, false, -time.Second, "x"))
	s.apply(t, guard, settled(before))
	results, err := s.Outbox.Requeue(t.Context(), because, []string{e.ID})
	wantOutcomes(t, results, err, []string{e.ID}, store.OutcomeQueued)
	row := s.row(t, e.ID)
	if row.ID != before.ID || row.Lane != before.Lane || row.KeyHash != before.KeyHash || row.TopicHash != before.TopicHash {
		t.Errorf("row: got %+v, want the places of %+v", row, before)
	}
	if row.Status != store.StatusPending || row.Parked || row.Retries != 0 || row.FirstErr != "" || !row.HasRetry || row.RetryIn > 0 {
		t.Errorf("row: got %+v, want a fresh one that is due", row)
	}
	results, err = s.Outbox.Requeue(t.Context(), because, []string{e.ID})
	wantOutcomes(t, results, err, []string{e.ID}, store.OutcomeAlreadyPending)
}

func operateAnswers[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	dead := s.dead(t, "a", "b")
	pending, sent := s.event("c"), s.event("d")
	s.append(t, pending, sent)
	s.apply(t, s.own(t), settled(s.row(t, sent.ID)))
	ids := []string{sent.ID, dead[1].ID, "missing", pending.ID, dead[0].ID}
	results, err := s.Outbox.Requeue(t.Context(), because, ids)
	wantOutcomes(t, results, err, ids,
		store.OutcomeQueued, store.OutcomeAlreadyPending, store.OutcomeGone, store.OutcomeAlreadyPending, store.OutcomeAlreadyPending)
	s.apply(t, s.own(t), settled(s.row(t, sent.ID)))
	results, err = s.Outbox.SkipDead(t.Context(), because, ids[:2])
	wantOutcomes(t, results, err, ids[:2], store.OutcomeNotDead, store.OutcomeSkipped)
	results, err = s.Outbox.RetryDead(t.Context(), because, ids)
	wantOutcomes(t, results, err, ids,
		store.OutcomeNotDead, store.OutcomeRetried, store.OutcomeGone, store.OutcomeNotDead, store.OutcomeRetried)
	results, err = s.Outbox.RetryDead(t.Context(), because, nil)
	wantOutcomes(t, results, err, nil)
}

func operateNoReason[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	ids := []string{s.dead(t, "a")[0].ID}
	silent := store.Action{Actor: "anna"}
	_, retry := s.Outbox.RetryDead(t.Context(), silent, ids)
	_, skip := s.Outbox.SkipDead(t.Context(), silent, ids)
	_, requeue := s.Outbox.Requeue(t.Context(), silent, ids)
	for _, err := range []error{retry, skip, requeue} {
		if !errors.Is(err, store.ErrNoReason) {
			t.Errorf("got error %v, want ErrNoReason", err)
		}
	}
	if row := s.tracked(t, ids[0]).Row; row.Status != store.StatusDead || row.HasRetry || row.Skip {
		t.Errorf("something happened: %+v", row)
	}
	if entries, err := s.Outbox.Audit(t.Context(), 10); err != nil || len(entries) != 0 {
		t.Errorf("audit: got %v, %v, want nothing", entries, err)
	}
}

func operateAudit[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	dead := s.dead(t, "a", "b")
	sent := s.event("c")
	s.append(t, sent)
	s.apply(t, s.own(t), settled(s.row(t, sent.ID)))
	if _, err := s.Outbox.RetryDead(t.Context(), because, []string{dead[0].ID, "missing", sent.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Outbox.SkipDead(t.Context(), because, []string{dead[1].ID}); err != nil {
		t.Fatal(err)
	}
	named := because
	named.Verb = "replay"
	if _, err := s.Outbox.Requeue(t.Context(), named, []string{sent.ID, dead[0].ID}); err != nil {
		t.Fatal(err)
	}
	entries, err := s.Outbox.Audit(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, entry := range entries {
		got = append(got, entry.Verb+" "+entry.Target)
		if entry.Actor != because.Actor || entry.Reason != because.Reason {
			t.Errorf("entry: got %+v, want actor and reason of %+v", entry, because)
		}
		if entry.At.IsZero() || entry.At.Location() != time.UTC {
			t.Errorf("entry is at %v, want a time in UTC", entry.At)
		}
		for _, text := range []string{entry.Before, entry.After} {
			if text != "" && !json.Valid([]byte(text)) {
				t.Errorf("entry has %q, want JSON", text)
			}
		}
	}
	if want := []string{"replay " + sent.ID, "dead skip " + dead[1].ID, "dead retry " + dead[0].ID}; !slices.Equal(got, want) {
		t.Errorf("audit: got %v, want %v", got, want)
	}
	if newest, err := s.Outbox.Audit(t.Context(), 1); err != nil || len(newest) != 1 || newest[0].Verb != "replay" {
		t.Errorf("the newest entry: got %+v, %v", newest, err)
	}
}
