package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"sync/atomic"

	sqlite "modernc.org/sqlite"

	"github.com/waybillhq/waybill/internal/sqlverb"
)

// guardedConnector opens connections that mend five things of the plain ones.
//
// A failed statement can make SQLite roll back the whole transaction: a full
// disk does, and so does an interrupt. What database/sql still takes for that
// transaction would then run and commit statement by statement, so a handler
// that ignored the error would leave half of its work behind. A guarded
// connection refuses them until the transaction is ended.
//
// The end of the context of an abortable transaction interrupts its running
// statement, whatever context that was given.
//
// An abortable transaction is committed by the one who began it. A handler that
// did so would commit what it knows nothing of: that events behind its own, whose
// handlers have not run, are consumed. All is rolled back instead.
//
// Commits are durable or relaxed as the transaction asks for.
//
// The statements of the catalogue, and those that handlers repeat, are prepared
// once for each connection.
// Prepared through a pool of one connection, they would have to wait for the
// transaction that wants to use them.
type guardedConnector struct {
	driver.Connector
	managesSync bool
	catalogued  map[string]bool
}

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
	sqlite.HookRegisterer
}

type bareStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

func newGuardedConnector(dsn string, managesSync bool, catalogued map[string]bool) (driver.Connector, error) {
	bare, err := sqlite.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	return &guardedConnector{Connector: bare, managesSync: managesSync, catalogued: catalogued}, nil
}

func (g *guardedConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := g.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c := &guardedConn{bareConn: conn.(bareConn), connector: g, prepared: make(map[string]*preparedStmt)}
	c.RegisterRollbackHook(func() {
		if c.open.Load() {
			c.died.Store(true)
		}
	})
	return c, nil
}

// guardedConn is used by one goroutine at a time, as database/sql promises.
type guardedConn struct {
	bareConn
	connector *guardedConnector
	prepared  map[string]*preparedStmt
	seen      map[string]struct{} // texts of handlers' statements
	kept      int                 // how many of these are prepared

	open    atomic.Bool // within BeginTx .. Commit or Rollback
	died    atomic.Bool // SQLite has ended the open transaction
	relaxed bool        // synchronous is NORMAL
	abort   context.Context
	ours    bool // the open transaction may be committed by whoever has it
	atEnd   []func()
}

var errNotYours = errors.New("the transaction is ended by the one who began it, not by a handler")

type contextKey int

const (
	relaxedCommit contextKey = iota
	abortableTx
)

func withRelaxedCommit(ctx context.Context) context.Context {
	return context.WithValue(ctx, relaxedCommit, true)
}

func withAbort(ctx context.Context) context.Context {
	return context.WithValue(ctx, abortableTx, true)
}

// BeginTx implements driver.ConnBeginTx.
func (c *guardedConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	if err := c.commitAs(ctx, ctx.Value(relaxedCommit) != nil); err != nil {
		return nil, err
	}
	tx, err := c.bareConn.BeginTx(ctx, options)
	if err != nil {
		return nil, err
	}
	c.died.Store(false)
	c.open.Store(true)
	c.ours = ctx.Value(abortableTx) == nil
	if !c.ours {
		c.abort = ctx
	}
	return &guardedTx{c, tx}, nil
}

// commitAs sets the durability of the transactions that follow. It cannot be
// changed within one.
func (c *guardedConn) commitAs(ctx context.Context, relaxed bool) error {
	if !c.connector.managesSync || c.relaxed == relaxed {
		return nil
	}
	pragma := "PRAGMA synchronous = FULL"
	if relaxed {
		pragma = "PRAGMA synchronous = NORMAL"
	}
	if _, err := c.bareConn.ExecContext(ctx, pragma, nil); err != nil {
		return err
	}
	c.relaxed = relaxed
	return nil
}

// admit is asked before each statement.
func (c *guardedConn) admit(ctx context.Context) error {
	if c.open.Load() {
		if c.abort != nil && c.abort.Err() != nil {
			return c.abort.Err()
		}
		if c.died.Load() {
			return errRolledBack
		}
		return nil
	}
	return c.commitAs(ctx, false)
}

// sound says why nothing of the open transaction would be accepted.
func (c *guardedConn) sound() error {
	if !c.open.Load() {
		return sql.ErrTxDone
	}
	return c.admit(context.Background())
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
	if err := c.admit(ctx); err != nil {
		return nil, err
	}
	ctx, release := c.join(ctx)
	defer release()
	stmt, err := c.catalogued(ctx, query)
	switch {
	case err != nil:
		return nil, err
	case stmt != nil:
		return stmt.ExecContext(ctx, args)
	}
	if err := c.lends(query); err != nil {
		return nil, err
	}
	return c.bareConn.ExecContext(ctx, query, args)
}

// lends says why a statement of a handler's is not accepted, or nil. Those of
// the catalogue are never asked about.
func (c *guardedConn) lends(query string) error {
	if c.open.Load() && !c.ours && sqlverb.SQLite.Any(query, ends) {
		return errNotYours
	}
	return nil
}

