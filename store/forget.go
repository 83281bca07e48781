package store

import (
	"context"
	"time"
)

// Forgetter removes what consumers need not remember any more.
type Forgetter interface {
	// CleanupConsumed removes consumed_event rows of a group older than the
	// retention, with their effect calls, never the newest of their partition; it
	// returns how many. In the same transaction it moves the group's horizon to
	// the time before which it removes, having waited for those that read it.
	CleanupConsumed(ctx context.Context, group string, retention time.Duration, limit int) (int, error)
}
