package inbox

import (
	"context"
	"math/rand/v2"
	"time"
)

// now is the process's clock. It measures durations and deadlines that concern
// this process alone; schedules and leases go by the database's.
func now() time.Time { return time.Now() }

// pauseFor waits, and reports false when ctx ended first.
func pauseFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// backoff doubles from first to last with the number of failures, and then
// takes a random part, at least a half, so that several processes spread.
func backoff(failures int, first, last time.Duration) time.Duration {
	d := first
	for i := 1; i < failures && d < last; i++ {
		d *= 2
	}
	d = min(d, last)
	return d/2 + rand.N(d/2+1)
}

// waitFor waits for a value a little longer.
func waitFor[T any](values <-chan T, d time.Duration) (value T, ok bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case value = <-values:
		return value, true
	case <-timer.C:
		return value, false
	}
}
