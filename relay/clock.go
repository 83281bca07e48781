package relay

import (
	"context"
	"math/rand/v2"
	"time"
)

// Local time serves to pace work and to stay inside a lease, measured from the
// moment its renewal was sent. What the tables hold is the database's time.
func now() time.Time { return time.Now() }

// backoff returns a random duration of at most low doubled n times, at most
// high: "full jitter" as in Brooker, "Exponential Backoff and Jitter" (2015).
func backoff(low, high time.Duration, n int) time.Duration {
	d := high
	if n < 40 && low<<n > 0 && low<<n < high {
		d = low << n
	}
	return time.Duration(rand.Int64N(int64(d))) + 1
}

// sleep waits, or returns early when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
