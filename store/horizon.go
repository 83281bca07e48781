package store

import (
	"context"
	"time"
)

// HorizonTx tells a consumer what its group has forgotten.
type HorizonTx interface {
	// Horizon returns the time up to which the group may have forgotten what it
	// consumed: the zero time as long as no cleanup has removed anything. It stays
	// so until the transaction ends: a cleanup waits. It is called before anything
	// else of consumed_event is touched.
	Horizon(ctx context.Context, group string) (time.Time, error)
}
