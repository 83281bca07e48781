//go:build unix

package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The lab is the same on every server; what it keeps shows an edit from
// outside, and what it does not keep is gone.
func TestLoansOnServers(t *testing.T) {
	for _, server := range demoServers {
		t.Run(server.scheme, func(t *testing.T) {
			t.Parallel()
			where, keep := urlOf(t, server.scheme, server.find(t)), t.TempDir()
			var lab struct {
				Runs    []reportedRun `json:"runs"`
				Rebuilt int           `json:"rebuilt_rows"`
			}
			runJSON(t, where, exitOK, &lab, "lab", "loans", "--keep", keep)
			const first = "MISSING_EVENT L-1002, ORPHAN_EVENT L-1003, MISMATCH_WRITE L-1004, MISMATCH_READ L-1006, IN_FLIGHT L-1005: 4 1"
			second := strings.Replace(strings.Replace(first, "MISMATCH_READ L-1006, ", "", 1), "4 1", "3 1", 1)
			if len(lab.Runs) != 2 || lab.Runs[0].String() != first || lab.Runs[1].String() != second || lab.Rebuilt != 5 {
				t.Errorf("the lab found %v and rebuilt %d", lab.Runs, lab.Rebuilt)
			}
			check := filepath.Join(keep, "check.yaml")
			text, err := os.ReadFile(check)
			if err != nil {
				t.Fatal(err)
			}
			name := regexp.MustCompile(`waybill_lab_\w+`).FindString(string(text))
			if name == "" {
				t.Fatalf("the check names no database:\n%s", text)
			}
			t.Cleanup(func() {
				onServer(t, server.scheme, where, func(ctx context.Context, db *sql.DB) error {
					_, err := db.ExecContext(ctx, "DROP DATABASE "+name)
					return err
				})
			})
			if info, err := os.Stat(filepath.Join(keep, "library.dsn")); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the file of the DSN: %v, %v", info, err)
			}
			own, err := url.Parse(where)
			if err != nil {
				t.Fatal(err)
			}
			own.Path = "/" + name
			onServer(t, server.scheme, own.String(), func(ctx context.Context, db *sql.DB) error {
				_, err := db.ExecContext(ctx, "DELETE FROM read_model_loan WHERE loan_id = 'L-1001'")
				return err
			})
			var after struct {
				Runs []reportedRun `json:"runs"`
			}
			runJSON(t, where, exitFindings, &after, "reconcile", "run", "--config", check)
			want := strings.Replace(second, "IN_FLIGHT", "MISMATCH_READ L-1001, IN_FLIGHT", 1)
			if want = strings.Replace(want, "3 1", "4 1", 1); len(after.Runs) != 1 || after.Runs[0].String() != want {
				t.Errorf("after the edit: %v, want %s", after.Runs, want)
			}

			// Without --keep nothing stays.
			before := len(databases(t, server.scheme, where, server.list, "waybill_lab_"))
			var pairs struct {
				Variants []struct {
					Arms   []string `json:"arms"`
					Missed []string `json:"missed"`
				} `json:"variants"`
			}
			runJSON(t, where, exitOK, &pairs, "lab", "pairs")
			if got := fmt.Sprint(pairs.Variants); got != "[{[write log read] []} {[write log] [L-1006]} {[log read] [L-1002 L-1003 L-1004 L-1005]} {[write read] [L-1002 L-1003 L-1004]}]" {
				t.Errorf("pairs: %s", got)
			}
			if left := databases(t, server.scheme, where, server.list, "waybill_lab_"); len(left) > before {
				t.Errorf("databases are left: %q", left)
			}
		})
	}
}

type reportedRun struct {
	Differences int `json:"differences"`
	InFlight    int `json:"in_flight"`
	Findings    []struct {
		Class string `json:"class"`
		Key   string `json:"key"`
	} `json:"findings"`
}

func (r reportedRun) String() string {
	var all []string
	for _, f := range r.Findings {
		all = append(all, f.Class+" "+f.Key)
	}
	return fmt.Sprintf("%s: %d %d", strings.Join(all, ", "), r.Differences, r.InFlight)
}

// runJSON runs a command on a server, and reads what it prints, which must not
// have the password.
func runJSON(t *testing.T, store string, code int, into any, args ...string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "waybill", append(args, "--json")...)
	cmd.Env = append(os.Environ(), "WAYBILL_LAB_STORE="+store)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == code {
		err = nil
	}
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", args, err, &stdout, &stderr)
	}
	if text := stdout.String() + stderr.String(); strings.Contains(text, ":waybill@") {
		t.Errorf("%v: the output shows the password:\n%s", args, text)
	}
	if err := json.Unmarshal(stdout.Bytes(), into); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, &stdout)
	}
}
