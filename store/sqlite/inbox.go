package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// inboxTx is a consumer's transaction. It holds the one writing connection, so
// whatever the contract asks a lock for is locked from its beginning.
type inboxTx struct {
	writing
	conn   *sql.Conn
	guard  *guardedConn
	cancel context.CancelFunc
	unhook func() bool // what ends the transaction with its context
	saved  bool

	// reached is how far aggregates are, as read or written here: nobody else
	// writes before the end.
	reached map[progressRef]int64

	mu      sync.Mutex // between Abort and Commit
	aborted bool
}

// BeginInbox starts a transaction with BEGIN IMMEDIATE.
func (s *Store) BeginInbox(ctx context.Context) (store.InboxTx[*sql.Tx], error) {
	conn, err := s.acquire(ctx)
	if err != nil {
		return nil, s.failed("begin inbox", "", err)
	}
	var guard *guardedConn
	if err := conn.Raw(func(c any) error { guard = c.(*guardedConn); return nil }); err != nil {
		return nil, s.failed("begin inbox", "", errors.Join(err, conn.Close()))
	}
	ctx, cancel := context.WithCancel(ctx)
	tx, err := conn.BeginTx(withAbort(ctx), nil)
	if err != nil {
		cancel()
		return nil, s.failed("begin inbox", "", errors.Join(err, conn.Close()))
	}
	t := &inboxTx{writing: writing{s, tx}, conn: conn, guard: guard, cancel: cancel, reached: make(map[progressRef]int64)}
	t.unhook = context.AfterFunc(ctx, func() { _ = t.finish() })
	return t, nil
}

// finish rolls back what is not committed, and gives the connection back. It
// waits for a statement that is running.
func (t *inboxTx) finish() error {
	err := t.tx.Rollback()
	if errors.Is(err, sql.ErrTxDone) {
		err = nil
	}
	if closeErr := t.conn.Close(); closeErr != nil && !errors.Is(closeErr, sql.ErrConnDone) && err == nil {
		err = closeErr
	}
	return err
}

// Handle returns the transaction for the handler.
func (t *inboxTx) Handle() *sql.Tx { return t.tx }

// Abort interrupts the running statement, and makes the connection refuse all
// others until the transaction is ended. It waits for a Commit that is under way.
func (t *inboxTx) Abort() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.aborted = true
	t.cancel()
}

func (t *inboxTx) failed(op, key string, err error) error {
	t.mu.Lock()
	aborted := t.aborted
	t.mu.Unlock()
	if err != nil && aborted {
		return &waybill.Error{Op: op, Key: key, Err: store.ErrAborted}
	}
	return t.s.failed(op, key, err)
}

const savepoint = `waybill_event`

// Savepoint begins a part of the transaction, in place of the one before.
func (t *inboxTx) Savepoint(ctx context.Context) error {
	if t.saved {
		if err := t.Release(ctx); err != nil {
			return err
		}
	}
	_, err := t.tx.ExecContext(ctx, `SAVEPOINT `+savepoint)
	t.saved = err == nil
	return t.failed("savepoint", "", err)
}

// Release keeps what was done since Savepoint.
func (t *inboxTx) Release(ctx context.Context) error {
	_, err := t.tx.ExecContext(ctx, `RELEASE `+savepoint)
	t.saved = t.saved && err != nil
	return t.failed("release savepoint", "", err)
}

// RollbackTo undoes what was done since Savepoint; the savepoint stays.
func (t *inboxTx) RollbackTo(ctx context.Context) error {
	clear(t.reached)
	_, err := t.tx.ExecContext(ctx, `ROLLBACK TO `+savepoint)
	return t.failed("rollback to savepoint", "", err)
}

// Sound asks the guard of the connection.
func (t *inboxTx) Sound() error {
	return t.failed("transaction", "", t.guard.sound())
}

// Commit ends the transaction.
func (t *inboxTx) Commit(ctx context.Context) error {
	t.mu.Lock()
	if t.aborted {
		t.mu.Unlock()
		return &waybill.Error{Op: "commit", Err: store.ErrAborted}
	}
	err := ctx.Err()
	if err == nil {
		t.guard.ours = true
		err = t.tx.Commit()
	}
	t.mu.Unlock()
	if err != nil {
		return t.s.failed("commit", "", err)
	}
	_ = t.Rollback(ctx)
	return nil
}

// Rollback undoes what is not committed.
func (t *inboxTx) Rollback(context.Context) error {
	t.unhook()
	err := t.finish()
	t.cancel()
	return t.s.failed("rollback", "", err)
}

const (
	markConsumedSQL = `
INSERT INTO {consumed} (consumer_group, event_id, event_type, tenant_id, aggregate_type, aggregate_id, aggregate_version,
  outcome, topic, partition, position)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
ON CONFLICT (consumer_group, event_id) DO NOTHING`

	countDuplicateSQL = `
UPDATE {consumed} SET duplicates = duplicates + 1, last_duplicate_at = {now}
WHERE consumer_group = ?1 AND event_id = ?2`

	markAllSQL = `
INSERT INTO {consumed} (consumer_group, event_id, event_type, tenant_id, aggregate_type, aggregate_id, aggregate_version,
  outcome, topic, partition, position)
SELECT ?1, w.value ->> 0, ?2, w.value ->> 1, ?3, w.value ->> 2, w.value ->> 3, ?4, ?5, w.value ->> 4, w.value ->> 5
FROM json_each(?6) AS w
WHERE true
ON CONFLICT (consumer_group, event_id) DO NOTHING`

	unmarkSQL = `
DELETE FROM {consumed} WHERE consumer_group = ?1 AND event_id = ?2`

	isConsumedSQL = `
SELECT EXISTS (SELECT 1 FROM {consumed} WHERE consumer_group = ?1 AND event_id = ?2)`
)

