package brokertest

import (
	"runtime"
	"strings"
	"testing"
	"time"
)

func goroutines() int { return runtime.NumGoroutine() }

// noLeak waits for the number of goroutines to come down to what it was.
func noLeak(t testing.TB, before int) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if goroutines() <= before {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			stacks := make([]byte, 1<<20)
			stacks = stacks[:runtime.Stack(stacks, true)]
			t.Errorf("%d goroutines before the suite, %d after it:\n%s", before, goroutines(), strings.TrimSpace(string(stacks)))
			return
		}
	}
}
