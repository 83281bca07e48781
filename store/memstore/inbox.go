package memstore

import (
	"context"
	"errors"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

type consumedKey struct{ group, eventID string }

type consumedRow struct{ consumed store.Consumed }

type inboxTables struct {
	consumed map[consumedKey]consumedRow
	progress map[progressKey]store.Progress
	held     map[heldKey]heldRow
	byKey    map[groupKey]map[string]struct{} // event ids
	lastSeq  int64
	readers  map[store.ReaderKey]readerRow
	members  map[memberKey]time.Time // expiry
	effects  map[effectKey]effectRow
	horizons map[string]time.Time // by group
}

func (i *inboxTables) init() {
	i.consumed = make(map[consumedKey]consumedRow)
	i.progress = make(map[progressKey]store.Progress)
	i.held = make(map[heldKey]heldRow)
	i.byKey = make(map[groupKey]map[string]struct{})
	i.readers = make(map[store.ReaderKey]readerRow)
	i.members = make(map[memberKey]time.Time)
	i.effects = make(map[effectKey]effectRow)
	i.horizons = make(map[string]time.Time)
}

type inboxTx struct{ *Tx }

// BeginInbox starts a consumer transaction.
func (s *Store) BeginInbox(ctx context.Context) (store.InboxTx[*Tx], error) {
	tx, err := s.begin(ctx, "begin inbox")
	if err != nil {
		return nil, err
	}
	return inboxTx{tx}, nil
}

func (tx inboxTx) Handle() *Tx { return tx.Tx }

func (tx inboxTx) Abort() {
	tx.store.mu.Lock()
	defer tx.store.mu.Unlock()
	if !tx.isAborted && tx.ended == nil {
		tx.isAborted = true
		close(tx.aborted)
	}
}

func (tx inboxTx) Savepoint(ctx context.Context) error {
	return tx.call(ctx, "savepoint", "", func() error {
		tx.saved = &savepoint{writes: tx.writes.clone(), locks: len(tx.locks)}
		return nil
	})
}

func (tx inboxTx) Release(ctx context.Context) error {
	return tx.call(ctx, "release savepoint", "", func() error {
		if tx.saved == nil {
			return errNoSavepoint
		}
		tx.saved = nil
		return nil
	})
}

// RollbackTo undoes the writes and, as PostgreSQL does, lets go of the locks
// taken since the savepoint. The savepoint itself stays.
func (tx inboxTx) RollbackTo(ctx context.Context) error {
	return tx.call(ctx, "rollback to savepoint", "", func() error {
		if tx.saved == nil {
			return errNoSavepoint
		}
		tx.writes = tx.saved.writes.clone()
		tx.unlockFrom(tx.saved.locks)
		return nil
	})
}

// Sound says why the transaction cannot be used any more.
func (tx inboxTx) Sound() error {
	return tx.store.locked(tx.usable)
}

var errNoSavepoint = errors.New("there is no savepoint")

// MarkConsumed inserts the row, or counts a duplicate.
func (tx inboxTx) MarkConsumed(ctx context.Context, consumed store.Consumed) (first bool, err error) {
	key := consumedKey{consumed.Group, consumed.Event.ID}
	err = tx.callLocked(ctx, "mark consumed", key.eventID, lockKey{"consumed", key.group, key.eventID, ""}, func() error {
		if err := tx.store.needInbox(); err != nil {
			return err
		}
		row, found := tx.consumed(key)
		if found {
			row.consumed.Duplicates++
		} else {
			first = true
			row.consumed = consumed
			row.consumed.Event = identity(consumed.Event)
			row.consumed.ConsumedAt = tx.store.now()
			row.consumed.Duplicates = 0
		}
		tx.writes.consumed[key] = &row
		return nil
	})
	return first && err == nil, err
}

// MarkAll marks the events one by one.
func (tx inboxTx) MarkAll(ctx context.Context, consumed []store.Consumed) ([]bool, error) {
	first := make([]bool, len(consumed))
	for i := range consumed {
		var err error
		if first[i], err = tx.MarkConsumed(ctx, consumed[i]); err != nil {
			return nil, err
		}
	}
	return first, nil
}

// Unmark takes back marks.
func (tx inboxTx) Unmark(ctx context.Context, group string, eventIDs []string) error {
	return tx.call(ctx, "unmark", group, func() error {
		for _, id := range eventIDs {
			tx.writes.consumed[consumedKey{group, id}] = nil
		}
		return nil
	})
}

// IsConsumed reports whether the group has consumed the id.
func (tx inboxTx) IsConsumed(ctx context.Context, group, eventID string, count bool) (found bool, err error) {
	key := consumedKey{group, eventID}
	look := func() error {
		if err := tx.store.needInbox(); err != nil {
			return err
		}
		var row consumedRow
		row, found = tx.consumed(key)
		if found && count {
			row.consumed.Duplicates++
			tx.writes.consumed[key] = &row
		}
		return nil
	}
	if count {
		err = tx.callLocked(ctx, "is consumed", eventID, lockKey{"consumed", group, eventID, ""}, look)
	} else {
		err = tx.call(ctx, "is consumed", eventID, look)
	}
	return found, err
}

// Record adds an entry to the audit.
func (tx inboxTx) Record(ctx context.Context, entry store.AuditEntry) error {
	return tx.call(ctx, "record", entry.Target, func() error {
		if !tx.store.made {
			return store.ErrNoSchema
		}
		entry.At = tx.store.now()
		tx.writes.audit = append(tx.writes.audit, entry)
		return nil
	})
}

func (tx *Tx) consumed(key consumedKey) (consumedRow, bool) {
	if row, ok := tx.writes.consumed[key]; ok {
		if row == nil {
			return consumedRow{}, false
		}
		return *row, true
	}
	row, ok := tx.store.inbox.consumed[key]
	return row, ok
}

// identity is what the inbox tables keep of an event in columns.
func identity(e waybill.Event) waybill.Event {
	return waybill.Event{
		ID: e.ID, Type: e.Type, TenantID: e.TenantID,
		AggregateType: e.AggregateType, AggregateID: e.AggregateID, AggregateVersion: e.AggregateVersion,
	}
}
