//go:build unix

package main

import (
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// canary is a secret that no output may show.
const canary = "canary-pa55-word"

// refusal is a command that fails: how, and with which words.
type refusal struct {
	args []string
	code int
	want string // a pattern in the one line of the error
}

// refused runs each command and demands one line that says what to do, the right
// exit code, and no secret.
func (s *shell) refused(t *testing.T, cases ...refusal) {
	t.Helper()
	for _, c := range cases {
		cmd := exec.CommandContext(t.Context(), "waybill", c.args...)
		cmd.Dir, cmd.Env = s.dir, append(os.Environ(), s.env...)
		s.refusedBy(t, cmd, c)
	}
}

func (s *shell) refusedBy(t *testing.T, cmd *exec.Cmd, c refusal) {
	t.Helper()
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != c.code {
		t.Errorf("%q: got %v, want exit code %d\n%s%s", c.args, err, c.code, stdout.String(), stderr.String())
	}
	if strings.Contains(stdout.String()+stderr.String(), canary) {
		t.Errorf("%q shows the secret:\n%s%s", c.args, stdout.String(), stderr.String())
	}
	said := strings.TrimSuffix(stderr.String(), "\n")
	if strings.Contains(said, "\n") || !strings.HasPrefix(said, "waybill: ") || !regexp.MustCompile(c.want).MatchString(said) {
		t.Errorf("%q says %q, want one line like %q", c.args, said, c.want)
	}
}

// readers are the commands that only read.
func readers() [][]string {
	return [][]string{{"status"}, {"doctor", "--no-broker"}, {"dead", "list"}, {"trace", "e1"}, {"replay", "e1"}, {"audit", "list"}, {"status", "--json"}}
}

func each(commands [][]string, code int, want string) []refusal {
	var all []refusal
	for _, args := range commands {
		all = append(all, refusal{args, code, want})
	}
	return all
}

func TestADatabaseOfANewerReleaseIsLeftAlone(t *testing.T) {
	needShell(t)
	t.Parallel()
	s := &shell{t: t, dir: t.TempDir(), env: []string{"WAYBILL_STORE_DSN=orders.db"}}
	s.run("migrate", "tables of version 3")
	s.sqlite("UPDATE waybill_meta SET value = '99' WHERE key = 'schema_version'")
	newer := append(each(readers()[:1], exitError, "newer release"), refusal{[]string{"migrate"}, exitError, "newer release"})
	s.refused(t, newer...)
	if got := s.sqlite("SELECT value FROM waybill_meta WHERE key = 'schema_version'"); got != "99" {
		t.Errorf("the version is %q now", got)
	}
}

func (s *shell) sqlite(statement string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), "sqlite3", "orders.db", statement)
	cmd.Dir = s.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("sqlite3: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// Another user may neither read nor change what is not theirs, and is told so.
func TestRightsThatAreMissingAreNamed(t *testing.T) {
	needShell(t)
	if os.Getuid() != 0 {
		t.Skip("needs root, to drop its rights: setpriv cannot change the user otherwise")
	}
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip("needs setpriv, to drop the rights of root:", err)
	}
	dir := t.TempDir()
	for _, open := range []string{filepath.Dir(dir), dir} { // the parent is the test's own, too
		if err := os.Chmod(open, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := &shell{t: t, dir: dir, env: []string{"WAYBILL_STORE_DSN=orders.db"}}
	s.run("migrate", "tables of version 3")
	s.sqlite("INSERT INTO outbox_event(event_id,aggregate_type,aggregate_id,event_type,topic,payload) VALUES('e1','order','O-1','OrderPlaced','orders','{}')")
	binary := filepath.Join(dir, "waybill")
	copyProgram(t, binary)
	config := filepath.Join(dir, "secret.yaml")
	if err := os.WriteFile(config, []byte("store: {dsn: orders.db}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		mode os.FileMode
		refusal
	}{
		{"unreadable database", 0o600, refusal{[]string{"status"}, exitError, `orders\.db: .*\(.*this user|orders\.db: .*permission|orders\.db: .*\(the database file`}},
		{"unwritable database", 0o644, refusal{[]string{"dead", "retry", "e1", "--reason", "x"}, exitError, `readonly.*\(.*does not allow writing\)`}},
		{"unreadable configuration", 0o644, refusal{[]string{"status", "--config", config}, exitUsage, `secret\.yaml: permission denied`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := os.Chmod(filepath.Join(dir, "orders.db"), c.mode); err != nil {
				t.Fatal(err)
			}
			args := append([]string{"--reuid=65534", "--regid=65534", "--clear-groups", binary}, c.args...)
			cmd := exec.CommandContext(t.Context(), setpriv, args...)
			cmd.Dir, cmd.Env = s.dir, append(os.Environ(), s.env...)
			s.refusedBy(t, cmd, c.refusal)
		})
	}
	if got := s.sqlite("SELECT count(*) FROM outbox_pending"); got != "1" {
		t.Errorf("%s events are pending, want 1", got)
	}
}

// copyProgram puts the command where every user may run it.
func copyProgram(t *testing.T, to string) {
	t.Helper()
	from, err := exec.LookPath("waybill")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A full disk loses nothing, is named, and needs only space again.
func TestAFullDiskIsNamedAndLosesNothing(t *testing.T) {
	needShell(t)
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount a small tmpfs")
	}
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("needs the right to mount a tmpfs: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
	s := &shell{t: t, dir: dir, env: []string{"WAYBILL_STORE_DSN=orders.db"}}
	s.run("migrate", "tables of version 3")
	s.sqlite(`INSERT INTO outbox_event(event_id,aggregate_type,aggregate_id,event_type,topic,payload) VALUES('e1','order','O-1','OrderPlaced','orders','{}');
UPDATE outbox_pending SET status = 'DEAD', parked = 1, retry_count = 3, last_error = 'refused'`)
	filler := filepath.Join(dir, "filler")
	fill(t, filler)
	s.refused(t, refusal{[]string{"dead", "retry", "e1", "--reason", "x"}, exitError, "full"})
	if out, _ := s.command("status").CombinedOutput(); !strings.Contains(string(out), "cannot be written") && !strings.Contains(string(out), "full") {
		t.Errorf("status does not name the disk:\n%s", out)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	s.run("dead list", "e1")
	s.run("dead retry e1 --reason space", "retried")
}

// fill writes until nothing more fits.
func fill(t *testing.T, file string) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for size := 64 << 10; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
}

// Each way in which PostgreSQL refuses has its own advice.
func TestPostgresRefusals(t *testing.T) {
	t.Parallel()
	server := os.Getenv("WAYBILL_TEST_POSTGRES15")
	if server == "" {
		if os.Getenv("WAYBILL_TEST_REQUIRED") != "" {
			t.Fatal("a PostgreSQL server is required here: set WAYBILL_TEST_POSTGRES15")
		}
		t.Skip("needs a PostgreSQL server: set WAYBILL_TEST_POSTGRES15")
	}
	for _, c := range []struct {
		name   string
		change func(u *url.URL)
		want   string
	}{
		{"wrong password", func(*url.URL) {}, `password authentication failed.*\(check the user and the password\)$`},
		{"TLS that the server does not offer", func(u *url.URL) { u.RawQuery = "sslmode=require" }, `\(the DSN demands TLS, which the server does not offer: .*\)$`},
		{"nobody there", func(u *url.URL) { u.Host = "127.0.0.1:1" }, `127\.0\.0\.1:1.*\(check that the server runs and that the DSN names its host and port\)$`},
		{"no such host", func(u *url.URL) { u.Host = "nobody.invalid" }, `nobody\.invalid.*\(check that the server runs`},
	} {
		t.Run(c.name, func(t *testing.T) {
			u, err := url.Parse(server)
			if err != nil {
				t.Fatal(err)
			}
			u.User = url.UserPassword("postgres", canary)
			c.change(u)
			s := &shell{t: t, dir: t.TempDir(), env: []string{"WAYBILL_STORE_KIND=postgres", "WAYBILL_STORE_DSN=" + u.String()}}
			s.refused(t, each(readers()[:3], exitError, c.want)...)
		})
	}
}
