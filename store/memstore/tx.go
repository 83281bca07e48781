package memstore

import (
	"context"
	"database/sql"
	"maps"
	"slices"

	"github.com/waybillhq/waybill/store"
)

// Tx is a transaction. Like those of database/sql it belongs to one goroutine,
// and ends by itself, rolled back, when the context it was begun with ends.
type Tx struct {
	store   *Store
	aborted chan struct{}
	over    func() error    // of the context it was begun with
	done    <-chan struct{} // of the same
	stop    func() bool     // ends the watch on it

	// Guarded by store.mu.
	ended     error // why no method works any more
	writes    writes
	saved     *savepoint
	locks     []lockKey
	waitsFor  *Tx
	number    uint64 // given at the first insert of an event
	isAborted bool
}

// writes are what the transaction will do when it commits.
type writes struct {
	events   map[string]eventRow
	consumed map[consumedKey]*consumedRow // nil: deleted
	progress map[progressKey]store.Progress
	held     map[heldKey]*heldRow     // nil: deleted
	effects  map[effectKey]*effectRow // nil: deleted
	data     map[dataKey]*string      // nil: deleted
	audit    []store.AuditEntry
}

type savepoint struct {
	writes writes
	locks  int
}

func (w *writes) clone() writes {
	return writes{maps.Clone(w.events), maps.Clone(w.consumed), maps.Clone(w.progress), maps.Clone(w.held), maps.Clone(w.effects), maps.Clone(w.data), slices.Clone(w.audit)}
}

// Begin starts a transaction. It ends, rolled back, with ctx.
func (s *Store) Begin(ctx context.Context) (*Tx, error) {
	return s.begin(ctx, "begin")
}

func (s *Store) begin(ctx context.Context, op string) (*Tx, error) {
	if err := s.allow(ctx, op); err != nil {
		return nil, failure(op, "", err)
	}
	tx := &Tx{
		store:   s,
		aborted: make(chan struct{}),
		over:    ctx.Err,
		done:    ctx.Done(),
		writes: writes{
			events:   make(map[string]eventRow),
			consumed: make(map[consumedKey]*consumedRow),
			progress: make(map[progressKey]store.Progress),
			held:     make(map[heldKey]*heldRow),
			effects:  make(map[effectKey]*effectRow),
			data:     make(map[dataKey]*string),
		},
	}
	tx.stop = context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		tx.end(ctx.Err())
	})
	return tx, nil
}

// Commit makes the transaction's writes visible, all at once.
func (tx *Tx) Commit(ctx context.Context) error {
	s := tx.store
	err := s.allow(ctx, "commit")
	if err == nil {
		err = s.locked(func() error {
			if err := tx.usable(); err != nil {
				return err
			}
			s.applyWrites(&tx.writes)
			tx.end(sql.ErrTxDone)
			return nil
		})
	}
	tx.stop()
	if err == nil {
		err = s.answer("commit")
	} else {
		_ = s.locked(func() error { tx.end(sql.ErrTxDone); return nil })
	}
	return failure("commit", "", err)
}

// Rollback undoes the transaction. After Commit it does nothing.
func (tx *Tx) Rollback(ctx context.Context) error {
	tx.stop()
	_ = tx.store.locked(func() error { tx.end(sql.ErrTxDone); return nil })
	return nil
}

// end forgets the writes and lets go of the locks. The first cause stays. The
// mutex is held.
func (tx *Tx) end(cause error) {
	if tx.ended != nil {
		return
	}
	tx.ended = cause
	tx.writes, tx.saved = writes{}, nil
	tx.unlockFrom(0)
	delete(tx.store.writers, tx.number)
}

// usable reports why the transaction cannot go on. The mutex is held.
func (tx *Tx) usable() error {
	if tx.isAborted {
		return store.ErrAborted
	}
	if tx.ended == nil {
		return tx.over()
	}
	return tx.ended
}

// call runs one operation of the transaction.
func (tx *Tx) call(ctx context.Context, op, key string, run func() error) error {
	err := tx.store.allow(ctx, op)
	if err == nil {
		err = tx.store.locked(func() error {
			if err := tx.usable(); err != nil {
				return err
			}
			return run()
		})
	}
	if err == nil {
		err = tx.store.answer(op)
	}
	return failure(op, key, err)
}

// callLocked runs one operation of the transaction that first locks a row.
func (tx *Tx) callLocked(ctx context.Context, op, key string, row lockKey, run func() error) error {
	if err := tx.store.allow(ctx, op); err != nil {
		return failure(op, key, err)
	}
	if _, err := tx.lock(ctx, row); err != nil {
		return failure(op, key, err)
	}
	err := tx.store.locked(func() error {
		if err := tx.usable(); err != nil {
			return err
		}
		return run()
	})
	if err == nil {
		err = tx.store.answer(op)
	}
	return failure(op, key, err)
}

func (s *Store) applyWrites(w *writes) {
	var ids []int64
	// In order of id, so that the indexes grow at their end.
	for _, row := range slices.SortedFunc(maps.Values(w.events), func(a, b eventRow) int { return int(a.id - b.id) }) {
		ids = append(ids, row.id)
		s.outbox.insert(row)
		if s.meta.Head && row.headed {
			s.outbox.setHead(row)
		}
	}
	if s.config.Log != nil && len(ids) > 0 {
		s.config.Log(ids)
	}
	for key, row := range w.consumed {
		if row == nil {
			delete(s.inbox.consumed, key)
			continue
		}
		s.inbox.consumed[key] = *row
	}
	maps.Copy(s.inbox.progress, w.progress)
	for key, row := range w.held {
		s.inbox.setHeld(key, row)
	}
	for key, row := range w.effects {
		if row == nil {
			delete(s.inbox.effects, key)
		} else {
			s.inbox.effects[key] = *row
		}
	}
	s.outbox.audit = append(s.outbox.audit, w.audit...)
	for key, value := range w.data {
		if value == nil {
			delete(s.data, key)
		} else {
			s.data[key] = *value
		}
	}
}
