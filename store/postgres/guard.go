package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/waybillhq/waybill/internal/sqlverb"
	"github.com/waybillhq/waybill/store"
)

// guarded are the statements of a transaction or of one nested in it, refused
// once the outer one has ended.
type guarded struct {
	tx    *Tx
	inner pgx.Tx
	// lent says that whoever has it must not end the outer one.
	lent bool
}

// admit says why a statement cannot be sent, or nil.
func (g guarded) admit(query string) error {
	if g.lent && sqlverb.Postgres.Any(query, ends) {
		return failure("execute", "", errNotYours)
	}
	return g.tx.usable()
}

// ends reports whether a statement ends a transaction. Procedures and functions
// cannot do so within one that was begun.
func ends(words sqlverb.Words) bool {
	switch words[0] {
	case "COMMIT", "END", "ABORT":
		return true
	case "ROLLBACK":
		return words[1] != "TO" && words[2] != "TO"
	case "PREPARE":
		return words[1] == "TRANSACTION"
	}
	return false
}

func (g guarded) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error) {
	if err := g.tx.usable(); err != nil {
		return 0, err
	}
	n, err := g.inner.CopyFrom(ctx, table, columns, source)
	return n, g.tx.reason(err)
}

func (g guarded) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	if err := g.tx.usable(); err != nil {
		return failedBatch{err}
	}
	for _, queued := range batch.QueuedQueries {
		if err := g.admit(queued.SQL); err != nil {
			return failedBatch{err}
		}
	}
	return g.inner.SendBatch(ctx, batch)
}

func (g guarded) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := g.admit(sql); err != nil {
		return nil, err
	}
	description, err := g.inner.Prepare(ctx, name, sql)
	return description, g.tx.reason(err)
}

func (g guarded) Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error) {
	if err := g.admit(sql); err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := g.inner.Exec(ctx, sql, arguments...)
	return tag, g.tx.reason(err)
}

func (g guarded) Query(ctx context.Context, sql string, arguments ...any) (pgx.Rows, error) {
	if err := g.admit(sql); err != nil {
		return failedRows{err: err}, err
	}
	rows, err := g.inner.Query(ctx, sql, arguments...)
	return rows, g.tx.reason(err)
}

func (g guarded) QueryRow(ctx context.Context, sql string, arguments ...any) pgx.Row {
	if err := g.admit(sql); err != nil {
		return failedRows{err: err}
	}
	return guardedRow{g.tx, g.inner.QueryRow(ctx, sql, arguments...)}
}

// nest starts a nested transaction, by a savepoint.
func (g guarded) nest(ctx context.Context) (pgx.Tx, error) {
	if err := g.tx.usable(); err != nil {
		return nil, err
	}
	inner, err := g.inner.Begin(ctx)
	if err != nil {
		return nil, g.tx.reason(err)
	}
	return &nestedTx{guarded{g.tx, inner, g.lent}}, nil
}

type guardedRow struct {
	tx  *Tx
	row pgx.Row
}

func (r guardedRow) Scan(targets ...any) error { return r.tx.reason(r.row.Scan(targets...)) }

// nestedTx is a nested transaction of a Tx.
type nestedTx struct{ guarded }

func (n *nestedTx) Begin(ctx context.Context) (pgx.Tx, error) { return n.nest(ctx) }

func (n *nestedTx) Commit(ctx context.Context) error {
	if err := n.tx.usable(); err != nil {
		return err
	}
	return n.tx.reason(n.inner.Commit(ctx))
}

func (n *nestedTx) Rollback(ctx context.Context) error {
	if err := n.tx.usable(); err != nil {
		return err
	}
	return n.tx.reason(n.inner.Rollback(ctx))
}

func (n *nestedTx) LargeObjects() pgx.LargeObjects { return n.inner.LargeObjects() }

func (n *nestedTx) Conn() *pgx.Conn { return n.inner.Conn() }

var errNotYours = errors.New("the transaction is ended by the one who began it, not by a handler")

// handlerTx is a transaction as a handler sees it: everything but its end. A
// statement that would end it is refused like the method.
type handlerTx struct{ guarded }

func (handlerTx) Commit(context.Context) error { return failure("commit", "", errNotYours) }

func (handlerTx) Rollback(context.Context) error { return failure("roll back", "", errNotYours) }

// Begin starts a nested transaction, by a savepoint.
func (t handlerTx) Begin(ctx context.Context) (pgx.Tx, error) { return t.nest(ctx) }

func (t handlerTx) LargeObjects() pgx.LargeObjects { return t.inner.LargeObjects() }

// Conn returns the connection. What is done with it directly is beyond the
// guard, but not beyond Abort, which cuts it.
func (t handlerTx) Conn() *pgx.Conn { return t.inner.Conn() }

// failedRows answers a query that was not sent.
type failedRows struct {
	pgx.Rows
	err error
}

func (r failedRows) Close()                                       {}
func (r failedRows) Err() error                                   { return r.err }
func (r failedRows) Next() bool                                   { return false }
func (r failedRows) Scan(...any) error                            { return r.err }
func (r failedRows) Values() ([]any, error)                       { return nil, r.err }
func (r failedRows) RawValues() [][]byte                          { return nil }
func (r failedRows) Conn() *pgx.Conn                              { return nil }
func (r failedRows) CommandTag() pgconn.CommandTag                { return pgconn.CommandTag{} }
func (r failedRows) FieldDescriptions() []pgconn.FieldDescription { return nil }

// failedBatch answers a batch that was not sent.
type failedBatch struct{ err error }

func (b failedBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, b.err }
func (b failedBatch) Query() (pgx.Rows, error)         { return failedRows{err: b.err}, b.err }
func (b failedBatch) QueryRow() pgx.Row                { return failedRows{err: b.err} }
func (b failedBatch) Close() error                     { return b.err }
func (b failedBatch) Tx() pgx.Tx                       { return nil }

var (
	_ pgx.Tx                = (*Tx)(nil)
	_ pgx.Tx                = (*nestedTx)(nil)
	_ pgx.Tx                = handlerTx{}
	_ store.InboxTx[pgx.Tx] = (*inboxTx)(nil)
)
