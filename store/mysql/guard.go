package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"

	"github.com/go-sql-driver/mysql"

	"github.com/waybillhq/waybill/internal/sqlverb"
	"github.com/waybillhq/waybill/store"
)

var errNotYours = errors.New("the transaction is ended by the one who began it, not by a handler")

// errRolledBack refuses statements of a transaction that the server has ended.
var errRolledBack = errors.New("the server rolled the transaction back after an earlier failure")

// connector opens connections that mend four things of the plain ones.
//
// A deadlock makes the server roll back the whole transaction of its victim.
// What database/sql still takes for that transaction would then run and commit
// statement by statement, so a handler that ignored the error would leave half
// of its work behind. A guarded connection refuses them until the transaction
// is ended.
//
// The end of the context of an abortable transaction ends its running
// statement, whatever context that was given.
//
// An abortable transaction is committed by the one who began it. A handler that
// did so would commit what it knows nothing of: that events behind its own, whose
// handlers have not run, are consumed. All is rolled back instead. See lent.go.
//
// A statement that was given up is ended on the server too. It would otherwise
// keep its locks until it next looks at its client.
type connector struct{ driver.Connector }

// bareConn is what the driver's connections can do.
type bareConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
	driver.NamedValueChecker
}

type bareStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
	driver.NamedValueChecker
}

type bareRows interface {
	driver.RowsNextResultSet
	driver.RowsColumnTypeDatabaseTypeName
	driver.RowsColumnTypeNullable
	driver.RowsColumnTypePrecisionScale
	driver.RowsColumnTypeScanType
}

// sessionSettings are what correctness depends on; the rest of sql_mode stays
// as the server has it.
var sessionSettings = []string{
	`SET time_zone = '+00:00', sql_mode = CONCAT(@@sql_mode, ',STRICT_TRANS_TABLES')`,
	`SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED`,
}

const identifySQL = `SELECT CONNECTION_ID(), @@innodb_rollback_on_timeout`

// Connect implements driver.Connector.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	g := &guardedConn{bareConn: conn.(bareConn), connector: c}
	if err := g.prepareSession(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return g, nil
}

func (c *guardedConn) prepareSession(ctx context.Context) error {
	for _, text := range sessionSettings {
		if _, err := c.bareConn.ExecContext(ctx, text, nil); err != nil {
			return err
		}
	}
	rows, err := c.bareConn.QueryContext(ctx, identifySQL, nil)
	if err != nil {
		return err
	}
	values := make([]driver.Value, 2)
	err = rows.Next(values)
	if closeErr := rows.Close(); err == nil {
		err = closeErr
	}
	c.id, c.timeoutKills = text(values[0]), text(values[1]) == "1"
	return err
}

func text(value driver.Value) string {
	if bytes, ok := value.([]byte); ok {
		return string(bytes)
	}
	return fmt.Sprint(value)
}

// kill ends a connection on the server, over another one.
func (c *connector) kill(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_, _ = conn.(driver.ExecerContext).ExecContext(ctx, "KILL "+id, nil)
}

// guardedConn is used by one goroutine at a time, as database/sql promises.
type guardedConn struct {
	bareConn
	connector    *connector
	id           string
	timeoutKills bool // a lock wait that times out rolls back the transaction

	open  bool // within BeginTx .. Commit or Rollback
	died  bool // the server has ended the open transaction
	abort context.Context
	ours  bool // the open transaction may be committed by whoever has it
	// unsure: a statement has run that may have ended the open transaction.
	unsure bool
	gone   bool // it did
	atEnd  []func()
}

type contextKey int

const abortableTx contextKey = iota

// withAbort marks the context of a transaction that ends with it at once.
func withAbort(ctx context.Context) context.Context {
	return context.WithValue(ctx, abortableTx, true)
}

// BeginTx implements driver.ConnBeginTx.
func (c *guardedConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	tx, err := c.bareConn.BeginTx(ctx, options)
	if err != nil {
		return nil, err
	}
	c.open, c.died = true, false
	c.ours = ctx.Value(abortableTx) == nil
	if !c.ours {
		c.abort = ctx
	}
	return &guardedTx{c, tx}, nil
}

// admit is asked before each statement.
func (c *guardedConn) admit() error {
	switch {
	case !c.open:
		return nil
	case c.abort != nil && c.abort.Err() != nil:
		return store.ErrAborted
	case c.unsure:
		c.unsure = false
		c.gone = c.isGone()
	}
	switch {
	case c.gone:
		return store.ErrEnded
	case c.died:
		return errRolledBack
	}
	return nil
}

// sound says why nothing of the open transaction would be accepted.
func (c *guardedConn) sound() error {
	if !c.open {
		return sql.ErrTxDone
	}
	return c.admit()
}

