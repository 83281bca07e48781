package mybinlog_test

import (
	"bytes"
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/waybillhq/waybill/cdc/mybinlog"
	"github.com/waybillhq/waybill/internal/testenv"
)

// patience bounds whatever should happen soon.
const patience = 30 * time.Second

// server is one that no other package uses: its log is purged, its settings are
// changed, and its readers are ended.
type server struct {
	name    string
	isMaria bool
	// needs skips where there are no programs of it.
	needs func(tb testing.TB) (environment string)

	once        sync.Once
	home        string
	environment []string
	dsn         string
	err         error
}

var servers = []*server{
	{name: "mysql9", needs: func(tb testing.TB) string { return "WAYBILL_ENV_MYSQL9_PROGRAMS=" + testenv.MySQL9Programs(tb) }},
	{name: "mariadb10", isMaria: true, needs: func(tb testing.TB) string { testenv.MariaDB10(tb); return "" }},
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, s := range servers {
		if err := s.stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// onEach runs a test on each server, side by side; the tests of one server run
// one after the other.
func onEach(t *testing.T, run func(t *testing.T, s *server)) {
	for _, s := range servers {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.start(t)
			run(t, s)
		})
	}
}

func (s *server) start(t testing.TB) {
	t.Helper()
	environment := s.needs(t)
	s.once.Do(func() { s.err = s.launch(environment) })
	if s.err != nil {
		t.Fatal(s.err)
	}
}

