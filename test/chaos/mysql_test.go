package chaos

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/store/mysql"
	"github.com/waybillhq/waybill/test/lab"
)

// single is one MySQL.
type single struct {
	t      *testing.T
	server *lab.Server
	admin  *sql.DB
}

func newSingle(t *testing.T) *single {
	t.Helper()
	s := &single{t: t, server: lab.NewServer(t, "mysql9", "WAYBILL_ENV_MYSQL9_PROGRAMS="+testenv.MySQL9Programs(t))}
	if err := s.server.Up(); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	s.admin = s.open("")
	for _, statement := range []string{`CREATE DATABASE shop CHARACTER SET utf8mb4`, `CREATE DATABASE back CHARACTER SET utf8mb4`} {
		if _, err := s.admin.ExecContext(ctx, statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	shopStore, err := mysql.Open(ctx, s.direct("shop"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = shopStore.Close() }()
	backStore, err := mysql.Open(ctx, s.direct("back"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = backStore.Close() }()
	prepare(t, s.open("shop"), s.open("back"), shopStore, backStore, "BIGINT AUTO_INCREMENT PRIMARY KEY", mysqlTrace)
	return s
}

// Each process has an account of its own, so that the session tells who writes.
var mysqlTrace = []string{
	fmt.Sprintf(`CREATE TRIGGER chaos_changed AFTER UPDATE ON outbox_pending FOR EACH ROW `+mysqlInsert, "NEW", 0),
	fmt.Sprintf(`CREATE TRIGGER chaos_gone AFTER DELETE ON outbox_pending FOR EACH ROW `+mysqlInsert, "OLD", 1),
	`CREATE TRIGGER chaos_known AFTER INSERT ON outbox_relay FOR EACH ROW INSERT IGNORE INTO chaos_owner (owner, who) VALUES (NEW.owner, NEW.host)`,
}

const mysqlInsert = `
INSERT INTO chaos_write (event_row, who, owner, status, retries, last_error, gone)
SELECT %[1]s.id, SUBSTRING_INDEX(USER(), '@', 1), l.owner, %[1]s.status, %[1]s.retry_count, LEFT(COALESCE(%[1]s.last_error, ''), 200), %[2]d
FROM outbox_lease l WHERE l.lane = %[1]s.lane`

func (s *single) servers() []*lab.Server { return []*lab.Server{s.server} }

func (s *single) dsn(addresses []string, name, database string) string {
	options := "timeout=2s"
	if strings.HasPrefix(name, "writer") {
		options += "&readTimeout=8s&innodb_lock_wait_timeout=4" // s: who waits longer is blocked by somebody
	}
	return fmt.Sprintf("%s:waybill@tcp(%s)/%s?%s", name, addresses[0], database, options)
}

func (s *single) direct(database string) string {
	return fmt.Sprintf("waybill:waybill@tcp(%s)/%s", s.server.Address(), database)
}

func (s *single) open(database string) *sql.DB {
	db, err := sql.Open("mysql", s.direct(database))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = db.Close() })
	return db
}

func (s *single) admit(ctx context.Context, name string) error {
	for _, statement := range []string{
		fmt.Sprintf(`CREATE USER IF NOT EXISTS '%s'@'127.0.0.1' IDENTIFIED BY 'waybill'`, name),
		fmt.Sprintf(`GRANT ALL PRIVILEGES ON *.* TO '%s'@'127.0.0.1'`, name),
	} {
		if _, err := s.admin.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func (s *single) great() map[string]func() error {
	return map[string]func() error{
		killDatabase: func() error {
			if err := s.server.Kill(); err != nil {
				return err
			}
			return s.server.Up()
		},
		restart: func() error { return errors.Join(s.server.Down(), s.server.Up()) },
	}
}

func (s *single) ready() (err error) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if err = s.admin.PingContext(context.Background()); err == nil {
			return nil
		}
	}
	return err
}
