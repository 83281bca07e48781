package main

import (
	"context"
	"time"
)

// now is this process's clock: for ages that people give, and for the doctor,
// who compares it with the database's.
func now() time.Time { return time.Now() }

// pause waits and reports whether ctx is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
