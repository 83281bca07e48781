package lab

import (
	"testing"
	"time"
)

// Until polls for a condition, and fails the test when patience has passed.
func Until(t testing.TB, patience time.Duration, what string, condition func() bool) {
	t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for !condition() {
		select {
		case <-late.C:
			t.Fatalf("never came: %s", what)
		case <-again.C:
		}
	}
}

func now() time.Time { return time.Now() }

func pause() { time.Sleep(10 * time.Millisecond) }
