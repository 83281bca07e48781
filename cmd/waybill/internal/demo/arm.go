package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/mysql"
	"github.com/waybillhq/waybill/store/postgres"
	"github.com/waybillhq/waybill/store/sqlite"
)

// arm is the database of one service of the demo, open.
type arm struct {
	dialect dialect
	db      *sql.DB // for the service's own tables
	store   interface {
		store.Schema
		store.Inspector
	}
	appender store.Appender[store.SQLTx]
	consume  func(sub broker.Subscriber, handle handler, config *inbox.Config) (processor, error)
	close    func() error
}

// execute runs one statement in the transaction of an event.
type execute func(ctx context.Context, query string, args ...any) error

// handler is an inbox.Handler, whatever the transaction is.
type handler func(ctx context.Context, exec execute, event waybill.Event) error

type processor interface {
	Run(ctx context.Context) error
}

func openArm(ctx context.Context, kind, dsn string) (*arm, error) {
	switch kind {
	case kindSQLite:
		st, err := sqlite.Open(ctx, dsn, nil)
		if err != nil {
			return nil, err
		}
		return &arm{dialect: dialects[kind], db: st.DB(), store: st, appender: st, close: st.Close, consume: consumer(st, inSQL)}, nil
	case kindPostgres:
		st, err := postgres.Open(ctx, dsn, nil)
		if err != nil {
			return nil, err
		}
		db := stdlib.OpenDBFromPool(st.Pool())
		return &arm{
			dialect: dialects[kind], db: db, store: st, appender: st.SQL(),
			close:   func() error { return errors.Join(db.Close(), st.Close()) },
			consume: consumer(st, inPGX),
		}, nil
	case kindMySQL, kindMariaDB:
		st, err := mysql.Open(ctx, dsn, nil)
		if err != nil {
			return nil, err
		}
		return &arm{dialect: dialects[kind], db: st.DB(), store: st, appender: st, close: st.Close, consume: consumer(st, inSQL)}, nil
	}
	return nil, fmt.Errorf("there is no demo on %q", kind)
}

func consumer[TX any](st store.Consumer[TX], in func(TX) execute) func(broker.Subscriber, handler, *inbox.Config) (processor, error) {
	return func(sub broker.Subscriber, handle handler, config *inbox.Config) (processor, error) {
		return inbox.New(st, sub, func(ctx context.Context, tx TX, event waybill.Event) error { return handle(ctx, in(tx), event) }, config)
	}
}

func inSQL(tx *sql.Tx) execute {
	return func(ctx context.Context, query string, args ...any) error {
		_, err := tx.ExecContext(ctx, query, args...)
		return err
	}
}

func inPGX(tx pgx.Tx) execute {
	return func(ctx context.Context, query string, args ...any) error {
		_, err := tx.Exec(ctx, query, args...)
		return err
	}
}

// create makes the tables of a service.
func (a *arm) create(ctx context.Context, options store.MigrateOptions, tables string) error {
	if err := a.store.Migrate(ctx, options); err != nil {
		return err
	}
	for _, statement := range a.dialect.statements(tables) {
		if _, err := a.db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func (a *arm) exec(ctx context.Context, template string, args ...any) error {
	_, err := a.db.ExecContext(ctx, a.dialect.sql(template), args...)
	return err
}