// note looks at what became of a statement.
func (c *guardedConn) note(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	code := codeOf(err)
	if code == codeDeadlock || code == codeLockTimeout && c.timeoutKills || errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) {
		c.died = true
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		c.died = true
		c.connector.kill(c.id)
	}
	return err
}

// join returns a context that also ends when the open transaction is aborted.
func (c *guardedConn) join(ctx context.Context) (context.Context, func()) {
	if c.abort == nil || c.abort.Done() == nil || ctx.Done() == c.abort.Done() {
		return ctx, func() {}
	}
	joined, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.abort, cancel)
	return joined, func() { stop(); cancel() }
}

// ExecContext implements driver.ExecerContext.
func (c *guardedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.admit(); err != nil {
		return nil, err
	}
	ctx, release := c.join(ctx)
	defer release()
	if err := c.lends(ctx, query); err != nil {
		return nil, err
	}
	result, err := c.bareConn.ExecContext(ctx, query, args)
	return result, c.note(ctx, err)
}

// QueryContext implements driver.QueryerContext.
func (c *guardedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.admit(); err != nil {
		return nil, err
	}
	if err := c.lends(ctx, query); err != nil {
		return nil, err
	}
	ctx = c.joinUntilEnd(ctx)
	rows, err := c.bareConn.QueryContext(ctx, query, args)
	return c.guardRows(ctx, rows, err)
}

// joinUntilEnd is join for what outlives the call: rows.
func (c *guardedConn) joinUntilEnd(ctx context.Context) context.Context {
	joined, release := c.join(ctx)
	if joined != ctx {
		c.atEnd = append(c.atEnd, release)
	}
	return joined
}

func (c *guardedConn) guardRows(ctx context.Context, rows driver.Rows, err error) (driver.Rows, error) {
	if err != nil {
		return nil, c.note(ctx, err)
	}
	bare, ok := rows.(bareRows)
	if !ok {
		return rows, nil // a result without columns
	}
	return &guardedRows{bare, ctx, c}, nil
}

// guardedRows notices a transaction that dies while its rows are read.
type guardedRows struct {
	bareRows
	ctx  context.Context
	conn *guardedConn
}

// Next implements driver.Rows.
func (r *guardedRows) Next(values []driver.Value) error {
	err := r.bareRows.Next(values)
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return r.conn.note(r.ctx, err)
}

// PrepareContext implements driver.ConnPrepareContext.
func (c *guardedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if err := c.admit(); err != nil {
		return nil, err
	}
	if c.isLent() && sqlverb.MySQL.Any(query, ends) {
		return nil, errNotYours
	}
	stmt, err := c.bareConn.PrepareContext(ctx, query)
	if err != nil {
		return nil, c.note(ctx, err)
	}
	return &guardedStmt{stmt.(bareStmt), c, sqlverb.MySQL.Any(query, mayEnd)}, nil
}

// Prepare implements driver.Conn.
func (c *guardedConn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

// Begin implements driver.Conn.
func (c *guardedConn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

// guardedStmt is a statement that the connection's user prepared.
type guardedStmt struct {
	bareStmt
	c      *guardedConn
	mayEnd bool
}

// ExecContext implements driver.StmtExecContext.
func (s *guardedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if err := s.c.admit(); err != nil {
		return nil, err
	}
	if err := s.c.doubt(ctx, s.mayEnd); err != nil {
		return nil, err
	}
	ctx, release := s.c.join(ctx)
	defer release()
	result, err := s.bareStmt.ExecContext(ctx, args)
	return result, s.c.note(ctx, err)
}

// QueryContext implements driver.StmtQueryContext.
func (s *guardedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if err := s.c.admit(); err != nil {
		return nil, err
	}
	if err := s.c.doubt(ctx, s.mayEnd); err != nil {
		return nil, err
	}
	ctx = s.c.joinUntilEnd(ctx)
	rows, err := s.bareStmt.QueryContext(ctx, args)
	return s.c.guardRows(ctx, rows, err)
}

type guardedTx struct {
	c  *guardedConn
	tx driver.Tx
}

// Commit implements driver.Tx.
func (t *guardedTx) Commit() error {
	refused := t.c.admit()
	if refused == nil && !t.c.ours {
		refused = errNotYours
	}
	t.end()
	if refused != nil {
		_ = t.tx.Rollback()
		return refused
	}
	return t.tx.Commit()
}

// Rollback implements driver.Tx.
func (t *guardedTx) Rollback() error {
	died := t.c.died || t.c.gone
	t.end()
	if err := t.tx.Rollback(); !died {
		return err
	}
	return nil
}

func (t *guardedTx) end() {
	t.c.open, t.c.died, t.c.abort = false, false, nil
	t.c.unsure, t.c.gone = false, false
	for _, release := range t.c.atEnd {
		release()
	}
	t.c.atEnd = t.c.atEnd[:0]
}
