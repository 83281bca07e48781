package strategy

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/waybillhq/waybill/inbox/guard"
	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/mysql"
	"github.com/waybillhq/waybill/store/postgres"
	"github.com/waybillhq/waybill/store/sqlite"
	"github.com/waybillhq/waybill/test/lab"
)

// database is one with the tables of an inbox and those of the cases.
type database struct {
	t  *testing.T
	db *sql.DB
	// within runs do in a transaction, and commits it when do returns nil.
	within func(ctx context.Context, do func(tx guard.Tx) error) error
}

var tables = []string{
	`CREATE TABLE payment (payment_no VARCHAR(64) PRIMARY KEY, order_id VARCHAR(64) NOT NULL, amount BIGINT NOT NULL, note VARCHAR(64))`,
	`CREATE TABLE orders (id VARCHAR(64) PRIMARY KEY, status VARCHAR(16) NOT NULL, version BIGINT NOT NULL, paid_by VARCHAR(64))`,
	`CREATE TABLE account (id VARCHAR(64) PRIMARY KEY, points BIGINT NOT NULL, version BIGINT NOT NULL)`,
}

// eachDatabase runs tests one by one over each kind of database and of
// transaction.
func eachDatabase(t *testing.T, tests map[string]func(t *testing.T, d *database)) {
	for name, open := range map[string]func(t *testing.T) *database{
		"sqlite":              openSQLite,
		"postgres15":          func(t *testing.T) *database { d, _ := openPostgres(t); return d },
		"postgres15 with pgx": openNative,
		"mysql9":              func(t *testing.T) *database { return openMySQL(t, testenv.MySQL9(t)) },
		"mariadb10":           func(t *testing.T) *database { return openMySQL(t, testenv.MariaDB10(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			for _, table := range tables {
				d.execute(table)
			}
			for name, test := range tests {
				t.Run(name, func(t *testing.T) {
					for _, table := range []string{"payment", "orders", "account", "consumed_event"} {
						d.execute("DELETE FROM " + table)
					}
					test(t, d)
				})
			}
		})
	}
}

func openSQLite(t *testing.T) *database {
	t.Helper()
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "strategy.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	migrate(t, st)
	return over(t, st.DB(), guard.SQLite)
}

func openPostgres(t *testing.T) (*database, *postgres.Store) {
	t.Helper()
	st, err := postgres.Open(t.Context(), lab.Postgres15(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	migrate(t, st)
	db := stdlib.OpenDBFromPool(st.Pool())
	t.Cleanup(func() { _ = db.Close() })
	return over(t, db, guard.Postgres), st
}

func openNative(t *testing.T) *database {
	t.Helper()
	d, st := openPostgres(t)
	d.within = func(ctx context.Context, do func(tx guard.Tx) error) error {
		return pgx.BeginFunc(ctx, st.Pool(), func(tx pgx.Tx) error { return do(guard.OverNative(tx)) })
	}
	return d
}

// openMySQL returns a pool of the service's own, whose counts of rows are those
// of rows found, as some frameworks set it.
func openMySQL(t *testing.T, admin string) *database {
	t.Helper()
	dsn := lab.MySQL(t, admin)
	st, err := mysql.Open(t.Context(), dsn, nil)
	if err != nil {
		t.Fatal(err)
	}
	migrate(t, st)
	db, err := sql.Open("mysql", dsn+"?clientFoundRows=true")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return over(t, db, guard.MySQL)
}

func migrate(t *testing.T, st store.Schema) {
	t.Helper()
	t.Cleanup(func() { _ = st.Close() })
	if err := st.Migrate(t.Context(), store.MigrateOptions{SkipOutbox: true}); err != nil {
		t.Fatal(err)
	}
}

func over(t *testing.T, db *sql.DB, dialect guard.Dialect) *database {
	return &database{
		t: t, db: db,
		within: func(ctx context.Context, do func(tx guard.Tx) error) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			if err := do(guard.Over(tx, dialect)); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			return tx.Commit()
		},
	}
}

// must runs do in a transaction and demands that it works.
func (d *database) must(do func(tx guard.Tx) error) {
	d.t.Helper()
	if err := d.within(d.t.Context(), do); err != nil {
		d.t.Fatal(err)
	}
}

func (d *database) execute(statement string) {
	d.t.Helper()
	if _, err := d.db.ExecContext(d.t.Context(), statement); err != nil {
		d.t.Fatalf("%s: %v", statement, err)
	}
}

func (d *database) number(query string) (n int64) {
	d.t.Helper()
	if err := d.db.QueryRowContext(d.t.Context(), query).Scan(&n); err != nil {
		d.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// addPoints is an effect that shows each repetition.
func addPoints(ctx context.Context, tx guard.Tx, account string, points int64) error {
	_, err := tx.Exec(ctx, `UPDATE account SET points = points + ? WHERE id = ?`, points, account)
	return err
}
