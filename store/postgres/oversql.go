package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// OverSQL makes a consumer's handler work on a *sql.Conn over pgx's stdlib
// driver, in the transaction that is open on it: so that a read model is rebuilt
// by the handler that the consumer runs,
//
//	engine.Rebuild(ctx, &reconcile.RebuildConfig{Fold: postgres.OverSQL(handle)})
//
// The handler can neither commit nor roll back. Large objects are not supported.
func OverSQL(handle func(ctx context.Context, tx pgx.Tx, event waybill.Event) error) func(ctx context.Context, tx store.SQLTx, event waybill.Event) error {
	return func(ctx context.Context, tx store.SQLTx, event waybill.Event) error {
		conn, ok := tx.(interface {
			Raw(f func(driverConn any) error) error
		})
		if !ok {
			return &waybill.Error{Op: "handle", Key: event.ID, Err: fmt.Errorf("%T is no *sql.Conn", tx)}
		}
		var handled error // kept from database/sql, which drops connections for some errors
		err := conn.Raw(func(driverConn any) error {
			inner, ok := driverConn.(*stdlib.Conn)
			if !ok {
				return &waybill.Error{Op: "handle", Key: event.ID, Err: fmt.Errorf("%T is no connection of pgx's stdlib driver", driverConn)}
			}
			handled = handle(ctx, &openTx{on: inner.Conn()}, event)
			return nil
		})
		return errors.Join(err, handled)
	}
}

// openTx is the transaction that somebody else has opened on a connection.
type openTx struct {
	on    *pgx.Conn
	depth int // of savepoints; 0: the transaction itself
	over  bool
}

var errOthersTx = errors.New("the transaction is not the handler's to end")

// Begin sets a savepoint.
func (tx *openTx) Begin(ctx context.Context) (pgx.Tx, error) {
	inner := &openTx{on: tx.on, depth: tx.depth + 1}
	_, err := tx.on.Exec(ctx, "SAVEPOINT "+inner.savepoint())
	if err != nil {
		return nil, err
	}
	return inner, nil
}

func (tx *openTx) savepoint() string { return fmt.Sprintf("waybill_handler_%d", tx.depth) }

// Commit keeps what was done since the savepoint.
func (tx *openTx) Commit(ctx context.Context) error { return tx.end(ctx, "RELEASE SAVEPOINT ") }

// Rollback undoes what was done since the savepoint.
func (tx *openTx) Rollback(ctx context.Context) error { return tx.end(ctx, "ROLLBACK TO SAVEPOINT ") }

func (tx *openTx) end(ctx context.Context, verb string) error {
	switch {
	case tx.depth == 0:
		return errOthersTx
	case tx.over:
		return pgx.ErrTxClosed
	}
	tx.over = true
	_, err := tx.on.Exec(ctx, verb+tx.savepoint())
	return err
}

func (tx *openTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	return tx.on.CopyFrom(ctx, table, columns, rows)
}

func (tx *openTx) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	return tx.on.SendBatch(ctx, batch)
}

func (tx *openTx) LargeObjects() pgx.LargeObjects { return pgx.LargeObjects{} }

func (tx *openTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	return tx.on.Prepare(ctx, name, sql)
}

func (tx *openTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return tx.on.Exec(ctx, sql, args...)
}

func (tx *openTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return tx.on.Query(ctx, sql, args...)
}

func (tx *openTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return tx.on.QueryRow(ctx, sql, args...)
}

func (tx *openTx) Conn() *pgx.Conn { return tx.on }
