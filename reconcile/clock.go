package reconcile

import (
	"context"
	"time"
)

// Clock is where the engine takes the time from, and how it waits.
type Clock interface {
	Now() time.Time
	// Wait returns after d, or with the context's error when that ends first.
	Wait(ctx context.Context, d time.Duration) error
}

type wallClock struct{}

func (wallClock) Now() time.Time { return time.Now().UTC() }

func (wallClock) Wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// remaining returns how long a context has, in whole seconds, so that
// statements that name it stay the same; false where it has no end.
func remaining(ctx context.Context) (time.Duration, bool) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0, false
	}
	return time.Until(deadline).Truncate(time.Second) + time.Second, true
}
