package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/waybillhq/waybill/store"
)

func horizonCases[TX any]() []testCase[TX] {
	return []testCase[TX]{
		{"a cleanup moves the horizon", horizonMoves[TX]},
		{"a cleanup waits for who relies on the horizon", horizonWaits[TX]},
	}
}

// consumeInTurn settles events at growing positions: the last is the newest.
func (s *suite[TX]) consumeInTurn(t testing.TB, ids ...string) {
	t.Helper()
	for _, id := range ids {
		consumed := delivered(id)
		s.lastPosition++
		consumed.Position = s.lastPosition
		s.consume(t, consumed)
	}
}

func (s *suite[TX]) horizon(t testing.TB) (at time.Time) {
	t.Helper()
	s.inInbox(t, func(tx store.InboxTx[TX]) {
		var err error
		if at, err = tx.Horizon(t.Context(), group); err != nil {
			t.Fatalf("horizon: %v", err)
		}
	})
	return at
}

func horizonMoves[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	if at := s.horizon(t); !at.IsZero() {
		t.Errorf("before any cleanup: got %v", at)
	}
	s.consumeInTurn(t, "1", "2")
	if n, err := s.Consumer.CleanupConsumed(t.Context(), group, time.Hour, 0); err != nil || n != 0 {
		t.Fatalf("cleanup: got %d, %v, want 0", n, err)
	}
	if at := s.horizon(t); !at.IsZero() {
		t.Errorf("after a cleanup that removed nothing: got %v", at)
	}
	consumed, err := s.Consumer.FindConsumed(t.Context(), "1")
	if err != nil || len(consumed) != 1 {
		t.Fatalf("consumed: got %v, %v", consumed, err)
	}
	if n, err := s.Consumer.CleanupConsumed(t.Context(), group, 0, 0); err != nil || n != 1 {
		t.Fatalf("cleanup: got %d, %v, want 1", n, err)
	}
	at := s.horizon(t)
	if at.Before(consumed[0].ConsumedAt) || at.Location() != time.UTC {
		t.Errorf("horizon: got %v, want it not before %v", at, consumed[0].ConsumedAt)
	}
	s.consumeInTurn(t, "3", "4")
	if _, err := s.Consumer.CleanupConsumed(t.Context(), group, time.Hour, 0); err != nil {
		t.Fatal(err)
	}
	if again := s.horizon(t); again.Before(at) {
		t.Errorf("the horizon went back from %v to %v", at, again)
	}
}

func horizonWaits[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	s.consumeInTurn(t, "1", "2")
	tx := s.beginInbox(t)
	if _, err := tx.Horizon(t.Context(), group); err != nil {
		t.Fatal(err)
	}
	cleaned := make(chan error, 1)
	go func() {
		_, err := s.Consumer.CleanupConsumed(context.WithoutCancel(t.Context()), group, 0, 0)
		cleaned <- err
	}()
	stillWaiting(t, "the cleanup", cleaned)
	if first, err := tx.MarkConsumed(t.Context(), delivered("1")); err != nil || first {
		t.Errorf("a consumed event: first %t, %v, want a duplicate", first, err)
	}
	s.commitInbox(t, tx)
	if err := received(t, "the cleanup", cleaned); err != nil {
		t.Errorf("cleanup: %v", err)
	}
}
