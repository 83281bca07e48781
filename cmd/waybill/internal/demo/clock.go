package demo

import (
	"context"
	"time"
)

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

// eventually asks every few milliseconds until the answer is yes, an error, or
// the time is over; then it returns false.
func eventually(ctx context.Context, within time.Duration, done func() (bool, error)) (bool, error) {
	deadline := now().Add(within)
	for {
		if ok, err := done(); ok || err != nil {
			return ok, err
		}
		if now().After(deadline) {
			return false, nil
		}
		if !pause(ctx, 5*time.Millisecond) {
			return false, context.Cause(ctx)
		}
	}
}
