package lab

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/waybillhq/waybill/internal/testenv"
)

// Server is a real server that no other test uses, so that it can be stopped,
// killed and started again. It lives in a folder of its own, by test/env.
type Server struct {
	Name string // as test/env knows it
	Home string
	Port int

	env []string
}

// NewServer prepares a server, which [Server.Up] starts, and stops it after the
// test. Further variables are for test/env.
func NewServer(t testing.TB, name string, environment ...string) *Server {
	t.Helper()
	s := &Server{Name: name, Home: t.TempDir(), Port: testenv.FreePorts(t, 3), env: environment}
	if os.Getuid() == 0 { // the server runs as another user, who must get there
		for _, folder := range []string{s.Home, filepath.Dir(s.Home)} {
			if err := os.Chmod(folder, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Cleanup(func() {
		if err := s.Down(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Address is the server's host:port.
func (s *Server) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)) }

// Up starts the server and waits until it answers.
func (s *Server) Up() error { return s.run("up") }

// Down stops the server in good order.
func (s *Server) Down() error { return s.run("down") }

func (s *Server) run(verb string) error {
	command := exec.CommandContext(context.Background(), "../env/env", verb, s.Name) // a test that is over stops its servers, too
	command.Env = append(os.Environ(), "WAYBILL_ENV_HOME="+s.Home, fmt.Sprintf("WAYBILL_ENV_%s_PORT=%d", strings.ToUpper(s.Name), s.Port))
	command.Env = append(command.Env, s.env...)
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", verb, s.Name, err, &out)
	}
	return nil
}

// Kill ends the server and its children without a word to their clients, and
// returns once it can be started again.
func (s *Server) Kill() error {
	file := filepath.Join(s.Home, s.Name, "pid")
	if strings.HasPrefix(s.Name, "postgres") {
		file = filepath.Join(s.Home, s.Name, "data", "postmaster.pid")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		return err
	}
	all := append([]int{pid}, childrenOf(pid)...)
	for _, one := range all {
		if err := syscall.Kill(one, syscall.SIGKILL); err != nil && one == pid {
			return err
		}
	}
	for end := now().Add(patience); now().Before(end); pause() {
		// The first thread of a process may be dead before the last one, which has
		// the port.
		if slices.ContainsFunc(all, alive) || s.answers() {
			continue
		}
		// A zombie that nobody has buried yet still has its number, and would be
		// taken for a running server.
		return os.Remove(file)
	}
	return fmt.Errorf("kill %s: one of the processes %v is still there", s.Name, all)
}

func (s *Server) answers() bool {
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", s.Address())
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

func childrenOf(pid int) (children []int) {
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		child, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if _, parent := stateOf(child); parent == pid {
			children = append(children, child)
		}
	}
	return children
}

func alive(pid int) bool {
	state, _ := stateOf(pid)
	return state != "" && state != "Z" && state != "X"
}

// stateOf returns a process's state and its parent, empty when it is gone.
func stateOf(pid int) (state string, parent int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0
	}
	// The name in parentheses may have spaces.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 2 {
		return "", 0
	}
	parent, _ = strconv.Atoi(fields[1])
	return fields[0], parent
}
