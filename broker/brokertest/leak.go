package brokertest

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// goroutines returns the stacks of all goroutines that mention none of the
// given packages.
func goroutines(except []string) []string {
	dump := make([]byte, 1<<20)
	for {
		n := runtime.Stack(dump, true)
		if n < len(dump) {
			dump = dump[:n]
			break
		}
		dump = make([]byte, 2*len(dump))
	}
	return slices.DeleteFunc(strings.Split(string(dump), "\n\n"), func(stack string) bool {
		return slices.ContainsFunc(except, func(name string) bool { return strings.Contains(stack, name) })
	})
}

// noLeak waits for the number of goroutines to come down to what it was.
func noLeak(t testing.TB, before int, except []string) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		now := goroutines(except)
		if len(now) <= before {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Errorf("%d goroutines before the suite, %d after it:\n%s", before, len(now), strings.Join(now, "\n\n"))
			return
		}
	}
}
