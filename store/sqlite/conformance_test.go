package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/sqlite"
	"github.com/waybillhq/waybill/store/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, harness())
}

// TestModel drives the store and the one in memory with the same operations.
func TestModel(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			storetest.RunModel(t, storetest.Memory(), harness(), seed, modelSteps)
		})
	}
}

func Benchmark(b *testing.B) {
	storetest.Bench(b, harness())
}

func harness() storetest.Harness[*sql.Tx] {
	return storetest.Harness[*sql.Tx]{
		Open: openSubject,
		Exceptions: storetest.Exceptions{
			SingleWriter: "SQLite has one writer at a time, and BEGIN IMMEDIATE makes a second one wait",
			Schemas:      "the tables live in the main database of the file",
			Microseconds: "SQLite's strftime knows milliseconds",
		},
	}
}

// fast spares the tests the disk's time. What is durable, TestDurability tests.
const fast = "?_pragma=synchronous(off)"

func openSubject(t testing.TB, options storetest.Options) *storetest.Subject[*sql.Tx] {
	t.Helper()
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "test.db")+fast, &sqlite.Config{Names: options.Names, NoTrigger: options.NoTrigger, Head: options.Head})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	if !options.Bare {
		if err := st.Migrate(t.Context(), store.MigrateOptions{NoTrigger: options.NoTrigger, Head: options.Head}); err != nil {
			t.Fatal(err)
		}
	}
	quote := func(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
	names := options.Names.WithDefaults()
	return &storetest.Subject[*sql.Tx]{
		Outbox:   st,
		Appender: storetest.SQLAppender(st),
		Consumer: st,
		Begin:    func(ctx context.Context) (*sql.Tx, error) { return st.DB().BeginTx(ctx, nil) },
		Commit:   func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
		Rollback: func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() },
		Exec: func(ctx context.Context, tx *sql.Tx, statement storetest.Statement) error {
			_, err := tx.ExecContext(ctx, statement.SQL(quote(names.Event)))
			return err
		},
		SetSchemaVersion: func(ctx context.Context, version int) error {
			_, err := st.DB().ExecContext(ctx, "UPDATE "+quote(names.Meta)+" SET value = ? WHERE key = 'schema_version'", fmt.Sprint(version))
			return err
		},
		DropHeadTrigger: func(ctx context.Context) error {
			_, err := st.DB().ExecContext(ctx, "DROP TRIGGER "+quote(names.Event+"_head"))
			return err
		},
		Explain: func(ctx context.Context, statement storetest.HotStatement) (storetest.Plan, error) {
			return explain(ctx, st, statement)
		},
	}
}
