package pgwal

import (
	"context"
	"sync"

	"github.com/waybillhq/waybill/cdc"
)

// backlogRoom bounds what was read and not taken, in batches of up to cdc.MaxIDs
// ids. Beyond it the log is not read; feedback is sent all the same. Tests lower it.
var backlogRoom = 16

// backlog is what was read from the log and not taken by Next. Small transactions
// are put together while nobody takes them.
type backlog struct {
	room    int // batches
	mu      sync.Mutex
	batches []cdc.Batch
	err     error         // why no more will come
	filled  chan struct{} // capacity 1: something was put
	emptied chan struct{} // capacity 1: something was taken
}

func newBacklog() *backlog {
	return &backlog{room: backlogRoom, filled: make(chan struct{}, 1), emptied: make(chan struct{}, 1)}
}

func (b *backlog) put(next cdc.Batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return
	}
	if last := len(b.batches) - 1; last >= 0 && joins(b.batches[last], next) {
		b.batches[last] = join(b.batches[last], next)
	} else {
		b.batches = append(b.batches, next)
	}
	signal(b.filled)
}

// joins reports whether next can become part of the batch before it: both are of
// whole transactions, and small.
func joins(before, next cdc.Batch) bool {
	return before.Position != "" && next.Position != "" && len(before.IDs)+len(next.IDs) <= cdc.MaxIDs
}

func join(before, next cdc.Batch) cdc.Batch {
	return cdc.Batch{
		IDs:         append(before.IDs, next.IDs...),
		Position:    next.Position,
		Committed:   next.Committed,
		Marks:       append(before.Marks, next.Marks...),
		Truncates:   before.Truncates + next.Truncates,
		Undecodable: before.Undecodable + next.Undecodable,
	}
}

// full reports whether the log must not be read for now.
func (b *backlog) full() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.batches) >= b.room
}

// end says that no more will come. What was put before is taken first; the first
// end counts.
func (b *backlog) end(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
	}
	signal(b.filled)
}

// close ends the backlog, and forgets what was not taken.
func (b *backlog) close() {
	b.end(errClosed)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.batches = nil
}

func (b *backlog) take(ctx context.Context) (cdc.Batch, error) {
	for {
		if batch, err, ok := b.pop(); ok {
			return batch, err
		}
		select {
		case <-b.filled:
		case <-ctx.Done():
			return cdc.Batch{}, ctx.Err()
		}
	}
}

func (b *backlog) pop() (batch cdc.Batch, err error, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.batches) == 0 {
		if b.err != nil {
			signal(b.filled) // for the next call
		}
		return cdc.Batch{}, b.err, b.err != nil
	}
	batch = b.batches[0]
	b.batches[0] = cdc.Batch{}
	b.batches = b.batches[1:]
	if len(b.batches) > 0 || b.err != nil {
		signal(b.filled)
	}
	signal(b.emptied)
	return batch, nil, true
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
