package plain

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
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

// producers are the programs, and how each is run; they skip where they cannot.
var producers = []struct {
	name     string
	file     string
	sqlite   func(t *testing.T, file string) *exec.Cmd
	postgres func(t *testing.T, dsn *url.URL, schema string) *exec.Cmd // nil where it would be another program
}{
	{
		name: "Python", file: "order.py",
		sqlite: func(t *testing.T, file string) *exec.Cmd { return command(t, "python3", "order.py", file) },
	},
	{
		name: "Java", file: "Order.java",
		sqlite: func(t *testing.T, file string) *exec.Cmd {
			return java(t, "sqlite-jdbc.jar", "libxerial-sqlite-jdbc-java", "jdbc:sqlite:"+file)
		},
		postgres: func(t *testing.T, dsn *url.URL, schema string) *exec.Cmd {
			password, _ := dsn.User.Password()
			query := url.Values{"user": {dsn.User.Username()}, "password": {password}, "currentSchema": {schema}}
			return java(t, "postgresql.jar", "libpostgresql-jdbc-java", "jdbc:postgresql://"+dsn.Host+dsn.Path+"?"+query.Encode())
		},
	},
	{
		name: "PHP", file: "order.php",
		sqlite: func(t *testing.T, file string) *exec.Cmd { return php(t, "pdo_sqlite", "sqlite:"+file) },
		postgres: func(t *testing.T, dsn *url.URL, schema string) *exec.Cmd {
			password, _ := dsn.User.Password()
			return php(t, "pdo_pgsql", fmt.Sprintf("pgsql:host=%s;port=%s;dbname=%s;user=%s;password=%s;options='--search_path=%s'",
				dsn.Hostname(), dsn.Port(), strings.TrimPrefix(dsn.Path, "/"), dsn.User.Username(), password, schema))
		},
	},
}

// java runs the program with a JDBC driver as Debian installs it.
func java(t *testing.T, driver, pkg, database string) *exec.Cmd {
	t.Helper()
	program(t, "javac")
	cmd := command(t, "java", "Order.java", database)
	driver = filepath.Join("/usr/share/java", driver)
	if _, err := os.Stat(driver); err != nil {
		t.Skipf("there is no %s: install %s", driver, pkg)
	}
	cmd.Env = append(os.Environ(), "CLASSPATH="+driver)
	return cmd
}

func php(t *testing.T, extension, database string) *exec.Cmd {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), program(t, "php"), "-m").Output(); err != nil || !strings.Contains(string(out), extension) {
		t.Skipf("php has no %s (%v)", extension, err)
	}
	return command(t, "php", "order.php", database)
}

func command(t *testing.T, interpreter, file, database string) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(t.Context(), program(t, interpreter), file, database, "O-1", "2")
}

func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("there is no %s to run the example with", name)
	}
	return path
}

func TestProgramsProduceEventsOnSQLite(t *testing.T) {
	for _, p := range producers {
		t.Run(p.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "orders.db")
			st := openSQLite(t, file)
			checkProgram(t, p.sqlite(t, file), st, st.DB(), "orders")
		})
	}
}

func TestProgramsProduceEventsOnPostgres(t *testing.T) {
	dsn, err := url.Parse(testenv.Postgres15(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range producers {
		if p.postgres == nil {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			st, db, schema := openPostgres(t)
			table := strings.Replace(ordersTable, "orders", schema+".orders", 1)
			execute(t, db, table, `INSERT INTO `+schema+`.orders (id, status, version) VALUES ('O-1', 'NEW', 1)`)
			checkProgram(t, p.postgres(t, dsn, schema), st, db, schema+".orders")
		})
	}
}

// checkProgram runs a program, which prints the id of its event.
func checkProgram(t *testing.T, cmd *exec.Cmd, st store.Inspector, db *sql.DB, orders string) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	checkProduced(t, st, strings.TrimSpace(string(out)))
	var status string
	if err := db.QueryRowContext(t.Context(), `SELECT status FROM `+orders+` WHERE id = 'O-1'`).Scan(&status); err != nil || status != "PAID" {
		t.Errorf("the order is %q (%v), want PAID", status, err)
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
	for _, p := range producers {
		t.Run(p.name, func(t *testing.T) {
			st, db, schema := openPostgres(t)
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
	execute(t, st.DB(), ordersTable, `INSERT INTO orders (id, status, version) VALUES ('O-1', 'NEW', 1)`)
	return st
}

// openPostgres makes the tables in a schema of their own.
func openPostgres(t *testing.T) (st *postgres.Store, db *sql.DB, schema string) {
	t.Helper()
	schema = "plain_" + strings.ReplaceAll(waybill.NewID(), "-", "")
	st, err := postgres.Open(t.Context(), testenv.Postgres15(t), &postgres.Config{Names: store.Names{Schema: schema}})
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
	db = stdlib.OpenDBFromPool(st.Pool())
	t.Cleanup(func() { _ = db.Close() })
	return st, db, schema
}

func execute(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}
