package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/internal/testenv"
)

// TestMain makes the test binary the service when it is told to, so that a test
// can start, stop and kill a real process.
func TestMain(m *testing.M) {
	if os.Getenv("ORDER_SERVICE_CHILD") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestSQLite(t *testing.T) { story(t, "-data", t.TempDir()) }

func TestPostgres(t *testing.T) {
	story(t, "-data", t.TempDir(), "-database", emptyDatabase(t, testenv.Postgres15(t)))
}

// story places, pays and ships through the API, over a kill and a stop.
func story(t *testing.T, args ...string) {
	s := start(t, args...)
	s.call("POST", "/orders", `{"id":"O-1","customer":"Ada","totalCents":2590}`, http.StatusCreated)
	s.call("POST", "/orders", `{"id":"O-1","customer":"Bob","totalCents":1}`, http.StatusConflict)
	s.call("POST", "/orders", `{"id":"O-2","customer":"Bob"}`, http.StatusBadRequest)
	s.call("POST", "/orders/O-9/pay", ``, http.StatusNotFound)
	s.call("POST", "/orders/O-1/pay", ``, http.StatusOK)
	s.call("POST", "/orders/O-1/pay", ``, http.StatusOK) // as after a lost answer
	s.await("O-1", 1)
	s.healthy()

	// Killed at once after a payment, it ships when it is back.
	s.call("POST", "/orders", `{"id":"O-2","customer":"Bob","totalCents":100}`, http.StatusCreated)
	s.call("POST", "/orders/O-2/pay", ``, http.StatusOK)
	_ = s.signal(syscall.SIGKILL) // that it was killed is no news
	s = start(t, args...)
	s.await("O-2", 1)

	// A graceful stop exits 0, and what was shipped is not shipped again.
	if err := s.signal(syscall.SIGTERM); err != nil {
		t.Fatalf("after SIGTERM: %v\n%s", err, s.log.String())
	}
	s = start(t, args...)
	s.call("POST", "/orders", `{"id":"O-3","customer":"Cleo","totalCents":5}`, http.StatusCreated)
	s.call("POST", "/orders/O-3/pay", ``, http.StatusOK)
	s.await("O-3", 1)
	for _, id := range []string{"O-1", "O-2"} {
		if got := s.order(id); got.Shipments != 1 || got.Status != "PAID" {
			t.Errorf("order %s after two restarts: %+v, want it paid and shipped once", id, got)
		}
	}
	if err := s.signal(syscall.SIGTERM); err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, s.log.String())
	}
}

// running is the service in a process of its own.
type running struct {
	t    *testing.T
	url  string
	cmd  *exec.Cmd
	log  strings.Builder // complete once ended
	done chan error
}

var listens = regexp.MustCompile(`order service listens.* url=(\S+)`)

func start(t *testing.T, args ...string) *running {
	t.Helper()
	s := &running{t: t, done: make(chan error, 1)}
	s.cmd = exec.Command(os.Args[0], append(args, "-listen", "127.0.0.1:0")...)
	s.cmd.Env = append(os.Environ(), "ORDER_SERVICE_CHILD=1")
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	address := make(chan string, 1)
	go func() {
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			s.log.WriteString(lines.Text() + "\n")
			if found := listens.FindStringSubmatch(lines.Text()); found != nil {
				address <- found[1]
			}
		}
		s.done <- s.cmd.Wait()
	}()
	select {
	case s.url = <-address:
	case err := <-s.done:
		t.Fatalf("did not start: %v\n%s", err, s.log.String())
	case <-time.After(time.Minute):
		t.Fatal("did not listen within a minute")
	}
	return s
}

// signal sends one and waits for the end.
func (s *running) signal(which os.Signal) error {
	s.t.Helper()
	if err := s.cmd.Process.Signal(which); err != nil {
		s.t.Fatal(err)
	}
	select {
	case err := <-s.done:
		return err
	case <-time.After(time.Minute):
		s.t.Fatalf("still running a minute after %v", which)
		return nil
	}
}

func (s *running) call(method, path, body string, want int) []byte {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if want != 0 && response.StatusCode != want {
		s.t.Fatalf("%s %s: status %d, want %d: %s", method, path, response.StatusCode, want, text)
	}
	return text
}

type shown struct {
	order
	Shipments int `json:"shipments"`
}

func (s *running) order(id string) (o shown) {
	s.t.Helper()
	if err := json.Unmarshal(s.call("GET", "/orders/"+id, "", http.StatusOK), &o); err != nil {
		s.t.Fatal(err)
	}
	return o
}

func (s *running) await(id string, shipments int) {
	s.t.Helper()
	s.until(func() bool { return s.order(id).Shipments == shipments })
}

func (s *running) healthy() {
	s.t.Helper()
	s.until(func() bool { return strings.Count(string(s.call("GET", "/healthz", "", 0)), `"state":"green"`) == 2 })
}

func (s *running) until(condition func() bool) {
	s.t.Helper()
	deadline, tick := time.After(time.Minute), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			s.t.Fatal("not within a minute")
		}
	}
}

// emptyDatabase makes a database on the server and returns its URL.
func emptyDatabase(t *testing.T, server string) string {
	t.Helper()
	address, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := sql.Open("pgx", server)
	if err != nil {
		t.Fatal(err)
	}
	name := "order_service_" + strings.ReplaceAll(waybill.NewID(), "-", "")
	if _, err := admin.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, err := admin.ExecContext(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)")
		if err = errors.Join(err, admin.Close()); err != nil {
			t.Error(err)
		}
	})
	address.Path = "/" + name
	return address.String()
}

// The README's commands are these tests' commands.
func TestREADMENamesTheFlags(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join("main.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile(`flag\.StringVar\(&o\.\w+, "([^"]+)"`).FindAllSubmatch(source, -1) {
		if !strings.Contains(string(page), "`-"+string(match[1])+"`") {
			t.Errorf("README.md does not explain -%s", match[1])
		}
	}
}
