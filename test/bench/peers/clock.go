package main

import (
	"context"
	"time"
)

// now is the measuring clock.
func now() time.Time { return time.Now() }

func since(began time.Time) float64 { return now().Sub(began).Seconds() }

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
