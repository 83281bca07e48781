package storetest

import (
	"testing"
	"time"
)

// patience bounds every wait of the suite.
const patience = 3 * time.Minute

// short is a time to live that a case sees the end of.
const short = 400 * time.Millisecond

// eventually asks until the condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, patience)
		}
		pause := time.NewTimer(10 * time.Millisecond)
		select {
		case <-pause.C:
		case <-t.Context().Done():
			t.Fatalf("%s: %v", what, t.Context().Err())
		}
	}
}

// received returns what a goroutine of the case sends.
func received[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case value := <-from:
		return value
	case <-timeout.C:
		t.Fatalf("%s: not within %v", what, patience)
		panic("unreachable")
	}
}

// today is a moment that has microseconds to lose.
func today() time.Time {
	return time.Now().UTC().Truncate(time.Millisecond).Add(123 * time.Microsecond)
}

// stillWaiting fails when the goroutine answers though it has to wait. It gives
// one that does not wait the time to show it; one that does cannot fail here.
func stillWaiting[T any](t *testing.T, what string, from <-chan T) {
	t.Helper()
	grace := time.NewTimer(50 * time.Millisecond)
	defer grace.Stop()
	select {
	case value := <-from:
		t.Fatalf("%s did not wait: %v", what, value)
	case <-grace.C:
	}
}
