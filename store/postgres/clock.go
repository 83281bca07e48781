package postgres

import (
	"context"
	"math/rand/v2"
	"time"
)

// pause waits about base, doubled for each attempt before, or until ctx ends.
func pause(ctx context.Context, base time.Duration, attempt int) error {
	wait := base << min(attempt, 6)
	timer := time.NewTimer(wait/2 + rand.N(wait))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// cancelTimeout bounds the request to cancel an aborted statement.
const cancelTimeout = 2 * time.Second

// rest lets a server send on for a moment.
func rest() { time.Sleep(time.Millisecond) }
