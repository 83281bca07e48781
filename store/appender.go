package store

import (
	"context"
	"database/sql"

	"github.com/waybillhq/waybill"
)

// Appender adds events inside the caller's transaction, whose type is TX.
type Appender[TX any] interface {
	// Append inserts the events, which are valid and normalized, in one
	// statement where it can (two without the trigger on some databases). Errors
	// are positional: [waybill.ErrDuplicateEvent] for an id that the outbox, or
	// an earlier event of the same call, has already. A duplicate leaves the
	// transaction usable and the other events inserted. The second result is the
	// statement's own failure, after which the transaction is the caller's to
	// roll back.
	Append(ctx context.Context, tx TX, events []waybill.Event) ([]error, error)
	// Existing returns the stored events of these ids, as the transaction sees
	// them; ids that are not stored are left out.
	Existing(ctx context.Context, tx TX, ids []string) ([]waybill.Event, error)
}

// CommitAppender is an [Appender] that can also commit in the same trip to the
// database, so that the business rows are locked for one trip less.
type CommitAppender[TX any] interface {
	Appender[TX]
	// AppendCommit inserts the events, which are valid and normalized, and
	// commits, which ends the transaction in any case. All is committed or nothing
	// is: an id that the outbox, or an earlier event of the same call, has already
	// fails the whole with an error that wraps [waybill.ErrDuplicateEvent].
	AppendCommit(ctx context.Context, tx TX, events []waybill.Event) error
}

// SQLTx is what the adapters over database/sql need of a transaction. *sql.Tx
// implements it, and so do *sql.Conn, the transactions of sqlx and bun, and
// gorm's ConnPool.
type SQLTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}
