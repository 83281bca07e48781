package mybinlog

import (
	"context"
	"time"
)

// The rest of the package reads no clock and makes no timer but these.

func now() time.Time { return time.Now() }

func after(d time.Duration) (<-chan time.Time, func() bool) {
	timer := time.NewTimer(d)
	return timer.C, timer.Stop
}

func sleep(ctx context.Context, d time.Duration) error {
	timer, stop := after(d)
	defer stop()
	select {
	case <-timer:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
