package blocking

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/mysql"
	"github.com/waybillhq/waybill/store/postgres"
	"github.com/waybillhq/waybill/store/sqlite"
	"github.com/waybillhq/waybill/test/lab"
)

// A database holds the application's accounts and an outbox. Store and
// application have sessions of their own but where the kind says otherwise, and
// either gives up a lock after a second.
type database struct {
	outbox store.Outbox
	app    *sql.DB
	writer *outbox.Writer[store.SQLTx]
	rebind func(string) string

	// session returns the number by which the server knows a session, and waits
	// tells which of these sessions wait for a lock just now.
	session string
	waits   func(sessions []string) string

	// standing makes every transaction of the store that deletes events, or
	// writes receipts, stand still before its end for as long as the lock is
	// held; these take the lock, free it, and count who stands.
	standing                       []string
	holdSQL, freeSQL, standsStillQ string
}

// A kind of database.
type kind struct {
	name string
	open func(tb testing.TB) *database
}

// concurrent are the databases with more than one writer.
var concurrent = []kind{
	{"postgres15", openPostgres},
	{"mysql9", func(tb testing.TB) *database { return openMySQL(tb, testenv.MySQL9(tb)) }},
	{"mariadb10", func(tb testing.TB) *database { return openMySQL(tb, testenv.MariaDB10(tb)) }},
}

// serial are the ways to use a database with one writer.
var serial = []kind{
	{"sqlite", func(tb testing.TB) *database { return openSQLite(tb, false) }},
	{"sqlite, relay with connections of its own", func(tb testing.TB) *database { return openSQLite(tb, true) }},
}

func openPostgres(tb testing.TB) *database {
	tb.Helper()
	dsn := lab.Postgres15(tb)
	limited := with(tb, dsn, "lock_timeout", "1000")
	st, err := postgres.Open(tb.Context(), limited, nil)
	if err != nil {
		tb.Fatal(err)
	}
	d := &database{
		outbox: st, writer: outbox.NewWriter(st.SQL(), nil), app: connect(tb, "pgx", limited),
		rebind:  func(query string) string { return numbered(query) },
		session: "SELECT pg_backend_pid()",
		waits: func(sessions []string) string {
			// To make a table longer takes a lock too, from whoever does the same.
			return `SELECT a.query || ' waits for ' || COALESCE((SELECT string_agg(b.query, ' and ') FROM pg_stat_activity b WHERE b.pid = ANY (pg_blocking_pids(a.pid))), 'nobody')
				FROM pg_stat_activity a WHERE a.wait_event_type = 'Lock' AND a.wait_event <> 'extend' AND a.pid IN (` + strings.Join(sessions, ", ") + ")"
		},
		standing: []string{
			`CREATE FUNCTION stand() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN
				PERFORM set_config(''lock_timeout'', ''0'', true); PERFORM pg_advisory_xact_lock(1); RETURN NULL; END'`,
			"CREATE TRIGGER stand AFTER DELETE ON outbox_event FOR EACH STATEMENT EXECUTE FUNCTION stand()",
			"CREATE TRIGGER stand AFTER INSERT ON outbox_receipt FOR EACH STATEMENT EXECUTE FUNCTION stand()",
		},
		holdSQL: "SELECT pg_advisory_lock(1)", freeSQL: "SELECT pg_advisory_unlock(1)",
		standsStillQ: "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
	}
	d.prepare(tb, st)
	return d
}

func openMySQL(tb testing.TB, admin string) *database {
	tb.Helper()
	dsn := lab.MySQL(tb, admin)
	limited := dsn + "?innodb_lock_wait_timeout=1"
	st, err := mysql.Open(tb.Context(), limited, nil)
	if err != nil {
		tb.Fatal(err)
	}
	name := dsn[strings.LastIndex(dsn, "/")+1:] // user locks are the whole server's
	wait := "DO GET_LOCK('" + name + "', 100)"
	d := &database{
		outbox: st, writer: outbox.NewWriter[store.SQLTx](st, nil), app: connect(tb, "mysql", limited),
		rebind:  func(query string) string { return query },
		session: "SELECT CONNECTION_ID()",
		waits: func(sessions []string) string {
			return "SELECT COALESCE(trx_query, '?') FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT' AND trx_mysql_thread_id IN (" + strings.Join(sessions, ", ") + ")"
		},
		standing: []string{
			"CREATE TRIGGER stand_event AFTER DELETE ON outbox_event FOR EACH ROW IF OLD.aggregate_id = 'last' THEN " + wait + "; DO RELEASE_LOCK('" + name + "'); END IF",
			"CREATE TRIGGER stand_receipt AFTER INSERT ON outbox_receipt FOR EACH ROW IF NEW.event_id = 'last' THEN " + wait + "; DO RELEASE_LOCK('" + name + "'); END IF",
		},
		holdSQL: "SELECT GET_LOCK('" + name + "', 0)", freeSQL: "SELECT RELEASE_LOCK('" + name + "')",
		standsStillQ: "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User lock' AND db = '" + name + "'",
	}
	d.prepare(tb, st)
	return d
}

func openSQLite(tb testing.TB, apart bool) *database {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "shop.db")
	open := func() *sqlite.Store {
		st, err := sqlite.Open(tb.Context(), path, nil)
		if err != nil {
			tb.Fatal(err)
		}
		return st
	}
	st := open()
	app := st
	if apart {
		app = open()
		tb.Cleanup(func() { _ = app.Close() })
	}
	d := &database{
		outbox: st, writer: outbox.NewWriter[store.SQLTx](app, nil), app: app.DB(),
		rebind: func(query string) string { return query },
	}
	d.prepare(tb, st)
	return d
}

func (d *database) prepare(tb testing.TB, schema store.Schema) {
	tb.Helper()
	tb.Cleanup(func() { _ = schema.Close() })
	if err := schema.Migrate(tb.Context(), store.MigrateOptions{}); err != nil {
		tb.Fatal(err)
	}
	d.exec(tb, "CREATE TABLE account (id INTEGER NOT NULL PRIMARY KEY, balance BIGINT NOT NULL, version BIGINT NOT NULL)")
	for id := range accounts {
		d.exec(tb, fmt.Sprintf("INSERT INTO account VALUES (%d, 0, 0)", id))
	}
}

func (d *database) exec(tb testing.TB, statement string) {
	tb.Helper()
	if _, err := d.app.ExecContext(tb.Context(), statement); err != nil {
		tb.Fatalf("%s: %v", statement, err)
	}
}

func (d *database) texts(ctx context.Context, query string) (all []string, err error) {
	rows, err := d.app.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, rows.Err()
}

func connect(tb testing.TB, driver, dsn string) *sql.DB {
	tb.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

func with(tb testing.TB, dsn, name, value string) string {
	tb.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		tb.Fatal(err)
	}
	query := u.Query()
	query.Set(name, value)
	u.RawQuery = query.Encode()
	return u.String()
}

// numbered writes the parameters of a query as PostgreSQL does.
func numbered(query string) string {
	var b strings.Builder
	n := 0
	for _, r := range query {
		if r == '?' {
			n++
			fmt.Fprintf(&b, "$%d", n)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
