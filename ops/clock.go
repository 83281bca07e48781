package ops

import (
	"context"
	"time"
)

// now is used to measure how long something took, and for nothing else.
func now() time.Time { return time.Now() }

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
