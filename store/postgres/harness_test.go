package postgres_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/postgres"
	"github.com/waybillhq/waybill/store/storetest"
)

func harness() storetest.Harness[pgx.Tx] {
	return storetest.Harness[pgx.Tx]{Open: func(t testing.TB, options storetest.Options) *storetest.Subject[pgx.Tx] {
		switch {
		case options.Names.Schema != "":
			return subject(openStore(t, freshDatabase(t), options), options)
		case options.Bare || options.Head || options.Names != (store.Names{}):
			return subject(openStore(t, freshSchema(t), options), options)
		}
		return subject(openStore(t, usedSchema(t), options), options)
	}}
}

func subject(st *postgres.Store, options storetest.Options) *storetest.Subject[pgx.Tx] {
	names := options.Names.WithDefaults()
	var once sync.Once // the first plan of the case is asked for when the tables are filled
	return &storetest.Subject[pgx.Tx]{
		Outbox:   st,
		Appender: st,
		Consumer: st,
		Begin:    func(ctx context.Context) (pgx.Tx, error) { return st.Pool().Begin(ctx) },
		Commit:   func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		Rollback: func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
		Exec: func(ctx context.Context, tx pgx.Tx, statement storetest.Statement) error {
			_, err := tx.Exec(ctx, statement.SQL(table(names.Schema, names.Event)))
			return err
		},
		SetSchemaVersion: func(ctx context.Context, version int) error {
			_, err := st.Pool().Exec(ctx, "UPDATE "+table(names.Schema, names.Meta)+" SET value = $1::integer::text WHERE key = 'schema_version'", version)
			return err
		},
		DropHeadTrigger: func(ctx context.Context) error {
			_, err := st.Pool().Exec(ctx, "DROP TRIGGER waybill_head ON "+table(names.Schema, names.Event))
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
	if schema == "" {
		return pgx.Identifier{name}.Sanitize()
	}
	return pgx.Identifier{schema, name}.Sanitize()
}

func openStore(t testing.TB, dsn string, options storetest.Options) *postgres.Store {
	t.Helper()
	st, err := postgres.Open(t.Context(), dsn, &postgres.Config{NoTrigger: options.NoTrigger, Head: options.Head, Names: options.Names})
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

// Tests that need no database of their own share one, each in a schema of its
// own that is found by search_path: making a database takes ten times as long.
var (
	shared     = fmt.Sprintf("waybill_%d", os.Getpid())
	makeShared = &sync.Once{}
	made       atomic.Int64

	// server is the one that tests are run against, one after the other.
	server = testenv.Postgres15
)

// onPostgres18 runs a test against another server than the rest.
func onPostgres18(t *testing.T, run func(t *testing.T)) {
	dsn := testenv.Postgres18(t)
	usual, once, left := server, makeShared, idle
	server, makeShared, idle = testenv.Postgres18, &sync.Once{}, nil
	defer func() {
		server, makeShared, idle = usual, once, left
		if err := dropShared(dsn); err != nil {
			t.Error(err)
		}
	}()
	t.Run("postgres18", run)
}

func TestMain(m *testing.M) {
	code := m.Run()
	if dsn := os.Getenv("WAYBILL_TEST_POSTGRES15"); dsn != "" {
		if err := dropShared(dsn); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func dropShared(dsn string) error {
	return execute(context.Background(), dsn, "DROP DATABASE IF EXISTS "+shared+" WITH (FORCE)")
}

// idle are schemas with tables that no test uses at the moment.
var (
	idleMu sync.Mutex
	idle   []string
)

var emptySQL = fmt.Sprintf(`
DELETE FROM outbox_event; DELETE FROM outbox_pending; DELETE FROM outbox_receipt; DELETE FROM outbox_event_archive;
DELETE FROM waybill_audit; DELETE FROM outbox_relay; UPDATE outbox_lease SET owner = '', fence = 0, expires_at = 'epoch';
DELETE FROM consumed_event; DELETE FROM consumer_key; DELETE FROM consumer_progress; DELETE FROM held_event;
DELETE FROM consumer_reader; DELETE FROM consumer_member; UPDATE waybill_meta SET value = '%d' WHERE key = 'schema_version';
DELETE FROM effect_call; DELETE FROM consumer_horizon; DELETE FROM cdc_position; DELETE FROM waybill_meta WHERE key = 'mode'`, store.SchemaVersion)

// usedSchema returns the DSN of a schema whose tables, if there are any, are
// empty: they are made once and used by one test after the other.
func usedSchema(t testing.TB) string {
	t.Helper()
	dsn := idleSchema()
	if dsn == "" {
		dsn = newSchema(t)
	}
	t.Cleanup(func() {
		if err := execute(context.WithoutCancel(t.Context()), dsn, emptySQL); err != nil {
			t.Error(err)
			return
		}
		idleMu.Lock()
		defer idleMu.Unlock()
		idle = append(idle, dsn)
	})
	return dsn
}

func idleSchema() (dsn string) {
	idleMu.Lock()
	defer idleMu.Unlock()
	if n := len(idle); n > 0 {
		dsn, idle = idle[n-1], idle[:n-1]
	}
	return dsn
}

// freshSchema makes an empty schema and returns a DSN for which it is the
// connection's own.
func freshSchema(t testing.TB, extra ...string) string {
	t.Helper()
	dsn := newSchema(t)
	t.Cleanup(func() {
		if err := execute(context.WithoutCancel(t.Context()), dsn, "DROP SCHEMA "+schemaOf(dsn)+" CASCADE"); err != nil {
			t.Error(err)
		}
	})
	return strings.Join(append([]string{dsn}, extra...), "&")
}

func newSchema(t testing.TB) string {
	t.Helper()
	dsn := server(t)
	var err error
	makeShared.Do(func() { err = execute(t.Context(), dsn, "CREATE DATABASE "+shared+" TEMPLATE template0") })
	if err != nil {
		t.Fatal(err)
	}
	dsn = withDatabase(dsn, shared, fmt.Sprintf("search_path=test_%d", made.Add(1)))
	if err := execute(t.Context(), dsn, "CREATE SCHEMA "+schemaOf(dsn)); err != nil {
		t.Fatal(err)
	}
	return dsn
}

func schemaOf(dsn string) string {
	_, name, _ := strings.Cut(dsn, "search_path=")
	name, _, _ = strings.Cut(name, "&")
	return name
}

// freshDatabase makes an empty database and returns its DSN.
func freshDatabase(t testing.TB, extra ...string) string {
	t.Helper()
	dsn := newDatabase(t)
	t.Cleanup(func() { dropDatabase(t, dsn) })
	return strings.Join(append([]string{dsn}, extra...), "&")
}

func newDatabase(t testing.TB) string {
	t.Helper()
	dsn := server(t)
	name := fmt.Sprintf("%s_%d", shared, made.Add(1))
	if err := execute(t.Context(), dsn, "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		t.Fatal(err)
	}
	return withDatabase(dsn, name)
}

func dropDatabase(t testing.TB, dsn string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err == nil {
		err = execute(context.WithoutCancel(t.Context()), server(t), "DROP DATABASE "+strings.TrimPrefix(u.Path, "/")+" WITH (FORCE)")
	}
	if err != nil {
		t.Error(err)
	}
}

// execute runs one statement on a connection of its own.
func execute(ctx context.Context, dsn, statement string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, statement, pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

// withDatabase returns the DSN with another database, and extra settings.
func withDatabase(dsn, name string, extra ...string) string {
	base, query, _ := strings.Cut(dsn, "?")
	base = base[:strings.LastIndex(base, "/")+1] + name
	return base + "?" + strings.Join(append([]string{query}, extra...), "&")
}