func (s *server) launch(environment string) (err error) {
	if s.home, err = os.MkdirTemp("", "waybill-binlog-"); err != nil {
		return err
	}
	if err := os.Chmod(s.home, 0o755); err != nil { // the server may run as another user
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	s.environment = []string{environment, fmt.Sprintf("WAYBILL_ENV_%s_PORT=%d", strings.ToUpper(s.name), port)}
	if err := s.env("up"); err != nil {
		return err
	}
	s.dsn = fmt.Sprintf("waybill:waybill@tcp(127.0.0.1:%d)/waybill?lock_wait_timeout=20", port)
	return nil
}

// freePort is one that the system does not give to clients.
func freePort() (int, error) {
	const first, count = 27000, 4000
	for i := range count {
		port := first + (os.Getpid()*7+int(taken.Add(1))*13+i)%count
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("no port is free from %d on", first)
}

func (s *server) stop() error {
	if s.home == "" {
		return nil
	}
	if err := s.env("down"); err != nil {
		return err
	}
	return os.RemoveAll(s.home)
}

// crash ends the server without a word to its clients.
func (s *server) crash() error {
	text, err := os.ReadFile(filepath.Join(s.home, s.name, "pid"))
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

func (s *server) env(verb string) error {
	command := exec.Command(filepath.Join("..", "..", "test", "env", "env"), verb, s.name)
	command.Env = append(append(os.Environ(), "WAYBILL_ENV_HOME="+s.home), s.environment...)
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", verb, s.name, err, &out)
	}
	return nil
}

var taken atomic.Int64

// database is one of a test.
type database struct {
	*server
	schema string
	dsn    string
	db     *sql.DB
}

const tablesSQL = `
CREATE TABLE outbox_event (
    id bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
    event_id varchar(128) NOT NULL UNIQUE,
    event_key varchar(255) NOT NULL DEFAULT 'k',
    price decimal(20, 4) NULL DEFAULT 12.5,
    kind enum('a', 'b') NULL DEFAULT 'b',
    flags set('x', 'y', 'z') NULL DEFAULT 'x,z',
    bits bit(12) NULL DEFAULT b'101',
    fixed char(200) NULL DEFAULT 'fixed',
    raw binary(16) NULL,
    short tinyint NULL DEFAULT 1,
    medium mediumint unsigned NULL DEFAULT 7,
    ratio double NULL DEFAULT 0.5,
    headers json NULL,
    day date NULL DEFAULT '2026-01-02',
    clock time(3) NULL DEFAULT '10:11:12.5',
    created_at datetime(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    updated_at timestamp(2) NULL DEFAULT CURRENT_TIMESTAMP(2),
    payload longblob NULL
) ENGINE = InnoDB DEFAULT CHARSET utf8mb4;
CREATE TABLE waybill_meta (` + "`key` varchar(64) NOT NULL PRIMARY KEY, `value`" + ` varchar(255) NOT NULL) ENGINE = InnoDB DEFAULT CHARSET utf8mb4;
CREATE TABLE orders (id bigint NOT NULL AUTO_INCREMENT PRIMARY KEY, note varchar(100) NULL) ENGINE = InnoDB;
CREATE TABLE untransactional (id bigint NOT NULL AUTO_INCREMENT PRIMARY KEY) ENGINE = MyISAM`

func (s *server) database(t testing.TB) *database {
	t.Helper()
	schema := fmt.Sprintf("cdc-%d`%d", os.Getpid(), taken.Add(1))
	root := connect(t, s.dsn)
	run(t, root, "CREATE DATABASE "+quote(schema))
	t.Cleanup(func() {
		if _, err := root.ExecContext(context.WithoutCancel(t.Context()), "DROP DATABASE "+quote(schema)); err != nil {
			t.Error(err)
		}
	})
	settings, err := driver.ParseDSN(s.dsn)
	if err != nil {
		t.Fatal(err)
	}
	settings.DBName = schema
	d := &database{server: s, schema: schema, dsn: settings.FormatDSN()}
	d.db = connect(t, d.dsn)
	run(t, d.db, strings.Split(tablesSQL, ";\n")...)
	return d
}

func connect(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func run(t testing.TB, on interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}, statements ...string,
) {
	t.Helper()
	for _, statement := range statements {
		if _, err := on.ExecContext(context.WithoutCancel(t.Context()), statement); err != nil {
			t.Fatalf("%.200s: %v", statement, err)
		}
	}
}

// discard ends a session that has settings of its own.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
}

func quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// set changes a setting of the whole server for the rest of a test. Connections
// made before keep theirs.
func (d *database) set(t testing.TB, name, value string) {
	t.Helper()
	var before string
	if err := d.db.QueryRowContext(t.Context(), "SELECT @@GLOBAL."+name).Scan(&before); err != nil {
		t.Fatal(err)
	}
	assign := func(value string) string {
		if _, err := strconv.Atoi(value); err != nil {
			value = "'" + value + "'"
		}
		return "SET GLOBAL " + name + " = " + value
	}
	run(t, d.db, assign(value))
	t.Cleanup(func() { run(t, d.db, assign(before)) })
}

func (d *database) source(t testing.TB) *mybinlog.Source {
	t.Helper()
	return d.sourceWith(t, d.dsn, nil)
}

func (d *database) sourceWith(t testing.TB, dsn string, config *mybinlog.Config) *mybinlog.Source {
	t.Helper()
	source, err := mybinlog.New(dsn, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := source.Close(); err != nil {
			t.Error(err)
		}
	})
	return source
}

// kill ends the readers of the log, as a network does.
func (d *database) kill(t testing.TB) {
	t.Helper()
	rows, err := d.db.QueryContext(t.Context(), "SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		_, _ = d.db.ExecContext(t.Context(), fmt.Sprintf("KILL %d", id)) // it may have gone
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

// purge removes all of the log that is written so far.
func (d *database) purge(t testing.TB) {
	t.Helper()
	run(t, d.db, "FLUSH BINARY LOGS")
	list := func() (names []string) {
		rows, err := d.db.QueryContext(t.Context(), "SHOW BINARY LOGS")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = rows.Close() }()
		columns, _ := rows.Columns()
		for rows.Next() {
			values := make([]any, len(columns))
			for i := range values {
				values[i] = new(sql.NullString)
			}
			if err := rows.Scan(values...); err != nil {
				t.Fatal(err)
			}
			names = append(names, values[0].(*sql.NullString).String)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		return names
	}
	// A reader that has just gone still keeps the file that it read.
	waitFor(t, "the log to be purged", func() bool {
		names := list()
		_, _ = d.db.ExecContext(t.Context(), "PURGE BINARY LOGS TO '"+names[len(names)-1]+"'")
		return len(list()) == 1
	})
}

func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("waited %v for %s", patience, what)
		case <-tick.C:
		}
	}
}
