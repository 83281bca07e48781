//go:build unix

package main

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/waybillhq/waybill/internal/testenv"
)

// accounts are how each kind of database makes and drops an account that may do
// nothing but log in, and how the verb wants it called.
var accounts = map[string]struct{ create, drop, own string }{
	"postgres": {"CREATE ROLE %s LOGIN PASSWORD 'pass'", "DROP ROLE %s", "%s"},
	"mysql":    {"CREATE USER '%s'@'127.0.0.1' IDENTIFIED BY 'pass'", "DROP USER '%s'@'127.0.0.1'", "%s@127.0.0.1"},
	"mariadb":  {"CREATE USER '%s'@'127.0.0.1' IDENTIFIED BY 'pass'", "DROP USER '%s'@'127.0.0.1'", "%s@127.0.0.1"},
}

// An account that has what "relay grants" prints and nothing else runs a relay,
// has its mode changed back and forth while it runs, and decides and cleans up.
func TestRelayModeWithGrantedRights(t *testing.T) {
	for _, server := range demoServers {
		t.Run(server.scheme, func(t *testing.T) {
			t.Parallel()
			where := urlOf(t, server.scheme, server.find(t))
			name, rights := fmt.Sprintf("waybill_mode_%d", os.Getpid()), accounts[server.scheme]
			script(t, server.scheme, where, "CREATE DATABASE "+name, fmt.Sprintf(rights.create, name))
			own, err := url.Parse(where)
			if err != nil {
				t.Fatal(err)
			}
			own.Path = "/" + name
			owner := own.String()
			own.User = url.UserPassword(name, "pass")
			account := own.String()
			t.Cleanup(func() {
				if server.scheme == "postgres" {
					script(t, server.scheme, owner, "DROP OWNED BY "+name)
				}
				script(t, server.scheme, where, "DROP DATABASE "+name, fmt.Sprintf(rights.drop, name))
			})
			port := strconv.Itoa(testenv.FreePorts(t, 1))
			as := func(dsn string) *shell {
				return &shell{t: t, dir: t.TempDir(), env: []string{
					"WAYBILL_STORE_KIND=" + server.scheme, "WAYBILL_STORE_DSN=" + dsn, "WAYBILL_BROKER_KIND=embedded", "WAYBILL_BROKER_PORT=" + port,
					"WAYBILL_CDC_HEARTBEAT=500ms", "WAYBILL_RELAY_LEASE_TTL=3s", "WAYBILL_RELAY_RENEW_EVERY=200ms",
				}}
			}
			mine, relays := as(owner), as(account)
			mine.run("migrate", "tables of version 3 are in place")
			grants, err := mine.command("relay grants " + fmt.Sprintf(rights.own, name)).Output()
			if err != nil {
				t.Fatalf("relay grants: %v\n%s", err, grants)
			}
			script(t, server.scheme, owner, string(grants))

			relay := relays.command("relay")
			var log lockedBuffer
			relay.Stderr = &log
			if err := relay.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = relay.Process.Kill() }()
			relays.await("status", "64 of 64", &log)
			sent := func(id, via string) {
				t.Helper()
				script(t, server.scheme, owner, fmt.Sprintf("INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, topic, payload) VALUES ('%s', 'order', 'O-1', 'OrderPlaced', 'orders', '{}')", id))
				relays.await("trace "+id, "by "+via, &log)
			}
			sent("first", "poll")
			relays.run("relay mode cdc --reason faster", "mode: cdc")
			relays.await("status", "STREAMING", &log)
			sent("second", "cdc")
			relays.run("relay mode poll --reason moved", "mode: poll")
			relays.await("status", "OFF", &log)
			sent("third", "poll")
			relays.run("relay mode config --reason done", "its own relay.mode")
			relays.run("audit list", "relay mode")
			relays.run("replay first --apply --reason again", "queued")
			relays.run("cleanup --reason tidy --retention 1ms", "")
			if err := relay.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := relay.Wait(); err != nil {
				t.Errorf("the relay stopped badly: %v\n%s", err, log.String())
			}
			if text := strings.ToLower(log.String()); strings.Contains(text, "denied") {
				t.Errorf("a right is missing:\n%s", log.String())
			}
			if out, err := relays.command("held list").CombinedOutput(); err == nil && !strings.Contains(strings.ToLower(string(out)), "denied") {
				t.Errorf("the account sees what consumers hold:\n%s", out)
			}
		})
	}
}

// script runs statements, which may have comments, on a server.
func script(t *testing.T, scheme, where string, statements ...string) {
	t.Helper()
	onServer(t, scheme, where, func(ctx context.Context, db *sql.DB) error {
		for _, text := range statements {
			var lines []string
			for line := range strings.Lines(text) {
				line, _, _ = strings.Cut(line, "-- ")
				lines = append(lines, line)
			}
			for statement := range strings.SplitSeq(strings.Join(lines, " "), ";") {
				if strings.TrimSpace(statement) == "" {
					continue
				}
				if _, err := db.ExecContext(ctx, statement); err != nil {
					return fmt.Errorf("%s: %w", strings.TrimSpace(statement), err)
				}
			}
		}
		return nil
	})
}
