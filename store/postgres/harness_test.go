package postgres_test

import (
	"context"
	"fmt"
	"os"
	"strings"
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
		return subject(openStore(t, freshDatabase(t), options), options)
	}}
}

func subject(st *postgres.Store, options storetest.Options) *storetest.Subject[pgx.Tx] {
	names := options.Names.WithDefaults()
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
		Explain: func(ctx context.Context, statement storetest.HotStatement) (storetest.Plan, error) {
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
	st, err := postgres.Open(t.Context(), dsn, &postgres.Config{NoTrigger: options.NoTrigger, Names: options.Names})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if !options.Bare {
		if err := st.Migrate(t.Context(), store.MigrateOptions{NoTrigger: options.NoTrigger}); err != nil {
			t.Fatalf("migrate: %v", err)
		}
	}
	return st
}

var databases atomic.Int64

// freshDatabase makes a database of the test's own and returns its DSN, which
// says extra too.
func freshDatabase(t testing.TB, extra ...string) string {
	t.Helper()
	dsn := testenv.Postgres15(t)
	name := fmt.Sprintf("waybill_%d_%d", os.Getpid(), databases.Add(1))
	admin := func(ctx context.Context, statement string) {
		t.Helper()
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			t.Fatalf("connect: %v", err)
		}
		defer func() { _ = conn.Close(ctx) }()
		if _, err := conn.Exec(ctx, statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	admin(t.Context(), "CREATE DATABASE "+name+" TEMPLATE template0")
	t.Cleanup(func() { admin(context.WithoutCancel(t.Context()), "DROP DATABASE "+name+" WITH (FORCE)") })
	return withDatabase(dsn, name, extra...)
}

func withDatabase(dsn, name string, extra ...string) string {
	base, query, _ := strings.Cut(dsn, "?")
	base = base[:strings.LastIndex(base, "/")+1] + name
	return base + "?" + strings.Join(append([]string{query}, extra...), "&")
}
