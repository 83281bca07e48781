package main

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/postgres"
	"github.com/waybillhq/waybill/store/sqlite"
)

// database is one database of the service, of either kind.
type database struct {
	sql      *sql.DB                     // for the service's own statements
	outbox   relay.Store                 // for the relay
	appender store.Appender[store.SQLTx] // for events, in transactions of sql
	consume  func(broker.Subscriber, *inbox.Config) (consumer, error)
	close    func() error
}

// consumer is an inbox.Processor, whatever its transactions are.
type consumer interface {
	Run(ctx context.Context) error
	Health() inbox.Health
}

// openDatabases opens the order service's database and the consumer's, with
// the tables of both sides.
func openDatabases(ctx context.Context, o *options) (orders, shipping *database, err error) {
	if err := os.MkdirAll(o.data, 0o700); err != nil {
		return nil, nil, err
	}
	open, ordersDSN, shippingDSN := openSQLite, filepath.Join(o.data, "orders.db"), filepath.Join(o.data, "shipping.db")
	if o.database != "" {
		open, ordersDSN, shippingDSN = openPostgres, o.database, o.shipping
		if shippingDSN == "" {
			shippingDSN = o.database
		}
	}
	orders, err = open(ctx, ordersDSN, store.MigrateOptions{SkipInbox: ordersDSN != shippingDSN}, ordersTable)
	if err != nil {
		return nil, nil, err
	}
	shipping, err = open(ctx, shippingDSN, store.MigrateOptions{SkipOutbox: ordersDSN != shippingDSN}, shipmentTable)
	if err != nil {
		return nil, nil, errors.Join(err, orders.close())
	}
	return orders, shipping, nil
}

func openSQLite(ctx context.Context, file string, tables store.MigrateOptions, own string) (*database, error) {
	st, err := sqlite.Open(ctx, file, nil)
	if err != nil {
		return nil, err
	}
	if err := prepare(ctx, st, tables, st.DB(), own); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return &database{
		sql: st.DB(), outbox: st, appender: st, close: st.Close,
		consume: func(from broker.Subscriber, config *inbox.Config) (consumer, error) {
			return inbox.New(st, from, func(ctx context.Context, tx *sql.Tx, event waybill.Event) error {
				return ship(ctx, event, func(statement string, args ...any) error {
					_, err := tx.ExecContext(ctx, statement, args...)
					return err
				})
			}, config)
		},
	}, nil
}

func openPostgres(ctx context.Context, dsn string, tables store.MigrateOptions, own string) (*database, error) {
	st, err := postgres.Open(ctx, dsn, nil)
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDBFromPool(st.Pool())
	if err := prepare(ctx, st, tables, db, own); err != nil {
		return nil, errors.Join(err, db.Close(), st.Close())
	}
	return &database{
		sql: db, outbox: st, appender: st.SQL(), close: func() error { return errors.Join(db.Close(), st.Close()) },
		consume: func(from broker.Subscriber, config *inbox.Config) (consumer, error) {
			return inbox.New(st, from, func(ctx context.Context, tx pgx.Tx, event waybill.Event) error {
				return ship(ctx, event, func(statement string, args ...any) error {
					_, err := tx.Exec(ctx, statement, args...)
					return err
				})
			}, config)
		},
	}, nil
}

// prepare makes waybill's tables and one of the example's.
func prepare(ctx context.Context, st store.Schema, tables store.MigrateOptions, db *sql.DB, own string) error {
	if err := st.Migrate(ctx, tables); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, own)
	return err
}
