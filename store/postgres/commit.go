package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill"
)

// A duplicate fails this one: COMMIT is on its way already when it is noticed.
const (
	appendOnlySQL    = insertEvents
	appendOnlyOneSQL = insertEvent
)

const appendOnlyQueuedSQL = `
WITH n AS (` + insertEvents + `
RETURNING id, event_id, topic, event_key, aggregate_id
)` + queueNew

const appendOnlyHeadedSQL = `
WITH n AS (` + insertEvents + `
RETURNING *
), headed AS (` + headNew + `)` + queueNew

const commitSQL = `COMMIT`

// AppendCommit appends the events and commits, which ends tx in any case.
//
// With a transaction of [Store.Begin] the INSERT and the COMMIT travel together,
// which saves a round trip while the business rows are locked. Another pgx.Tx is
// committed in the ordinary way.
func (s *Store) AppendCommit(ctx context.Context, tx pgx.Tx, events []waybill.Event) error {
	if own, ok := tx.(*Tx); ok && len(events) > 0 {
		return s.appendCommit(ctx, own, events)
	}
	results, err := s.Append(ctx, tx, events)
	if err == nil {
		err = errors.Join(results...)
	}
	if err != nil {
		return errors.Join(err, rollBack(ctx, tx))
	}
	return failure("commit", "", tx.Commit(ctx))
}

func (s *Store) appendCommit(ctx context.Context, tx *Tx, events []waybill.Event) error {
	columns, err := columnsOf(events)
	if err != nil {
		return errors.Join(failure("append", "", err), rollBack(ctx, tx))
	}
	if err := tx.enter(txCommitting); err != nil {
		return errors.Join(failure("append and commit", keyOf(events), err), rollBack(ctx, tx))
	}
	defer tx.finish()
	text, args := s.sql(appendOnlySQL), columns.arrays()
	switch {
	case s.noTrigger && s.head:
		text = s.sql(appendOnlyHeadedSQL)
	case s.noTrigger:
		text = s.sql(appendOnlyQueuedSQL)
	case len(events) == 1:
		text, args = s.sql(appendOnlyOneSQL), columns.first()
	}
	batch := &pgx.Batch{}
	batch.Queue(text, args...)
	batch.Queue(s.sql(commitSQL))
	err = tx.inner.SendBatch(ctx, batch).Close()
	if err == nil {
		return nil
	}
	// The COMMIT was passed over, so the transaction is still open, unless the
	// connection is gone and with it our knowledge.
	err = errors.Join(failed(events, err), rollBack(ctx, tx.inner))
	return err
}

func failed(events []waybill.Event, err error) error {
	if codeOf(err) == codeUniqueViolation {
		return &waybill.Error{Op: "postgres: append", Key: keyOf(events), Err: errors.Join(waybill.ErrDuplicateEvent, err), Hint: "nothing was committed"}
	}
	return failure("append and commit", keyOf(events), err)
}

func rollBack(ctx context.Context, tx pgx.Tx) error {
	if err := tx.Rollback(ctx); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
		return failure("roll back", "", err)
	}
	return nil
}
