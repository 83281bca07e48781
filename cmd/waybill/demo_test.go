//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The whole of standard output is one JSON object, and every figure of it
// follows from the files.
func TestDemoJSON(t *testing.T) {
	needShell(t)
	t.Parallel()
	dir := t.TempDir()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "waybill", "demo", "--json", "--events", "300", "--seed", "7", "--keep", dir)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	var result map[string]any
	decoder := json.NewDecoder(&stdout)
	if err := decoder.Decode(&result); err != nil || decoder.More() {
		t.Fatalf("not one JSON object: %v\n%s", err, &stdout)
	}
	got := make(map[string]int)
	for name, value := range result {
		if n, ok := value.(float64); ok && name != "seconds" && name != "seed" {
			got[name] = int(n)
		}
	}
	for name, want := range map[string]int{"events": 300, "dead": 1, "lost": 0, "order_violations": 0, "double_effects": 0, "phantoms": 0, "unsettled": 0} {
		if n, ok := got[name]; !ok || n != want {
			t.Errorf("%s is %d (there: %v), want %d", name, n, ok, want)
		}
	}
	for name, least := range map[string]int{"orders": 1, "rolled_back": 1, "duplicates_absorbed": 1, "relay_kills": 3, "broker_outages": 1} {
		if got[name] < least {
			t.Errorf("%s is %d, want at least %d", name, got[name], least)
		}
	}
	if got["events"] != got["applied"]+got["dead"] {
		t.Errorf("%d events, %d applied, %d dead", got["events"], got["applied"], got["dead"])
	}
	if counted := countByShell(t, dir); !maps.Equal(got, counted) {
		t.Errorf("the result says %v, the files say %v", got, counted)
	}
}

// countByShell runs verify.sql as a reader would.
func countByShell(t *testing.T, dir string) map[string]int {
	t.Helper()
	script, err := os.Open(filepath.Join(dir, "verify.sql"))
	if err != nil {
		t.Fatal(err)
	}
	defer script.Close()
	cmd := exec.CommandContext(t.Context(), "sqlite3", "orders.db")
	cmd.Dir, cmd.Stdin = dir, script
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	counted := make(map[string]int)
	for line := range strings.Lines(string(out)) {
		name, n, _ := strings.Cut(strings.TrimSpace(line), "|")
		if counted[name], err = strconv.Atoi(n); err != nil {
			t.Fatal(err)
		}
	}
	return counted
}

// Ctrl-C leaves neither a process nor a file.
func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	var stderr lockedBuffer
	cmd := exec.CommandContext(t.Context(), "waybill", "demo", "--events", "300")
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	cmd.Stderr = &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that its children can be found
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(2 * time.Minute); !strings.Contains(stderr.String(), "killed with SIGKILL"); {
		if time.Now().After(deadline) {
			t.Fatalf("nothing was killed:\n%s", stderr.String())
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitError || !strings.Contains(stderr.String(), "interrupted") {
		t.Errorf("got %v:\n%s", err, stderr.String())
	}
	if err := syscall.Kill(-cmd.Process.Pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("a process is left: %v", err)
	}
	left, err := os.ReadDir(temp)
	if err != nil || len(left) > 0 {
		t.Errorf("left in the temporary folder: %v, error %v", fmt.Sprint(left), err)
	}
}
