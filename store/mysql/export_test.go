package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"

	"github.com/go-sql-driver/mysql"

	"github.com/waybillhq/waybill/store"
)

var ErrNotYours = errNotYours

// Text returns a statement of the list as this store sends it.
func (s *Store) Text(role, name string) string {
	for _, statement := range statements {
		if statement.role == role && statement.name == name {
			return s.sql(statement.template)
		}
	}
	panic("no such statement: " + role + " " + name)
}

// WalkText returns a walk over all lanes as it is sent, and its parameters.
func (s *Store) WalkText(limit int) (string, []any) {
	return s.walkText(store.WalkRequest{Lanes: everyLane(), Limit: limit})
}

// IsMariaDB tells which of the two servers this is.
func (s *Store) IsMariaDB() bool { return !s.dialect.of }

func everyLane() []store.LaneCursor {
	cursors := make([]store.LaneCursor, store.Lanes)
	for i := range cursors {
		cursors[i].Lane = i
	}
	return cursors
}

// Step replaces the connections of the store's own transactions by ones that do
// something before each statement.
func (s *Store) Step(dsn string, before *func()) error {
	settings, err := parseDSN(dsn)
	if err != nil {
		return err
	}
	_ = s.own.Close()
	bare, err := mysql.NewConnector(settings)
	if err != nil {
		return err
	}
	s.own = sql.OpenDB(&connector{Connector: steppingConnector{bare, before}})
	return nil
}

type steppingConnector struct {
	driver.Connector
	before *func()
}

func (c steppingConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return steppingConn{conn.(bareConn), c.before}, nil
}

type steppingConn struct {
	bareConn
	before *func()
}

func (c steppingConn) step() {
	if *c.before != nil {
		(*c.before)()
	}
}

func (c steppingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.step()
	return c.bareConn.ExecContext(ctx, query, args)
}

func (c steppingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.step()
	return c.bareConn.QueryContext(ctx, query, args)
}
