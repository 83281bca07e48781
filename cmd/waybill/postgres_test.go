//go:build unix

package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill/internal/testenv"
)

// The same command over PostgreSQL, with a password that no output may show.
func TestPostgres(t *testing.T) {
	t.Parallel()
	server := os.Getenv("WAYBILL_TEST_POSTGRES15")
	if server == "" {
		if os.Getenv("WAYBILL_TEST_REQUIRED") != "" {
			t.Fatal("a PostgreSQL server is required here: set WAYBILL_TEST_POSTGRES15")
		}
		t.Skip("needs a PostgreSQL server: set WAYBILL_TEST_POSTGRES15")
	}
	dsn := newDatabase(t, server)
	port := strconv.Itoa(testenv.FreePorts(t, 1))
	p := shell{t: t, dir: t.TempDir(), env: []string{
		"WAYBILL_STORE_KIND=postgres", "WAYBILL_STORE_DSN=" + dsn, "WAYBILL_STORE_NAMES_SCHEMA=Sales-EU",
		"WAYBILL_BROKER_KIND=embedded", "WAYBILL_BROKER_PORT=" + port,
	}}
	p.run("migrate", "tables of version 3 are in place, with the queue trigger")
	p.run("migrate", "tables of version 3 are in place, with the queue trigger")

	relay := p.command("relay")
	var log lockedBuffer
	relay.Stderr = &log
	if err := relay.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = relay.Process.Kill() }()
	p.await("status", "64 of 64", &log)
	execute(t, dsn, `INSERT INTO "Sales-EU".outbox_event (event_id, aggregate_type, aggregate_id, event_type, topic, payload) VALUES ('by-hand-1', 'order', 'O-1', 'OrderPlaced', 'orders', '{}')`)
	p.await("trace by-hand-1", "id 1, SENT", &log)
	if err := relay.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := relay.Wait(); err != nil {
		t.Errorf("the relay stopped badly: %v\n%s", err, log.String())
	}
	p.run("status", "no relay is running")
	if strings.Contains(log.String(), ":waybill@") {
		t.Errorf("the log shows the password:\n%s", log.String())
	}
}

// newDatabase makes a database of its own and returns its DSN.
func newDatabase(t *testing.T, server string) string {
	t.Helper()
	name := fmt.Sprintf("waybill_cli_%d_%d", os.Getpid(), time.Now().UnixNano())
	execute(t, server, "CREATE DATABASE "+name)
	t.Cleanup(func() { execute(t, server, "DROP DATABASE "+name+" WITH (FORCE)") })
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

func execute(t *testing.T, dsn, query string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // also in a cleanup
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, query); err != nil {
		t.Fatal(err)
	}
}

// shell runs waybill in one folder and environment.
type shell struct {
	t   *testing.T
	dir string
	env []string
}

func (s *shell) command(line string) *exec.Cmd {
	cmd := exec.CommandContext(s.t.Context(), "waybill", strings.Fields(line)...)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), s.env...)
	return cmd
}

// run demands success, a part of the output, and that it keeps the password to itself.
func (s *shell) run(line, want string) {
	s.t.Helper()
	out, err := s.command(line).CombinedOutput()
	if err != nil || !strings.Contains(string(out), want) || strings.Contains(string(out), ":waybill@") {
		s.t.Fatalf("waybill %s: %v\n%s", line, err, out)
	}
}

func (s *shell) await(line, want string, log *lockedBuffer) {
	s.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		out, _ := s.command(line).CombinedOutput()
		if strings.Contains(string(out), want) {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("waybill %s never says %q:\n%s\nthe relay:\n%s", line, want, out, log.String())
		}
	}
}
