package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/waybillhq/waybill/cmd/waybill/internal/adapter"
	"github.com/waybillhq/waybill/internal/testenv"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"waybill": main, "get": get})
}

// The scripts call the command as a person does, and the sqlite3 shell as a
// producer in another language would.
func TestScripts(t *testing.T) {
	needShell(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			for _, name := range []string{"PORT", "PORT2"} {
				env.Setenv(name, strconv.Itoa(testenv.FreePorts(t, 1)))
			}
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits":      exits,
			"eventually": eventually,
		},
	})
}

func TestFailuresAreRedactedAndCounted(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
		text string
	}{
		{nil, exitOK, ""},
		{errFindings, exitFindings, ""},
		{errors.New("pw hunter2 was refused"), exitError, "waybill: pw ***** was refused\n"},
		{fmt.Errorf("start: %w", usageError{errors.New("no")}), exitUsage, "waybill: start: no\n"},
		{&adapter.ConfigError{Err: errors.New("no")}, exitUsage, "waybill: no\n"},
	} {
		var out bytes.Buffer
		if code := fail(&out, []string{"hunter2"}, c.err); code != c.code || out.String() != c.text {
			t.Errorf("%v: got %d %q, want %d %q", c.err, code, out.String(), c.code, c.text)
		}
	}
}

func needShell(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("sqlite3"); err != nil {
		if os.Getenv("WAYBILL_TEST_REQUIRED") != "" {
			t.Fatal("the sqlite3 shell is required here:", err)
		}
		t.Skip("needs the sqlite3 shell:", err)
	}
}

// get prints the answer to a GET request: its code, and its body.
func get() {
	answer, err := http.Get(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	fmt.Printf("%s\n%s", answer.Status, body)
	if err != nil {
		os.Exit(1)
	}
}

// exits runs a command and demands its exit code: exits 3 waybill status.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	code := 0
	var exit *exec.ExitError
	switch err := ts.Exec(args[1], args[2:]...); {
	case errors.As(err, &exit):
		code = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// eventually repeats a command until its output matches: eventually PATTERN COMMAND...
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: eventually PATTERN COMMAND...")
	}
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	deadline := time.Now().Add(2 * time.Minute)
	for {
		_ = ts.Exec(args[1], args[2:]...)
		if pattern.MatchString(ts.ReadFile("stdout")) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("no output like %q", args[0])
		}
		time.Sleep(100 * time.Millisecond)
	}
}
