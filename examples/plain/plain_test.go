package plain

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/postgres"
	"github.com/waybillhq/waybill/store/sqlite"
)

const ordersTable = `CREATE TABLE orders (id TEXT PRIMARY KEY, status TEXT NOT NULL, version BIGINT NOT NULL)`

// producers are the programs, and how each is run on a SQLite file.
var producers = []struct {
	name string
	file string
	run  func(t *testing.T, database string) *exec.Cmd // skips where it cannot
}{
	{"Python", "order.py", func(t *testing.T, database string) *exec.Cmd {
		return exec.CommandContext(t.Context(), program(t, "python3"), "order.py", database, "O-1", "2")
	}},
	{"Java", "Order.java", func(t *testing.T, database string) *exec.Cmd {
		java := program(t, "java")
		if program(t, "javac"); os.Getenv("CLASSPATH") == "" {
			const driver = "/usr/share/java/sqlite-jdbc.jar" // Debian: libxerial-sqlite-jdbc-java
			if _, err := os.Stat(driver); err != nil {
				t.Skip("there is no JDBC driver for SQLite: install libxerial-sqlite-jdbc-java, or set CLASSPATH")
			}
			t.Setenv("CLASSPATH", driver)
		}
		return exec.CommandContext(t.Context(), java, "Order.java", "jdbc:sqlite:"+database, "O-1", "2")
	}},
	{"PHP", "order.php", func(t *testing.T, database string) *exec.Cmd {
		php := program(t, "php")
		if out, err := exec.CommandContext(t.Context(), php, "-m").Output(); err != nil || !strings.Contains(string(out), "pdo_sqlite") {
			t.Skipf("php has no pdo_sqlite: install php-sqlite3 (%v)", err)
		}
		return exec.CommandContext(t.Context(), php, "order.php", "sqlite:"+database, "O-1", "2")
	}},
}

func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("there is no %s to run the example with", name)
	}
	return path
}

func TestProgramsProduceEvents(t *testing.T) {
	for _, p := range producers {
		t.Run(p.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "orders.db")
			st := openSQLite(t, file)
			out, err := p.run(t, file).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			checkProduced(t, st, strings.TrimSpace(string(out)))
			var status string
			if err := st.DB().QueryRowContext(t.Context(), `SELECT status FROM orders WHERE id = 'O-1'`).Scan(&status); err != nil || status != "PAID" {
				t.Errorf("the order is %q (%v), want PAID", status, err)
			}
		})
	}
}

// The statements are what counts, and they can be run where no interpreter is.
func TestStatementsProduceEventsOnSQLite(t *testing.T) {
	for _, p := range producers {
		t.Run(p.name, func(t *testing.T) {
			st := openSQLite(t, filepath.Join(t.TempDir(), "orders.db"))
			checkStatement(t, st, st.DB(), p.file)
		})
	}
}

func TestStatementsProduceEventsOnPostgres(t *testing.T) {
	dsn := testenv.Postgres15(t)
	for _, p := range producers {
		t.Run(p.name, func(t *testing.T) {
			schema := "plain_" + strings.ReplaceAll(waybill.NewID(), "-", "")
			st, err := postgres.Open(t.Context(), dsn, &postgres.Config{Names: store.Names{Schema: schema}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_, err := st.Pool().Exec(context.Background(), "DROP SCHEMA "+schema+" CASCADE")
				if err = errors.Join(err, st.Close()); err != nil {
					t.Error(err)
				}
			})
			if err := st.Migrate(t.Context(), store.MigrateOptions{SkipInbox: true}); err != nil {
				t.Fatal(err)
			}
			db := stdlib.OpenDBFromPool(st.Pool())
			t.Cleanup(func() { _ = db.Close() })
			checkStatement(t, st, db, p.file, "INTO outbox_event", "INTO "+schema+".outbox_event")
		})
	}
}

func checkStatement(t *testing.T, st store.Inspector, db *sql.DB, file string, replace ...string) {
	t.Helper()
	statement := strings.NewReplacer(replace...).Replace(insertOf(t, file))
	for n := 1; strings.Contains(statement, "?"); n++ {
		statement = strings.Replace(statement, "?", "$"+string(rune('0'+n)), 1)
	}
	if _, err := db.ExecContext(t.Context(), statement, "id-of-"+file, "O-1", 2, []byte(`{"orderId":"O-1"}`)); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	checkProduced(t, st, "id-of-"+file)
}

var (
	literals = regexp.MustCompile(`"\s*\+?\s*"`)
	insert   = regexp.MustCompile(`(?s)"(INSERT INTO outbox_event.*?)"`)
)

// insertOf returns the statement in a program's source.
func insertOf(t *testing.T, file string) string {
	t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found := insert.FindSubmatch(literals.ReplaceAll(source, nil))
	if found == nil {
		t.Fatalf("%s has no INSERT INTO outbox_event", file)
	}
	return string(found[1])
}

// checkProduced looks for one queued event, complete with what was left out.
func checkProduced(t *testing.T, st store.Inspector, id string) {
	t.Helper()
	found, err := st.Find(t.Context(), store.Filter{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 || found[0].Row == nil {
		t.Fatalf("found %+v, want one queued event", found)
	}
	e := found[0].Event
	if e.ID != id || e.Type != "OrderPaid" || e.Topic != "orders" || e.AggregateType != "order" || e.AggregateID != "O-1" || e.AggregateVersion != 2 {
		t.Errorf("event %+v, want id %s", e, id)
	}
	if e.EffectiveKey() != "O-1" || strings.ReplaceAll(string(e.Data), " ", "") != `{"orderId":"O-1"}` {
		t.Errorf("key %q, data %s", e.EffectiveKey(), e.Data)
	}
}

func openSQLite(t *testing.T, file string) *sqlite.Store {
	t.Helper()
	st, err := sqlite.Open(t.Context(), file, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := st.Migrate(t.Context(), store.MigrateOptions{SkipInbox: true}); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{ordersTable, `INSERT INTO orders (id, status, version) VALUES ('O-1', 'NEW', 1)`} {
		if _, err := st.DB().ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return st
}
