package accounts

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/reconcile"
	"github.com/waybillhq/waybill/store/postgres"
)

// unlikeBytes makes PostgreSQL sort text as people do, which keys must not follow.
const unlikeBytes = " TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US' LOCALE 'C.UTF-8'"

// open makes an empty database of its own for a test.
func open(t *testing.T, dialect reconcile.Dialect) reconcile.Database {
	t.Helper()
	name := "accounts_" + strings.ToLower(rand.Text()[:10])
	var db *sql.DB
	switch dialect {
	case reconcile.SQLite:
		db = connect(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "accounts.db")+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)")
	case reconcile.Postgres:
		dsn := testenv.Postgres15(t)
		create(t, connect(t, "pgx", dsn), "CREATE DATABASE "+name+unlikeBytes, "DROP DATABASE "+name+" WITH (FORCE)")
		u, err := url.Parse(dsn)
		if err != nil {
			t.Fatal(err)
		}
		u.Path = "/" + name
		db = connect(t, "pgx", u.String())
	case reconcile.MySQL, reconcile.MariaDB:
		var dsn string
		if dialect == reconcile.MySQL {
			dsn = testenv.MySQL9(t)
		} else {
			dsn = testenv.MariaDB10(t)
		}
		create(t, connect(t, "mysql", dsn), "CREATE DATABASE "+name+" CHARACTER SET utf8mb4", "DROP DATABASE "+name)
		settings, err := mysql.ParseDSN(dsn)
		if err != nil {
			t.Fatal(err)
		}
		settings.DBName, settings.ParseTime, settings.MultiStatements = name, true, true
		settings.Params = map[string]string{"time_zone": "'+00:00'"}
		db = connect(t, "mysql", settings.FormatDSN())
	}
	d := reconcile.Database{DB: db, Dialect: dialect}
	if dialect == reconcile.Postgres {
		d.Texts = postgres.ReadTexts
	}
	return d
}

func connect(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func create(t *testing.T, db *sql.DB, up, down string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), up); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if _, err := db.ExecContext(ctx, down); err != nil {
			t.Error(err)
		}
	})
}

// types are the column types of each dialect.
var types = map[reconcile.Dialect]*strings.Replacer{
	reconcile.SQLite:   strings.NewReplacer("{text}", "TEXT", "{decimal}", "NUMERIC", "{time}", "TEXT", "{json}", "TEXT", "{binary}", "BLOB", "{uuid}", "TEXT", "{long}", "INTEGER", "{q}", `"`),
	reconcile.Postgres: strings.NewReplacer("{text}", "TEXT", "{decimal}", "NUMERIC(12, 2)", "{time}", "TIMESTAMPTZ", "{json}", "JSONB", "{binary}", "BYTEA", "{uuid}", "UUID", "{long}", "BIGINT", "{q}", `"`),
	reconcile.MySQL:    strings.NewReplacer("{text}", "VARCHAR(100) COLLATE utf8mb4_bin", "{decimal}", "DECIMAL(14, 4)", "{time}", "DATETIME(3)", "{json}", "JSON", "{binary}", "VARBINARY(100)", "{uuid}", "CHAR(36)", "{long}", "BIGINT UNSIGNED", "{q}", "`"),
	reconcile.MariaDB:  strings.NewReplacer("{text}", "VARCHAR(100) COLLATE utf8mb4_bin", "{decimal}", "DECIMAL(14, 4)", "{time}", "DATETIME(6)", "{json}", "JSON", "{binary}", "VARBINARY(100)", "{uuid}", "CHAR(36)", "{long}", "BIGINT UNSIGNED", "{q}", "`"),
}

// exec runs statements, each by itself, with the dialect's types and quotes.
func exec(t *testing.T, d reconcile.Database, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := d.DB.ExecContext(t.Context(), types[d.Dialect].Replace(statement)); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// pairs are the dialects of the write side and of the read side.
var pairs = [][2]reconcile.Dialect{
	{reconcile.SQLite, reconcile.SQLite},
	{reconcile.Postgres, reconcile.MySQL},
	{reconcile.MySQL, reconcile.Postgres},
	{reconcile.MariaDB, reconcile.SQLite},
	{reconcile.Postgres, reconcile.MariaDB},
}

func eachPair(t *testing.T, f func(t *testing.T, write, read reconcile.Database)) {
	eachOf(t, pairs, f)
}

func eachOf(t *testing.T, pairs [][2]reconcile.Dialect, f func(t *testing.T, write, read reconcile.Database)) {
	for _, pair := range pairs {
		t.Run(fmt.Sprintf("%s and %s", pair[0], pair[1]), func(t *testing.T) {
			f(t, open(t, pair[0]), open(t, pair[1]))
		})
	}
}

func run(t *testing.T, check *reconcile.Check, write, read reconcile.Database) *reconcile.Report {
	t.Helper()
	report, err := engine(t, check, write, read).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func engine(t *testing.T, check *reconcile.Check, write, read reconcile.Database) *reconcile.Engine {
	t.Helper()
	e, err := reconcile.New(*check, reconcile.Databases{"write": write, "read": read}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func listed(report *reconcile.Report) string {
	var b strings.Builder
	for _, f := range report.Findings {
		fmt.Fprintf(&b, "%s %s\n", f.Class, f.Key)
	}
	return b.String()
}
