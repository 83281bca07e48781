package ops

import (
	"context"
	"time"
)

// now is used to measure how long something took, and for nothing else.
func now() time.Time { return time.Now() }

// rest waits and reports whether ctx is still alive.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
