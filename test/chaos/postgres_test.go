package chaos

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/store/postgres"
	"github.com/waybillhq/waybill/test/lab"
)

// pair is a PostgreSQL and its standby, which has every commit before it is
// answered.
type pair struct {
	t    *testing.T
	both [2]*lab.Server
	mu   sync.Mutex // held while a server is away, and while a log is lost
	now  int        // which one is the primary
	shop *sql.DB
}

func newPair(t *testing.T) *pair {
	t.Helper()
	testenv.Postgres15(t) // the programs are there where the shared server is
	p := &pair{t: t}
	for i := range p.both {
		p.both[i] = lab.NewServer(t, "postgres15")
	}
	if err := p.both[0].Up(); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	admin := p.open("postgres")
	for _, statement := range []string{
		`CREATE DATABASE shop`, `CREATE DATABASE back`,
		`ALTER SYSTEM SET wal_retrieve_retry_interval = '100ms'`, // a standby is soon back
		`ALTER SYSTEM SET wal_keep_size = '64MB'`,                // for the standby, whatever is done to slots
		`ALTER SYSTEM SET wal_receiver_timeout = '3s'`, `ALTER SYSTEM SET wal_sender_timeout = '3s'`,
		`SELECT pg_reload_conf()`,
	} {
		if _, err := admin.ExecContext(ctx, statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	p.shop = p.open("shop")
	back := p.open("back")
	shopStore, err := postgres.Open(ctx, p.direct("shop"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = shopStore.Close() }()
	backStore, err := postgres.Open(ctx, p.direct("back"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = backStore.Close() }()
	prepare(t, p.shop, back, shopStore, backStore, "BIGSERIAL PRIMARY KEY", postgresTrace)
	if err := p.addStandby(); err != nil {
		t.Fatal(err)
	}
	return p
}

// Who writes to the queue is told by the session, who may is told by the lease.
var postgresTrace = []string{
	`
CREATE FUNCTION chaos_trace() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    changed outbox_pending := CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
BEGIN
    INSERT INTO chaos_write (event_row, who, owner, status, retries, last_error, gone)
    SELECT changed.id, current_setting('application_name'), l.owner, changed.status, changed.retry_count,
           left(COALESCE(changed.last_error, ''), 200), CASE WHEN TG_OP = 'DELETE' THEN 1 ELSE 0 END
    FROM outbox_lease l WHERE l.lane = changed.lane;
    RETURN NULL;
END $$`,
	`CREATE TRIGGER chaos_trace AFTER UPDATE OR DELETE ON outbox_pending FOR EACH ROW EXECUTE FUNCTION chaos_trace()`,
	`
CREATE FUNCTION chaos_known() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO chaos_owner (owner, who) VALUES (NEW.owner, NEW.host) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$`,
	`CREATE TRIGGER chaos_known AFTER INSERT ON outbox_relay FOR EACH ROW EXECUTE FUNCTION chaos_known()`,
}

func (p *pair) servers() []*lab.Server { return p.both[:] }

func (p *pair) dsn(addresses []string, name, database string) string {
	options := "sslmode=disable&connect_timeout=2&target_session_attrs=read-write&application_name=" + name
	if strings.HasPrefix(name, "writer") {
		options += "&lock_timeout=4000" // ms: who waits longer is blocked by somebody
	}
	return fmt.Sprintf("postgres://waybill:waybill@%s/%s?%s", strings.Join(addresses, ","), database, options)
}

// direct is the DSN that no proxy is part of.
func (p *pair) direct(database string) string {
	return p.dsn([]string{p.both[0].Address(), p.both[1].Address()}, "chaos", database)
}

func (p *pair) open(database string) *sql.DB {
	db, err := sql.Open("pgx", p.direct(database))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = db.Close() })
	return db
}

func (p *pair) admit(context.Context, string) error { return nil }

func (p *pair) great() map[string]func() error {
	alone := func(do func() error) func() error {
		return func() error {
			p.mu.Lock()
			defer p.mu.Unlock()
			return do()
		}
	}
	return map[string]func() error{
		killDatabase: alone(func() error {
			if err := p.both[p.now].Kill(); err != nil {
				return err
			}
			return p.backUp()
		}),
		restart: alone(func() error {
			if err := p.both[p.now].Down(); err != nil {
				return err
			}
			return p.backUp()
		}),
		failover: alone(p.failOver),
	}
}

// backUp starts the primary again. The processes of one that was killed may be
// there for a moment, and hold its memory.
func (p *pair) backUp() (err error) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if err = p.both[p.now].Up(); err == nil {
			return p.ready()
		}
	}
	return err
}

const streaming = `SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state IN ('sync', 'quorum')`

// ready waits until the standby has all, so that it may take over.
func (p *pair) ready() (err error) {
	db, err := sql.Open("pgx", p.dsn([]string{p.both[p.now].Address()}, "chaos", "postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		var n int
		if n, err = number(context.Background(), db, streaming); err == nil && n == 1 {
			return nil
		}
	}
	return errors.Join(errors.New("the standby does not follow"), err)
}

// failOver kills the primary, promotes the standby, and makes a new standby of
// what was the primary.
func (p *pair) failOver() error {
	if err := p.ready(); err != nil {
		return err
	}
	if err := p.both[p.now].Kill(); err != nil {
		return err
	}
	p.now = 1 - p.now
	// It is alone now: no commit may wait for another standby.
	for _, statement := range []string{`ALTER SYSTEM SET synchronous_standby_names = ''`, `SELECT pg_reload_conf()`, `SELECT pg_promote(true, 60)`} {
		if err := p.tell(statement); err != nil {
			return err
		}
	}
	return p.addStandby()
}

// tell runs a statement on the primary, or on what is to be it.
func (p *pair) tell(statement string) error {
	dsn := strings.Replace(p.dsn([]string{p.both[p.now].Address()}, "chaos", "postgres"), "&target_session_attrs=read-write", "", 1)
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(context.Background(), statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

// addStandby copies the primary, starts the copy, and has commits wait for it.
func (p *pair) addStandby() error {
	primary, standby := p.both[p.now], p.both[1-p.now]
	folder := filepath.Join(standby.Home, standby.Name)
	data := filepath.Join(folder, "data")
	// What was the primary may still be dying.
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if err = os.RemoveAll(data); err == nil {
			err = p.copyTo(primary, folder, data)
		}
		if err == nil {
			err = standby.Up()
		}
		if err == nil {
			break
		}
	}
	if err != nil {
		return err
	}
	for _, statement := range []string{`ALTER SYSTEM SET synchronous_standby_names = '*'`, `SELECT pg_reload_conf()`} {
		if err := p.tell(statement); err != nil {
			return err
		}
	}
	return p.ready()
}

func (p *pair) copyTo(primary *lab.Server, folder, data string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	command := exec.Command("/usr/lib/postgresql/15/bin/pg_basebackup", "-D", data, "-R", "-X", "stream", "-c", "fast", "-d",
		fmt.Sprintf("host=127.0.0.1 port=%d user=waybill password=waybill", primary.Port))
	command.Dir = "/"
	if os.Getuid() == 0 { // the server refuses to run as root, so the files must be another user's
		who, err := user.Lookup("postgres")
		if err != nil {
			return err
		}
		uid, _ := strconv.Atoi(who.Uid)
		gid, _ := strconv.Atoi(who.Gid)
		if err := os.Chown(folder, uid, gid); err != nil {
			return err
		}
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("pg_basebackup: %w: %s", err, out)
	}
	return nil
}
