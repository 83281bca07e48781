//go:build unix

package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/waybillhq/waybill/broker/natsjs"
	"github.com/waybillhq/waybill/internal/testenv"
)

// demoServers are the databases that the demo plays on, by the name of their
// kind in a URL, with where they are and how their databases are listed.
var demoServers = []struct {
	scheme string
	find   func(testing.TB) string
	list   string
}{
	{"postgres", testenv.Postgres15, "SELECT datname FROM pg_database"},
	{"mysql", testenv.MySQL9, "SELECT schema_name FROM information_schema.schemata"},
	{"mariadb", testenv.MariaDB10, "SELECT schema_name FROM information_schema.schemata"},
}

// The proof is the same on servers. Without --keep their databases are as
// before; with it the kept one answers questions, and is the only new one.
func TestDemoOnServers(t *testing.T) {
	for _, server := range demoServers {
		for _, broker := range []string{"kafka", "nats"} {
			t.Run(server.scheme+" and "+broker, func(t *testing.T) {
				t.Parallel()
				where := urlOf(t, server.scheme, server.find(t))
				brokerURL := demoBroker(t, broker)
				keep := ""
				if broker == "nats" {
					keep = t.TempDir()
				}
				result := playOnServers(t, where, brokerURL, keep)
				for name, want := range map[string]int{
					"events": 100, "applied": 99, "dead": 1, "lost": 0, "order_violations": 0, "double_effects": 0, "phantoms": 0,
					"read_model_differences": 0, "unsettled": 0, "relay_kills": 4, "broker_outages": 1,
				} {
					if got, ok := result[name].(float64); !ok || int(got) != want {
						t.Errorf("%s is %v, want %d", name, result[name], want)
					}
				}
				for _, name := range []string{"orders", "rolled_back", "duplicates_absorbed"} {
					if got, _ := result[name].(float64); got < 1 {
						t.Errorf("%s is %v, want some", name, result[name])
					}
				}
				topic, _ := result["topic"].(string)
				name := strings.ReplaceAll(topic, "-", "_")
				mine := databases(t, server.scheme, where, server.list, name)
				if keep == "" {
					if name == "" || len(mine) > 0 {
						t.Errorf("of topic %q databases are left: %q", topic, mine)
					}
					return
				}
				t.Cleanup(func() {
					for _, name := range mine {
						onServer(t, server.scheme, where, func(ctx context.Context, db *sql.DB) error {
							_, err := db.ExecContext(ctx, "DROP DATABASE "+name)
							return err
						})
					}
				})
				if result["database"] != name || len(mine) == 0 {
					t.Errorf("kept %v, there are %q", result["database"], mine)
				}
				trace := exec.CommandContext(t.Context(), "waybill", "trace", "--key", "O-poison", "--config", filepath.Join(keep, "waybill.yaml"))
				if out, err := trace.CombinedOutput(); err != nil || !strings.Contains(string(out), "unobtainium") || strings.Contains(string(out), ":waybill@") {
					t.Errorf("trace in the kept database: %v\n%s", err, out)
				}
			})
		}
	}
}

func playOnServers(t *testing.T, store, broker, keep string) (result map[string]any) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	args := []string{"demo", "--json", "--events", "100", "--store", store, "--broker", broker}
	if keep != "" {
		args = append(args, "--keep", keep)
	}
	cmd := exec.CommandContext(t.Context(), "waybill", args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	if text := stdout.String() + stderr.String(); strings.Contains(text, ":waybill@") {
		t.Errorf("the output shows the password:\n%s", text)
	}
	if err := json.Unmarshal(stdout.Bytes(), &result); err != nil {
		t.Fatalf("%v\n%s", err, &stdout)
	}
	return result
}

func demoBroker(t *testing.T, kind string) string {
	t.Helper()
	if kind == "kafka" {
		return "kafka://" + testenv.Kafka4(t)
	}
	server, err := natsjs.StartEmbedded(t.Context(), &natsjs.EmbeddedConfig{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server.ClientURL()
}

// urlOf turns a DSN of the MySQL driver into a URL.
func urlOf(t *testing.T, scheme, dsn string) string {
	t.Helper()
	if scheme == "postgres" {
		return dsn
	}
	c, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u := url.URL{Scheme: scheme, User: url.UserPassword(c.User, c.Passwd), Host: c.Addr, Path: "/" + c.DBName}
	return u.String()
}

// databases returns those whose name begins with the given one.
func databases(t *testing.T, scheme, where, list, name string) (found []string) {
	t.Helper()
	onServer(t, scheme, where, func(ctx context.Context, db *sql.DB) error {
		rows, err := db.QueryContext(ctx, list)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var one string
			if err := rows.Scan(&one); err != nil {
				return err
			}
			if strings.HasPrefix(one, name) {
				found = append(found, one)
			}
		}
		return rows.Err()
	})
	return found
}

func onServer(t *testing.T, scheme, where string, do func(context.Context, *sql.DB) error) {
	t.Helper()
	driver := "pgx"
	if scheme != "postgres" {
		u, err := url.Parse(where)
		if err != nil {
			t.Fatal(err)
		}
		c := mysql.NewConfig()
		c.Net, c.Addr, c.DBName, c.User = "tcp", u.Host, strings.Trim(u.Path, "/"), u.User.Username()
		c.Passwd, _ = u.User.Password()
		driver, where = "mysql", c.FormatDSN()
	}
	db, err := sql.Open(driver, where)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if err := do(context.WithoutCancel(t.Context()), db); err != nil { // also in a cleanup
		t.Fatal(err)
	}
}

// What cannot be is refused before anything is made, and without a password.
func TestDemoRefusesServers(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--store", "oracle://u:hunter22@h/d"},
		{"--store", "postgres:u:hunter22"},
		{"--store", "postgres://u:hunter22@h:x/d"},
		{"--broker", "amqp://u:hunter22@h"},
		{"--broker", "kafka://u:hunter22@h/topic"},
	} {
		cmd := exec.CommandContext(t.Context(), "waybill", append([]string{"demo"}, args...)...)
		cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != exitUsage || !strings.Contains(string(out), args[0][2:]) && !strings.Contains(string(out), "kafka") || strings.Contains(string(out), "hunter22") {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}

// Ctrl-C leaves no database either.
func TestDemoInterruptedOnServer(t *testing.T) {
	t.Parallel()
	where := testenv.Postgres15(t)
	var stderr lockedBuffer
	cmd := exec.CommandContext(t.Context(), "waybill", "demo", "--events", "300")
	cmd.Env = append(os.Environ(), "WAYBILL_DEMO_STORE="+where)
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(2 * time.Minute); !strings.Contains(stderr.String(), "killed with SIGKILL"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("nothing was killed:\n%s", stderr.String())
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitError || !strings.Contains(stderr.String(), "interrupted") {
		t.Errorf("got %v:\n%s", err, stderr.String())
	}
	name := regexp.MustCompile(`waybill_demo_\w+`).FindString(stderr.String())
	if left := databases(t, "postgres", where, demoServers[0].list, name); name == "" || len(left) > 0 {
		t.Errorf("of database %q are left: %q", name, left)
	}
}
