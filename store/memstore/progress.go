package memstore

import (
	"cmp"
	"context"
	"slices"

	"github.com/waybillhq/waybill/store"
)

type progressKey struct {
	group     string
	aggregate store.Aggregate
}

func (k progressKey) lock() lockKey {
	a := k.aggregate
	return lockKey{"progress", k.group, a.TenantID + "\x00" + a.Type, a.ID}
}

func (k progressKey) String() string { return k.aggregate.Type + "/" + k.aggregate.ID }

// ReadProgress returns the progress of each aggregate.
func (tx inboxTx) ReadProgress(ctx context.Context, group string, aggregates []store.Aggregate) ([]store.Progress, error) {
	found := make([]store.Progress, len(aggregates))
	err := tx.call(ctx, "read progress", group, func() error {
		if err := tx.store.needInbox(); err != nil {
			return err
		}
		for i, aggregate := range aggregates {
			found[i] = tx.progress(progressKey{group, aggregate})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// LockProgress locks an aggregate's row and returns it.
func (tx inboxTx) LockProgress(ctx context.Context, group string, aggregate store.Aggregate) (found store.Progress, err error) {
	key := progressKey{group, aggregate}
	err = tx.callLocked(ctx, "lock progress", key.String(), key.lock(), func() error {
		if err := tx.store.needInbox(); err != nil {
			return err
		}
		found = tx.progress(key)
		return nil
	})
	return found, err
}

// AdvanceProgress makes the steps, lowest aggregate first, and wakes what waited
// for them.
func (tx inboxTx) AdvanceProgress(ctx context.Context, group string, advances []store.Advance) (woken int, err error) {
	for _, step := range sortAdvances(advances) {
		key := progressKey{group, step.Aggregate}
		err := tx.callLocked(ctx, "advance progress", key.String(), key.lock(), func() error {
			if err := tx.store.needInbox(); err != nil {
				return err
			}
			if tx.progress(key).Version != step.From {
				return store.ErrMoved
			}
			tx.writes.progress[key] = store.Progress{Aggregate: step.Aggregate, Version: step.To, EventID: step.EventID}
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	err = tx.call(ctx, "wake", group, func() error {
		woken = tx.wake(group, advances)
		return nil
	})
	return woken, err
}

func (tx inboxTx) wake(group string, advances []store.Advance) (woken int) {
	next := make(map[store.Aggregate]int64, len(advances))
	for _, step := range advances {
		next[step.Aggregate] = step.To + 1
	}
	look := func(key heldKey) {
		row, found := tx.held(key)
		if !found || key.group != group || row.held.State != store.HeldWaiting {
			return
		}
		e := &row.held.Event
		if e.AggregateVersion > 0 && e.AggregateVersion <= next[store.Aggregate{TenantID: e.TenantID, Type: e.AggregateType, ID: e.AggregateID}] {
			row.held.State = store.HeldBlocked
			tx.writes.held[key] = &row
			woken++
		}
	}
	for key := range tx.store.inbox.held {
		look(key)
	}
	for key := range tx.writes.held {
		look(key)
	}
	return woken
}

// progress returns a row as the transaction sees it.
func (tx *Tx) progress(key progressKey) store.Progress {
	row, own := tx.writes.progress[key]
	if !own {
		row = tx.store.inbox.progress[key]
	}
	row.Aggregate = key.aggregate
	return row
}

// FindProgress returns the progress of each aggregate.
func (s *Store) FindProgress(ctx context.Context, group string, aggregates []store.Aggregate) ([]store.Progress, error) {
	found := make([]store.Progress, len(aggregates))
	err := s.call(ctx, "find progress", func() error {
		if err := s.needInbox(); err != nil {
			return err
		}
		for i, aggregate := range aggregates {
			found[i] = s.inbox.progress[progressKey{group, aggregate}]
			found[i].Aggregate = aggregate
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

func sortAdvances(advances []store.Advance) []store.Advance {
	return slices.SortedFunc(slices.Values(advances), func(x, y store.Advance) int {
		a, b := x.Aggregate, y.Aggregate
		return cmp.Or(cmp.Compare(a.TenantID, b.TenantID), cmp.Compare(a.Type, b.Type), cmp.Compare(a.ID, b.ID))
	})
}
