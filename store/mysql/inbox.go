package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// inboxTx is one consumer transaction. Its statements go through the guard of
// its connection like the handler's.
type inboxTx struct {
	ownTx
	sqlTx  *sql.Tx
	conn   *sql.Conn
	guard  *guardedConn
	cancel context.CancelFunc
	unhook func() bool // what ends the transaction with its context
	saved  bool        // there is a savepoint

	mu      sync.Mutex // between Abort and Commit
	aborted bool
}

// BeginInbox starts a consumer transaction at READ COMMITTED.
func (s *Store) BeginInbox(ctx context.Context) (store.InboxTx[*sql.Tx], error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, failure("begin", "", err)
	}
	var guard *guardedConn
	if err := conn.Raw(func(c any) error { guard = c.(*guardedConn); return nil }); err != nil {
		return nil, failure("begin", "", errors.Join(err, conn.Close()))
	}
	ctx, cancel := context.WithCancel(ctx)
	tx, err := conn.BeginTx(withAbort(ctx), nil)
	if err != nil {
		cancel()
		return nil, failure("begin", "", errors.Join(err, conn.Close()))
	}
	t := &inboxTx{ownTx: ownTx{s, tx}, sqlTx: tx, conn: conn, guard: guard, cancel: cancel}
	t.unhook = context.AfterFunc(ctx, func() { _ = t.finish() })
	return t, nil
}

// finish rolls back what is not committed, and gives the connection back. It
// waits for a statement that is running.
func (t *inboxTx) finish() error {
	err := t.sqlTx.Rollback()
	if errors.Is(err, sql.ErrTxDone) {
		err = nil
	}
	if closeErr := t.conn.Close(); closeErr != nil && !errors.Is(closeErr, sql.ErrConnDone) && err == nil {
		err = closeErr
	}
	return err
}

// Handle returns the transaction for the handler.
func (t *inboxTx) Handle() *sql.Tx { return t.sqlTx }

// Abort ends the running statement, and makes the connection refuse all others
// until the transaction is ended. It waits for a Commit that is under way.
func (t *inboxTx) Abort() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.aborted = true
	t.cancel()
}

func (t *inboxTx) isAborted() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.aborted
}

func (t *inboxTx) failed(op, key string, err error) error {
	if err != nil && t.isAborted() {
		err = store.ErrAborted
	}
	return failure(op, key, err)
}

const (
	savepointSQL   = `SAVEPOINT waybill`
	releaseSaveSQL = `RELEASE SAVEPOINT waybill`
	rollbackToSQL  = `ROLLBACK TO SAVEPOINT waybill`
)

var errNoSavepoint = errors.New("there is no savepoint")

// Savepoint marks where RollbackTo goes back to. One that is still there is
// replaced: the server keeps one of each name.
func (t *inboxTx) Savepoint(ctx context.Context) error {
	err := t.control(ctx, "savepoint", savepointSQL)
	t.saved = t.saved || err == nil
	return err
}

// Release keeps what was done since Savepoint.
func (t *inboxTx) Release(ctx context.Context) error {
	if err := t.needSavepoint("release savepoint"); err != nil {
		return err
	}
	t.saved = false
	return t.control(ctx, "release savepoint", releaseSaveSQL)
}

// RollbackTo undoes what was done since Savepoint, which stays. Where the
// server rolled back the whole transaction, or a statement committed it, the
// savepoint is gone, and that is the error.
func (t *inboxTx) RollbackTo(ctx context.Context) error {
	if err := t.needSavepoint("roll back to savepoint"); err != nil {
		return err
	}
	return t.control(ctx, "roll back to savepoint", rollbackToSQL)
}

// Sound asks the guard of the connection.
func (t *inboxTx) Sound() error { return t.failed("transaction", "", t.guard.sound()) }

func (t *inboxTx) needSavepoint(op string) error {
	if t.isAborted() {
		return failure(op, "", store.ErrAborted)
	}
	if !t.saved {
		return failure(op, "", errNoSavepoint)
	}
	return nil
}

func (t *inboxTx) control(ctx context.Context, op, text string) error {
	_, err := t.tx.ExecContext(ctx, text)
	if codeOf(err) == codeNoSavepoint {
		err = fmt.Errorf("%w: %w", errRolledBack, err)
	}
	return t.failed(op, "", err)
}

// Commit commits the transaction.
func (t *inboxTx) Commit(ctx context.Context) error {
	t.mu.Lock()
	if t.aborted {
		t.mu.Unlock()
		return failure("commit", "", store.ErrAborted)
	}
	err := ctx.Err()
	if err == nil {
		t.guard.ours = true
		err = t.sqlTx.Commit()
	}
	t.mu.Unlock()
	if err != nil {
		return failure("commit", "", err)
	}
	_ = t.Rollback(ctx)
	return nil
}

// Rollback ends the transaction without effect, if it has not ended.
func (t *inboxTx) Rollback(context.Context) error {
	t.unhook()
	err := t.finish()
	t.cancel()
	if t.isAborted() {
		return nil // the server rolls back what was cut off
	}
	return failure("roll back", "", err)
}

const markConsumedSQL = "\nINSERT INTO {consumed} (consumer_group, event_id, event_type, tenant_id, aggregate_type, aggregate_id, aggregate_version," +
	"\n                        outcome, topic, `partition`, position)" + `
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE duplicates = duplicates + 1, last_duplicate_at = UTC_TIMESTAMP(6)`

