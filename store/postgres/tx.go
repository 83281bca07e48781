package postgres

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybillhq/waybill/store"
)

// Tx is a transaction that can be aborted from another goroutine. It is a
// [pgx.Tx] in every respect.
type Tx struct {
	store *Store
	conn  *pgxpool.Conn
	inner pgx.Tx
	// wire is kept apart because Abort must not touch what another goroutine
	// may be using inside of conn.
	wire net.Conn
	// ended is the error of Begin's context, and forget ends the watch over it.
	ended  func() error
	forget func() bool

	mu    sync.Mutex
	state txState
}

type txState uint8

const (
	txOpen txState = iota
	txCommitting
	txDone
	txAborted
)

// Begin starts a transaction at READ COMMITTED. It ends with ctx. The caller
// must end it with Commit, Rollback or [Store.AppendCommit]; as with pgx, a
// deferred Rollback after that does nothing.
func (s *Store) Begin(ctx context.Context) (*Tx, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, failure("begin", "", err)
	}
	inner, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		conn.Release()
		return nil, failure("begin", "", err)
	}
	tx := &Tx{store: s, conn: conn, inner: inner, wire: conn.Conn().PgConn().Conn(), ended: ctx.Err}
	tx.forget = context.AfterFunc(ctx, tx.Abort)
	return tx, nil
}

// Abort makes the transaction unusable at once, whatever another goroutine is
// doing with it: a statement that is running fails, and nothing is committed,
// unless Commit had begun. Rollback is still due.
func (tx *Tx) Abort() {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	tx.abort()
}

func (tx *Tx) abort() {
	if tx.state == txOpen {
		tx.state = txAborted
		_ = tx.wire.Close()
	}
}

// look returns the state. A context that has ended aborts the transaction even
// where its watch has not yet run.
func (tx *Tx) look() txState {
	if tx.state == txOpen && tx.ended() != nil {
		tx.abort()
	}
	return tx.state
}

// usable says why the transaction cannot be used, or nil.
func (tx *Tx) usable() error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	switch tx.look() {
	case txAborted:
		return store.ErrAborted
	case txOpen, txCommitting:
		return nil
	}
	return pgx.ErrTxClosed
}

// reason replaces the error that an abort caused by ErrAborted.
func (tx *Tx) reason(err error) error {
	if err == nil {
		return nil
	}
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.state == txAborted {
		return store.ErrAborted
	}
	return err
}

// enter moves an open transaction to the state next, and otherwise says why not.
func (tx *Tx) enter(next txState) error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	switch tx.look() {
	case txOpen:
		tx.state = next
		return nil
	case txAborted:
		return store.ErrAborted
	}
	return pgx.ErrTxClosed
}

func (tx *Tx) finish() {
	tx.forget()
	tx.mu.Lock()
	tx.state = txDone
	tx.mu.Unlock()
	tx.conn.Release()
}

// Commit commits the transaction.
func (tx *Tx) Commit(ctx context.Context) error {
	if err := tx.enter(txCommitting); err != nil {
		return err
	}
	defer tx.finish()
	return tx.inner.Commit(ctx)
}

// Rollback ends the transaction without effect. After Commit it returns
// [pgx.ErrTxClosed].
func (tx *Tx) Rollback(ctx context.Context) error {
	err := tx.enter(txCommitting)
	if errors.Is(err, store.ErrAborted) {
		tx.discard(ctx)
		return nil
	}
	if err != nil {
		return err
	}
	defer tx.finish()
	return tx.inner.Rollback(ctx)
}

// discard gives up the connection of an aborted transaction. Its wire is cut,
// and a goroutine that was using it may still be on its way out, so it does not
// go back to the pool. The server notices a cut wire only when it next writes
// to it, hence the request to cancel what it runs.
func (tx *Tx) discard(ctx context.Context) {
	tx.mu.Lock()
	first := tx.state == txAborted && tx.conn != nil
	conn := tx.conn
	tx.conn = nil
	tx.mu.Unlock()
	if !first {
		return
	}
	tx.forget()
	raw := conn.Hijack()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer cancel()
	_ = raw.PgConn().CancelRequest(ctx)
}

// Begin starts a nested transaction, by a savepoint.
func (tx *Tx) Begin(ctx context.Context) (pgx.Tx, error) { return tx.guarded().nest(ctx) }

// guarded are the transaction's statements, for the one who may end it.
func (tx *Tx) guarded() guarded { return guarded{tx: tx, inner: tx.inner} }

// CopyFrom is [pgx.Tx]'s.
func (tx *Tx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error) {
	return tx.guarded().CopyFrom(ctx, table, columns, source)
}

// SendBatch is [pgx.Tx]'s.
func (tx *Tx) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	return tx.guarded().SendBatch(ctx, batch)
}

// LargeObjects is [pgx.Tx]'s.
func (tx *Tx) LargeObjects() pgx.LargeObjects { return tx.inner.LargeObjects() }

// Prepare is [pgx.Tx]'s.
func (tx *Tx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	return tx.guarded().Prepare(ctx, name, sql)
}

// Exec is [pgx.Tx]'s.
func (tx *Tx) Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error) {
	return tx.guarded().Exec(ctx, sql, arguments...)
}

// Query is [pgx.Tx]'s.
func (tx *Tx) Query(ctx context.Context, sql string, arguments ...any) (pgx.Rows, error) {
	return tx.guarded().Query(ctx, sql, arguments...)
}

// QueryRow is [pgx.Tx]'s.
func (tx *Tx) QueryRow(ctx context.Context, sql string, arguments ...any) pgx.Row {
	return tx.guarded().QueryRow(ctx, sql, arguments...)
}

// Conn returns the connection. What is done with it directly is beyond the
// guard, but not beyond Abort, which cuts it.
func (tx *Tx) Conn() *pgx.Conn { return tx.inner.Conn() }
