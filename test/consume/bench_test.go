package consume

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/mysql"
	"github.com/waybillhq/waybill/store/postgres"
	"github.com/waybillhq/waybill/store/sqlite"
	"github.com/waybillhq/waybill/test/lab"
)

// bench is a database with a table of effects, and how to reach it.
type bench[TX any] struct {
	st     store.Consumer[TX]
	exec   func(ctx context.Context, tx TX, query string) error
	alter  func(ctx context.Context, statement string) error // in no transaction
	effect func(ctx context.Context, tx TX, e *waybill.Event) error
	rows   func(ctx context.Context) (ids []string, err error) // in the order of their effects
}

func sqliteBench(t *testing.T) bench[*sql.Tx] {
	t.Helper()
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "consume.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	return sqlBench(t, st, st.DB(), "INTEGER PRIMARY KEY AUTOINCREMENT")
}

func mysqlBench(t *testing.T, admin string) bench[*sql.Tx] {
	t.Helper()
	st, err := mysql.Open(t.Context(), lab.MySQL(t, admin), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	return sqlBench(t, st, st.DB(), "BIGINT AUTO_INCREMENT PRIMARY KEY")
}

func sqlBench(t *testing.T, st store.Consumer[*sql.Tx], db *sql.DB, serial string) bench[*sql.Tx] {
	t.Helper()
	migrate(t, st)
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE effect (seq "+serial+", event_id VARCHAR(128) NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	return bench[*sql.Tx]{
		st: st,
		exec: func(ctx context.Context, tx *sql.Tx, query string) error {
			_, err := tx.ExecContext(ctx, query)
			return err
		},
		alter: func(ctx context.Context, statement string) error {
			_, err := db.ExecContext(ctx, statement)
			return err
		},
		effect: func(ctx context.Context, tx *sql.Tx, e *waybill.Event) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO effect (event_id) VALUES (?)", e.ID)
			return err
		},
		rows: func(ctx context.Context) (ids []string, err error) {
			rows, err := db.QueryContext(ctx, "SELECT event_id FROM effect ORDER BY seq")
			if err != nil {
				return nil, err
			}
			defer func() { _ = rows.Close() }()
			for rows.Next() {
				var id string
				if err := rows.Scan(&id); err != nil {
					return nil, err
				}
				ids = append(ids, id)
			}
			return ids, rows.Err()
		},
	}
}

func postgresBench(t *testing.T) bench[pgx.Tx] {
	t.Helper()
	st, err := postgres.Open(t.Context(), lab.Postgres15(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	migrate(t, st)
	if _, err := st.Pool().Exec(t.Context(), "CREATE TABLE effect (seq BIGSERIAL PRIMARY KEY, event_id TEXT NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	return overPostgres(st)
}

// overPostgres is the bench of a database that has its tables.
func overPostgres(st *postgres.Store) bench[pgx.Tx] {
	return bench[pgx.Tx]{
		st: st,
		exec: func(ctx context.Context, tx pgx.Tx, query string) error {
			_, err := tx.Exec(ctx, query)
			return err
		},
		alter: func(ctx context.Context, statement string) error {
			_, err := st.Pool().Exec(ctx, statement)
			return err
		},
		effect: func(ctx context.Context, tx pgx.Tx, e *waybill.Event) error {
			_, err := tx.Exec(ctx, "INSERT INTO effect (event_id) VALUES ($1)", e.ID)
			return err
		},
		rows: func(ctx context.Context) ([]string, error) {
			rows, err := st.Pool().Query(ctx, "SELECT event_id FROM effect ORDER BY seq")
			if err != nil {
				return nil, err
			}
			return pgx.CollectRows(rows, pgx.RowTo[string])
		},
	}
}

func migrate(t *testing.T, st store.Schema) {
	t.Helper()
	if err := st.Migrate(t.Context(), store.MigrateOptions{SkipOutbox: true}); err != nil {
		t.Fatal(err)
	}
}
