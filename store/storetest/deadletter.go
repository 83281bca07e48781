package storetest

import (
	"testing"
	"time"

	"github.com/waybillhq/waybill/store"
)

func deadLetterCases[TX any]() []testCase[TX] {
	return []testCase[TX]{
		{"dead letters are sent once for each death", deadLetterSent[TX]},
		{"a dead letter that is given up is not asked for", deadLetterGivenUp[TX]},
		{"a forced event stays forced until it is updated", heldForced[TX]},
	}
}

func (s *suite[TX]) unsent(t testing.TB, age time.Duration, limit int) []store.Held {
	t.Helper()
	found, err := s.Consumer.UnsentDead(t.Context(), group, age, 0, limit)
	if err != nil {
		t.Fatalf("unsent dead: %v", err)
	}
	return found
}

func (s *suite[TX]) noteDeadLetter(t testing.TB, held store.Held, note string) {
	t.Helper()
	if err := s.Consumer.NoteDeadLetter(t.Context(), held, note); err != nil {
		t.Fatalf("note dead letter: %v", err)
	}
}

func (s *suite[TX]) updateHeld(t testing.TB, held store.Held) {
	t.Helper()
	s.inInbox(t, func(tx store.InboxTx[TX]) {
		if found, err := tx.UpdateHeld(t.Context(), held); err != nil || !found {
			t.Fatalf("update held: got %t, %v", found, err)
		}
	})
}

func dead(id, key string) store.Held {
	held := kept(id, key, store.HeldDead)
	held.Attempts, held.LastErr = 3, "refused"
	return held
}

func deadLetterSent[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	s.hold(t, dead("1", "k"), kept("retry", "l", store.HeldRetry), dead("2", "k"), dead("3", "m"))
	found := s.unsent(t, 0, 0)
	wantHeldIDs(t, "unsent", found, "1", "2", "3")
	wantHeldIDs(t, "unsent, at most two", s.unsent(t, 0, 2), "1", "2")
	wantHeldIDs(t, "unsent for an hour", s.unsent(t, time.Hour, 0))
	behind, err := s.Consumer.UnsentDead(t.Context(), group, 0, found[0].Seq, 1)
	if err != nil {
		t.Fatal(err)
	}
	wantHeldIDs(t, "unsent behind the first, at most one", behind, "2")
	if first := found[0]; first.LastErr != "refused" || first.Attempts != 3 || first.FirstFailedAt.IsZero() || string(first.Record.Value) != "1" {
		t.Errorf("got %+v, want the whole held event", first)
	}
	s.noteDeadLetter(t, found[0], "")
	wantHeldIDs(t, "after the first was sent", s.unsent(t, 0, 0), "2", "3")
	if got := s.listHeld(t, store.HeldFilter{EventID: "1"})[0]; got.DeadLetterAt.IsZero() || got.DeadLetterNote != "" {
		t.Errorf("sent at %v, note %q", got.DeadLetterAt, got.DeadLetterNote)
	}

	// It is tried again and dies again: another death, another letter.
	again := found[0]
	again.State = store.HeldRetry
	s.updateHeld(t, again)
	if got := s.listHeld(t, store.HeldFilter{EventID: "1"})[0]; !got.DeadLetterAt.IsZero() {
		t.Errorf("a retry is remembered as sent at %v", got.DeadLetterAt)
	}
	again.State, again.Attempts, again.LastErr = store.HeldDead, 4, "refused again"
	s.updateHeld(t, again)
	former := found[0]
	former.LastFailedAt = former.LastFailedAt.Add(-time.Second)
	s.noteDeadLetter(t, former, "") // of another death
	wantHeldIDs(t, "after another death", s.unsent(t, 0, 0), "1", "2", "3")
}

func deadLetterGivenUp[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	s.hold(t, dead("1", "k"))
	s.noteDeadLetter(t, s.unsent(t, 0, 0)[0], "too large")
	wantHeldIDs(t, "unsent", s.unsent(t, 0, 0))
	if got := s.listHeld(t, store.HeldFilter{EventID: "1"})[0]; !got.DeadLetterAt.IsZero() || got.DeadLetterNote != "too large" {
		t.Errorf("sent at %v, note %q", got.DeadLetterAt, got.DeadLetterNote)
	}
}

func heldForced[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	s.hold(t, dead("1", "k"))
	held := s.listHeld(t, store.HeldFilter{})[0]
	if held.Forced {
		t.Error("forced from the beginning")
	}
	for _, forced := range []bool{true, false} {
		held.Forced, held.State = forced, store.HeldRetry
		s.updateHeld(t, held)
		if got := s.listHeld(t, store.HeldFilter{})[0]; got.Forced != forced {
			t.Errorf("forced: got %t, want %t", got.Forced, forced)
		}
	}
}
