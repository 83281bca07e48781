package waybilltest

import (
	"context"
	"testing"
	"time"
)

// DefaultPatience is how long the Await functions wait when told 0.
const DefaultPatience = 10 * time.Second

const pollEvery = 5 * time.Millisecond

// await calls done until it reports true or patience has passed; it reports
// which.
func await(t testing.TB, patience time.Duration, done func(ctx context.Context) bool) bool {
	t.Helper()
	if patience == 0 {
		patience = DefaultPatience
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for !done(ctx) {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}
