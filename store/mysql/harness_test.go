package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/mysql"
	"github.com/waybillhq/waybill/store/storetest"
)

// servers are the databases that everything is run against.
var servers = []struct {
	name     string
	variable string
	dsn      func(tb testing.TB) string
}{
	{"mysql9", "WAYBILL_TEST_MYSQL9", testenv.MySQL9},
	{"mariadb10", "WAYBILL_TEST_MARIADB10", testenv.MariaDB10},
}

// onEach runs a test against each server, side by side.
func onEach(t *testing.T, run func(t *testing.T, s server)) {
	for _, s := range servers {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			run(t, server{s.name, s.dsn(t)})
		})
	}
}

// server makes databases on one server.
type server struct{ name, dsn string }

func (s server) harness() storetest.Harness[*sql.Tx] {
	return storetest.Harness[*sql.Tx]{Open: func(t testing.TB, options storetest.Options) *storetest.Subject[*sql.Tx] {
		if options.Names.Schema != "" {
			s.drop(t, options.Names.Schema)
			t.Cleanup(func() { s.drop(t, options.Names.Schema) })
		}
		if strings.HasPrefix(t.Name(), "TestRelay") || options.Bare || options.Head || options.Names != (store.Names{}) {
			return subject(openStore(t, s.freshDatabase(t), options), options)
		}
		return subject(openStore(t, s.usedDatabase(t), options), options)
	}, Exceptions: storetest.Exceptions{
		Reuse: "InnoDB locks the neighbours of an id that it finds deleted and not yet purged",
	}}
}

func subject(st *mysql.Store, options storetest.Options) *storetest.Subject[*sql.Tx] {
	names := options.Names.WithDefaults()
	var once sync.Once // the first plan of the case is asked for when the tables are filled
	return &storetest.Subject[*sql.Tx]{
		Outbox:   st,
		Appender: storetest.SQLAppender(st),
		Consumer: st,
		// As applications do that leave the server's default as it is.
		Begin: func(ctx context.Context) (*sql.Tx, error) {
			return st.DB().BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		},
		Commit:   func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
		Rollback: func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() },
		Exec: func(ctx context.Context, tx *sql.Tx, statement storetest.Statement) error {
			_, err := tx.ExecContext(ctx, statement.SQL(table(names.Schema, names.Event)))
			return err
		},
		SetSchemaVersion: func(ctx context.Context, version int) error {
			_, err := st.DB().ExecContext(ctx, "UPDATE "+table(names.Schema, names.Meta)+" SET `value` = ? WHERE `key` = 'schema_version'", fmt.Sprint(version))
			return err
		},
		DropHeadTrigger: func(ctx context.Context) error {
			_, err := st.DB().ExecContext(ctx, "DROP TRIGGER "+table(names.Schema, names.Event+"_head"))
			return err
		},
		Explain: func(ctx context.Context, statement storetest.HotStatement) (plan storetest.Plan, err error) {
			once.Do(func() { err = analyze(ctx, st) })
			if err != nil {
				return storetest.Plan{}, err
			}
			return explain(ctx, st, statement)
		},
	}
}

func table(schema, name string) string {
	quoted := "`" + strings.ReplaceAll(name, "`", "``") + "`"
	if schema == "" {
		return quoted
	}
	return "`" + strings.ReplaceAll(schema, "`", "``") + "`." + quoted
}

// testWindow is shorter than the default, so that the suite sees it end, and
// longer than a case leaves a transaction open.
const testWindow = 5 * time.Second

func openStore(t testing.TB, dsn string, options storetest.Options) *mysql.Store {
	t.Helper()
	st, err := mysql.Open(t.Context(), dsn, &mysql.Config{NoTrigger: options.NoTrigger, Head: options.Head, Names: options.Names, CommitWindow: testWindow})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if !options.Bare {
		if err := st.Migrate(t.Context(), store.MigrateOptions{NoTrigger: options.NoTrigger, Head: options.Head}); err != nil {
			t.Fatalf("migrate: %v", err)
		}
	}
	return st
}

var (
	prefix = fmt.Sprintf("waybill_%d_", os.Getpid())
	made   atomic.Int64

	idleMu sync.Mutex
	idle   = make(map[string][]string) // by server
)

func TestMain(m *testing.M) {
	code := m.Run()
	for _, s := range servers {
		for _, dsn := range idle[s.name] {
			settings, err := driver.ParseDSN(dsn)
			if err == nil {
				err = execute(context.Background(), os.Getenv(s.variable), "DROP DATABASE IF EXISTS "+table("", settings.DBName))
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = 1
			}
		}
	}
	os.Exit(code)
}

// empty makes all tables of a database as they were after the migration. It
// deletes, because to truncate takes the server ten times as long.
func empty(ctx context.Context, dsn string) error {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	rows, err := db.QueryContext(ctx, "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_TYPE = 'BASE TABLE'")
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var statements []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return err
		}
		switch name {
		case "outbox_lease":
			statements = append(statements, "UPDATE outbox_lease SET owner = '', fence = 0, expires_at = '1970-01-01'")
		case "waybill_meta":
			statements = append(statements, fmt.Sprintf("UPDATE waybill_meta SET `value` = '%d' WHERE `key` = 'schema_version'", store.SchemaVersion),
				"DELETE FROM waybill_meta WHERE `key` = 'mode'")
		default:
			statements = append(statements, "DELETE FROM "+table("", name))
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return execute(ctx, dsn, statements...)
}

// usedDatabase returns the DSN of a database whose tables, if there are any, are
// empty: they are made once and used by one test after the other.
func (s server) usedDatabase(t testing.TB) string {
	t.Helper()
	dsn := s.idleDatabase()
	if dsn == "" {
		dsn = s.newDatabase(t)
	}
	t.Cleanup(func() {
		if err := empty(context.WithoutCancel(t.Context()), dsn); err != nil {
			t.Error(err)
			return
		}
		idleMu.Lock()
		defer idleMu.Unlock()
		idle[s.name] = append(idle[s.name], dsn)
	})
	return dsn
}

func (s server) idleDatabase() (dsn string) {
	idleMu.Lock()
	defer idleMu.Unlock()
	if n := len(idle[s.name]); n > 0 {
		dsn, idle[s.name] = idle[s.name][n-1], idle[s.name][:n-1]
	}
	return dsn
}

// freshDatabase makes an empty database and returns its DSN.
func (s server) freshDatabase(t testing.TB) string {
	t.Helper()
	dsn := s.newDatabase(t)
	settings, _ := driver.ParseDSN(dsn)
	t.Cleanup(func() { s.drop(t, settings.DBName) })
	return dsn
}

func (s server) newDatabase(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("%s%d", prefix, made.Add(1))
	s.run(t, "CREATE DATABASE "+name)
	return s.withDatabase(t, name)
}

func (s server) withDatabase(t testing.TB, name string) string {
	t.Helper()
	settings, err := driver.ParseDSN(s.dsn)
	if err != nil {
		t.Fatal(err)
	}
	settings.DBName = name
	return settings.FormatDSN()
}

func (s server) drop(t testing.TB, name string) {
	t.Helper()
	s.run(t, "DROP DATABASE IF EXISTS "+table("", name))
}

// run runs statements on a connection of the test's own, as an administrator.
func (s server) run(t testing.TB, statements ...string) {
	t.Helper()
	if err := execute(context.WithoutCancel(t.Context()), s.dsn, statements...); err != nil {
		t.Fatal(err)
	}
}

// execute runs statements on one connection.
func execute(ctx context.Context, dsn string, statements ...string) error {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}
