package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/cmd/waybill/internal/adapter"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/mysql"
	"github.com/waybillhq/waybill/store/postgres"
	"github.com/waybillhq/waybill/store/sqlite"
)

// database is a scratch database, open.
type database struct {
	kind  string
	store adapter.Store
	db    *sql.DB
	pool  *pgxpool.Pool   // of PostgreSQL
	pg    *postgres.Store // of PostgreSQL
	plain store.Appender[store.SQLTx]
	close func() error
}

func openDatabase(ctx context.Context, kind, dsn string) (*database, error) {
	switch kind {
	case kindSQLite:
		st, err := sqlite.Open(ctx, dsn, nil)
		if err != nil {
			return nil, err
		}
		return &database{kind: kind, store: st, db: st.DB(), plain: st, close: st.Close}, nil
	case kindPostgres:
		st, err := postgres.Open(ctx, dsn, nil)
		if err != nil {
			return nil, err
		}
		db := stdlib.OpenDBFromPool(st.Pool())
		return &database{
			kind: kind, store: st, db: db, pool: st.Pool(), pg: st, plain: st.SQL(),
			close: func() error { return errors.Join(db.Close(), st.Close()) },
		}, nil
	case kindMySQL, kindMariaDB:
		st, err := mysql.Open(ctx, dsn, nil)
		if err != nil {
			return nil, err
		}
		return &database{kind: kind, store: st, db: st.DB(), plain: st, close: st.Close}, nil
	}
	return nil, fmt.Errorf("there is no bench on %q", kind)
}

// statements by kind of database, MariaDB's being those of MySQL.
type statements map[string]string

func (s statements) of(kind string) string {
	if kind == kindMariaDB {
		kind = kindMySQL
	}
	return s[kind]
}

var versionSQL = statements{
	kindPostgres: `SELECT current_setting('server_version')`,
	kindMySQL:    `SELECT VERSION()`,
	kindSQLite:   `SELECT sqlite_version()`,
}

func (d *database) version(ctx context.Context) string {
	var version string
	if err := d.db.QueryRowContext(ctx, versionSQL.of(d.kind)).Scan(&version); err != nil {
		version = ""
	}
	return d.kind + " " + orNone(version)
}

// Statistics as of a database that has run for a while, and no leftovers of the
// arm before.
var tidySQL = map[string][]string{
	kindPostgres: {`VACUUM (ANALYZE) outbox_pending`, `VACUUM (ANALYZE) outbox_event`, `VACUUM (ANALYZE) outbox_receipt`},
	kindMySQL:    {`ANALYZE TABLE outbox_pending, outbox_event, outbox_receipt`},
	kindMariaDB:  {`ANALYZE TABLE outbox_pending, outbox_event, outbox_receipt`},
	kindSQLite:   {`PRAGMA wal_checkpoint(TRUNCATE)`, `PRAGMA optimize`},
}

func (d *database) tidy(ctx context.Context) error {
	for _, statement := range tidySQL[d.kind] {
		if _, err := d.db.ExecContext(ctx, statement); err != nil {
			return &waybill.Error{Op: statement, Err: err}
		}
	}
	return nil
}

const (
	countPendingSQL  = `SELECT COUNT(*) FROM outbox_pending`
	countReceiptsSQL = `SELECT COUNT(*) FROM outbox_receipt`
	countEventsSQL   = `SELECT COUNT(*) FROM outbox_event`
)

// counts returns how many rows the three tables have.
func (d *database) counts(ctx context.Context) (events, pending, receipts int, err error) {
	for _, c := range []struct {
		query string
		n     *int
	}{{countEventsSQL, &events}, {countPendingSQL, &pending}, {countReceiptsSQL, &receipts}} {
		if err == nil {
			err = d.db.QueryRowContext(ctx, c.query).Scan(c.n)
		}
	}
	return events, pending, receipts, err
}
