package postgres_test

import (
	"testing"
	"time"
)

func clock() time.Time { return time.Now().UTC() }

const patience = 90 * time.Second

// until asks again and again until the condition holds.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, patience)
		}
		pause := time.NewTimer(5 * time.Millisecond)
		select {
		case <-pause.C:
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
	}
}
