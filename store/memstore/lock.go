package memstore

import (
	"context"
	"errors"

	"github.com/waybillhq/waybill/store"
)

// ErrDeadlock ends a transaction that waits, in a circle, for itself.
var ErrDeadlock = errors.New("deadlock detected")

type lockKey struct{ table, a, b, c string }

type rowLock struct {
	owner *Tx
	freed chan struct{} // closed when the owner lets go
}

// lock takes a row's lock for the transaction, waiting for its owner. It
// reports whether the lock was taken now, and not held already. The mutex must
// not be held.
func (tx *Tx) lock(ctx context.Context, key lockKey) (taken bool, err error) {
	s := tx.store
	for {
		s.mu.Lock()
		if err := tx.usable(); err != nil {
			s.mu.Unlock()
			return false, err
		}
		held := s.locks[key]
		if held == nil {
			s.locks[key] = &rowLock{owner: tx, freed: make(chan struct{})}
			tx.locks = append(tx.locks, key)
			s.mu.Unlock()
			return true, nil
		}
		if held.owner == tx {
			s.mu.Unlock()
			return false, nil
		}
		if waitsFor(held.owner, tx) {
			tx.end(ErrDeadlock)
			s.mu.Unlock()
			return false, ErrDeadlock
		}
		tx.waitsFor = held.owner
		s.mu.Unlock()

		select {
		case <-held.freed:
		case <-tx.aborted:
			err = store.ErrAborted
		case <-tx.done:
			err = tx.over()
		case <-ctx.Done():
			err = ctx.Err()
		}
		s.mu.Lock()
		tx.waitsFor = nil
		s.mu.Unlock()
		if err != nil {
			return false, err
		}
	}
}

func waitsFor(waiter, target *Tx) bool {
	for ; waiter != nil; waiter = waiter.waitsFor {
		if waiter == target {
			return true
		}
	}
	return false
}

// unlockFrom lets go of the locks taken since there were n. The mutex is held.
func (tx *Tx) unlockFrom(n int) {
	for _, key := range tx.locks[n:] {
		close(tx.store.locks[key].freed)
		delete(tx.store.locks, key)
	}
	tx.locks = tx.locks[:n]
}