// MarkConsumed inserts the row, or counts a duplicate.
func (t *inboxTx) MarkConsumed(ctx context.Context, consumed store.Consumed) (bool, error) {
	e := &consumed.Event
	inserted, err := t.exec(ctx, markConsumedSQL, consumed.Group, e.ID, e.Type, e.TenantID, e.AggregateType, e.AggregateID,
		nonZero(e.AggregateVersion), string(consumed.Outcome), consumed.Topic, consumed.Partition, consumed.Position)
	if err == nil && inserted == 0 {
		_, err = t.exec(ctx, countDuplicateSQL, consumed.Group, e.ID)
	}
	if err != nil {
		return false, t.failed("mark consumed", e.ID, err)
	}
	return inserted > 0, nil
}

// marking is what keeps MarkAll's attempt apart from what was before it.
const marking = `waybill_marking`

// MarkAll takes it that all are new, and goes back when one is not.
func (t *inboxTx) MarkAll(ctx context.Context, consumed []store.Consumed) ([]bool, error) {
	if len(consumed) == 0 {
		return nil, nil
	}
	lists, ok := consumedLists(consumed)
	if !ok {
		return t.markEach(ctx, consumed)
	}
	inserted, err := t.markLists(ctx, consumed[0].Group, lists)
	if err != nil {
		return nil, t.failed("mark all", consumed[0].Group, err)
	}
	if inserted < len(consumed) {
		return t.markEach(ctx, consumed)
	}
	first := make([]bool, len(consumed))
	for i := range first {
		first[i] = true
	}
	return first, nil
}

// markLists returns how many rows were inserted: all, or of no consequence.
func (t *inboxTx) markLists(ctx context.Context, group string, lists map[consumedKind][][6]any) (inserted int, err error) {
	if _, err := t.tx.ExecContext(ctx, `SAVEPOINT `+marking); err != nil {
		return 0, err
	}
	due := 0
	for kind, rows := range lists {
		list, err := json.Marshal(rows)
		if err != nil {
			return 0, err
		}
		n, err := t.exec(ctx, markAllSQL, group, kind.eventType, kind.aggregateType, string(kind.outcome), kind.topic, string(list))
		if err != nil {
			return 0, err
		}
		inserted, due = inserted+int(n), due+len(rows)
		if inserted < due {
			if _, err := t.tx.ExecContext(ctx, `ROLLBACK TO `+marking); err != nil {
				return 0, err
			}
			break
		}
	}
	_, err = t.tx.ExecContext(ctx, `RELEASE `+marking)
	return inserted, err
}

// consumedKind is what rows have in common that one statement inserts; see
// [byType].
type consumedKind struct {
	eventType, aggregateType, topic string
	outcome                         store.Outcome
}

// consumedLists is the rest of the rows for JSON, if they have a form in it: an
// id may be any bytes.
func consumedLists(consumed []store.Consumed) (map[consumedKind][][6]any, bool) {
	lists := make(map[consumedKind][][6]any, 1)
	for i := range consumed {
		c := &consumed[i]
		e := &c.Event
		if !isJSONText(e.ID) || !isJSONText(e.TenantID) || !isJSONText(e.AggregateID) {
			return nil, false
		}
		kind := consumedKind{e.Type, e.AggregateType, c.Topic, c.Outcome}
		lists[kind] = append(lists[kind], [6]any{e.ID, e.TenantID, e.AggregateID, nonZero(e.AggregateVersion), c.Partition, c.Position})
	}
	return lists, true
}

// isJSONText reports whether a text comes out of JSON as it went in.
func isJSONText(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

func (t *inboxTx) markEach(ctx context.Context, consumed []store.Consumed) ([]bool, error) {
	first := make([]bool, len(consumed))
	for i := range consumed {
		var err error
		if first[i], err = t.MarkConsumed(ctx, consumed[i]); err != nil {
			return nil, err
		}
	}
	return first, nil
}

// Unmark takes back marks.
func (t *inboxTx) Unmark(ctx context.Context, group string, eventIDs []string) error {
	for _, id := range eventIDs {
		if _, err := t.exec(ctx, unmarkSQL, group, id); err != nil {
			return t.failed("unmark", id, err)
		}
	}
	return nil
}

// IsConsumed reports whether the group has consumed the id.
func (t *inboxTx) IsConsumed(ctx context.Context, group, eventID string, count bool) (bool, error) {
	if count {
		counted, err := t.exec(ctx, countDuplicateSQL, group, eventID)
		return counted > 0, t.failed("is consumed", eventID, err)
	}
	var found bool
	err := t.scan(ctx, isConsumedSQL, []any{group, eventID}, &found)
	return found, t.failed("is consumed", eventID, err)
}