// MarkConsumed inserts the row, or counts a duplicate: the server says one row
// was affected, or two.
func (t *inboxTx) MarkConsumed(ctx context.Context, c store.Consumed) (first bool, err error) {
	e := &c.Event
	affected, err := t.exec(ctx, markConsumedSQL, c.Group, encodeText(e.ID), short(e.Type), short(e.TenantID),
		short(e.AggregateType), short(e.AggregateID), version(e), string(c.Outcome), c.Topic, c.Partition, c.Position)
	return affected == 1, t.failed("mark consumed", e.ID, err)
}

const markAllSQL = "\nINSERT INTO {consumed} (consumer_group, event_id, event_type, tenant_id, aggregate_type, aggregate_id, aggregate_version," +
	"\n                        outcome, topic, `partition`, position)" + `
SELECT ?, w.event_id, w.event_type, w.tenant_id, w.aggregate_type, w.aggregate_id, NULLIF(w.aggregate_version, 0),
       w.outcome, w.topic, w.part, w.position
FROM JSON_TABLE(?, '$[*]' COLUMNS (event_id VARCHAR(384) CHARACTER SET utf8mb4 PATH '$[0]', event_type VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[1]',
                                   tenant_id VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[2]', aggregate_type VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[3]',
                                   aggregate_id VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[4]', aggregate_version BIGINT PATH '$[5]',
                                   outcome VARCHAR(7) CHARACTER SET utf8mb4 PATH '$[6]', topic VARCHAR(249) CHARACTER SET utf8mb4 PATH '$[7]',
                                   part INT PATH '$[8]', position BIGINT PATH '$[9]')) w
ON DUPLICATE KEY UPDATE duplicates = duplicates + 1, last_duplicate_at = UTC_TIMESTAMP(6)`

// What was marked now has no duplicate yet, what was before has one by now.
const firstAmongSQL = `
SELECT w.n
FROM JSON_TABLE(?, '$[*]' COLUMNS (n FOR ORDINALITY, event_id VARCHAR(384) CHARACTER SET utf8mb4 PATH '$')) w
STRAIGHT_JOIN {consumed} c FORCE INDEX (PRIMARY) ON c.consumer_group = ? AND c.event_id = w.event_id COLLATE {collation}
WHERE c.duplicates = 0`

// MarkAll inserts the rows, or counts duplicates. The server says one row was
// affected for each that is new, so only duplicates take a second look.
func (t *inboxTx) MarkAll(ctx context.Context, consumed []store.Consumed) ([]bool, error) {
	if len(consumed) == 0 {
		return nil, nil
	}
	group := consumed[0].Group
	rows, ids := make([][10]any, len(consumed)), make([]string, len(consumed))
	for i := range consumed {
		c := &consumed[i]
		e := &c.Event
		ids[i] = encodeText(e.ID)
		rows[i] = [10]any{
			ids[i], short(e.Type), short(e.TenantID), short(e.AggregateType), short(e.AggregateID), e.AggregateVersion,
			string(c.Outcome), c.Topic, c.Partition, c.Position,
		}
	}
	affected, err := t.exec(ctx, markAllSQL, group, list(rows))
	if err != nil {
		return nil, t.failed("mark all", "", err)
	}
	first := make([]bool, len(consumed))
	if affected == int64(len(consumed)) {
		for i := range first {
			first[i] = true
		}
		return first, nil
	}
	numbers, err := collect(ctx, t.ownTx, scanOne[int], firstAmongSQL, list(ids), group)
	for _, n := range numbers {
		first[n-1] = true
	}
	return first, t.failed("mark all", "", err)
}

const unmarkSQL = `
DELETE c FROM JSON_TABLE(?, '$[*]' COLUMNS (event_id VARCHAR(384) CHARACTER SET utf8mb4 PATH '$')) w
STRAIGHT_JOIN {consumed} c FORCE INDEX (PRIMARY) ON c.consumer_group = ? AND c.event_id = w.event_id COLLATE {collation}`

// Unmark takes back marks.
func (t *inboxTx) Unmark(ctx context.Context, group string, eventIDs []string) error {
	ids := make([]string, len(eventIDs))
	for i, id := range eventIDs {
		ids[i] = encodeText(id)
	}
	_, err := t.exec(ctx, unmarkSQL, list(ids), group)
	return t.failed("unmark", "", err)
}

// version returns NULL for an unversioned event.
func version(e *waybill.Event) any {
	if e.AggregateVersion == 0 {
		return nil
	}
	return e.AggregateVersion
}

const isConsumedSQL = `SELECT 1 FROM {consumed} WHERE consumer_group = ? AND event_id = ?`

const countDuplicateSQL = `
UPDATE {consumed} SET duplicates = duplicates + 1, last_duplicate_at = UTC_TIMESTAMP(6)
WHERE consumer_group = ? AND event_id = ?`

// IsConsumed reports whether the group has consumed the id.
func (t *inboxTx) IsConsumed(ctx context.Context, group, eventID string, count bool) (bool, error) {
	if count {
		affected, err := t.exec(ctx, countDuplicateSQL, group, encodeText(eventID))
		return affected > 0, t.failed("is consumed", eventID, err)
	}
	var one int
	found, err := t.one(ctx, isConsumedSQL, []any{group, encodeText(eventID)}, &one)
	return found, t.failed("is consumed", eventID, err)
}