// ends reports whether a statement ends a transaction.
func ends(words sqlverb.Words) bool {
	switch words[0] {
	case "COMMIT", "END":
		return true
	case "ROLLBACK":
		return words[1] != "TO" && words[2] != "TO"
	}
	return false
}

// QueryContext implements driver.QueryerContext.
func (c *guardedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.admit(ctx); err != nil {
		return nil, err
	}
	ctx = c.joinUntilEnd(ctx)
	stmt, err := c.catalogued(ctx, query)
	switch {
	case err != nil:
		return nil, err
	case stmt != nil:
		rows, err := stmt.QueryContext(ctx, args)
		if err != nil {
			return nil, err
		}
		stmt.busy = true
		return &preparedRows{rows, stmt}, nil
	}
	if err := c.lends(query); err != nil {
		return nil, err
	}
	return c.bareConn.QueryContext(ctx, query, args)
}

// joinUntilEnd is join for what outlives the call: rows.
func (c *guardedConn) joinUntilEnd(ctx context.Context) context.Context {
	joined, release := c.join(ctx)
	if joined != ctx {
		c.atEnd = append(c.atEnd, release)
	}
	return joined
}

// PrepareContext implements driver.ConnPrepareContext.
func (c *guardedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if err := errors.Join(c.admit(ctx), c.lends(query)); err != nil {
		return nil, err
	}
	stmt, err := c.bareConn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return &guardedStmt{stmt.(bareStmt), c}, nil
}

// Prepare implements driver.Conn.
func (c *guardedConn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

// Begin implements driver.Conn.
func (c *guardedConn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

// Close implements driver.Conn.
func (c *guardedConn) Close() error {
	for _, stmt := range c.prepared {
		_ = stmt.Close()
	}
	c.prepared = nil
	return c.bareConn.Close()
}

// catalogued returns the prepared form of a statement of the catalogue, or of one
// that handlers repeat; nil when it is neither, or is being read from.
func (c *guardedConn) catalogued(ctx context.Context, query string) (*preparedStmt, error) {
	if stmt := c.prepared[query]; stmt != nil {
		if stmt.busy {
			return nil, nil
		}
		return stmt, nil
	}
	if !c.connector.catalogued[query] && !c.isRepeated(query) {
		return nil, nil
	}
	stmt, err := c.bareConn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	p := &preparedStmt{bareStmt: stmt.(bareStmt)}
	c.prepared[query] = p
	return p, nil
}

// Bounds of what a connection keeps of handlers' statements.
const (
	maxKept     = 100  // statements that are prepared
	maxSeen     = 1000 // texts
	maxKeptText = 4096 // bytes of a text
)

// isRepeated reports whether a handler's statement is worth being prepared: it
// was sent before. To read its text takes as long as to do what it says.
func (c *guardedConn) isRepeated(query string) bool {
	if !c.open.Load() || c.ours || c.kept >= maxKept || len(query) > maxKeptText || strings.Contains(query, ";") || c.lends(query) != nil {
		return false
	}
	if _, found := c.seen[query]; found {
		delete(c.seen, query)
		c.kept++
		return true
	}
	if c.seen == nil || len(c.seen) >= maxSeen {
		c.seen = make(map[string]struct{})
	}
	c.seen[query] = struct{}{}
	return false
}

type preparedStmt struct {
	bareStmt
	busy bool
}

type preparedRows struct {
	driver.Rows
	stmt *preparedStmt
}

func (r *preparedRows) Close() error {
	r.stmt.busy = false
	return r.Rows.Close()
}

// guardedStmt is a statement that the connection's user prepared.
type guardedStmt struct {
	bareStmt
	c *guardedConn
}

// ExecContext implements driver.StmtExecContext.
func (s *guardedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if err := s.c.admit(ctx); err != nil {
		return nil, err
	}
	ctx, release := s.c.join(ctx)
	defer release()
	return s.bareStmt.ExecContext(ctx, args)
}

// QueryContext implements driver.StmtQueryContext.
func (s *guardedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if err := s.c.admit(ctx); err != nil {
		return nil, err
	}
	return s.bareStmt.QueryContext(s.c.joinUntilEnd(ctx), args)
}

type guardedTx struct {
	c  *guardedConn
	tx driver.Tx
}

// Commit implements driver.Tx.
func (t *guardedTx) Commit() error {
	aborted := t.c.abort != nil && t.c.abort.Err() != nil
	foreign := !t.c.ours
	died := t.end()
	switch {
	case died:
		return errRolledBack
	case aborted:
		return errors.Join(context.Canceled, t.tx.Rollback())
	case foreign:
		return errors.Join(errNotYours, t.tx.Rollback())
	}
	return t.tx.Commit()
}

// Rollback implements driver.Tx.
func (t *guardedTx) Rollback() error {
	if died := t.end(); died {
		return nil
	}
	return t.tx.Rollback()
}

func (t *guardedTx) end() (died bool) {
	t.c.open.Store(false)
	t.c.abort = nil
	for _, release := range t.c.atEnd {
		release()
	}
	t.c.atEnd = t.c.atEnd[:0]
	return t.c.died.Load()
}
