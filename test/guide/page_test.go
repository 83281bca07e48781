package guide

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/waybillhq/waybill/internal/testenv"
)

// block is a code block in a page that a shell can run.
type block struct {
	line   int
	script string
	marks  []string // of the comment above it: <!-- run: in repository, in background -->
	want   []string // lines of the text block that follows it
}

func (b *block) is(mark string) bool { return slices.Contains(b.marks, mark) }

var runPattern = regexp.MustCompile(`^<!-- run: (.+) -->$`)

// readBlocks returns the blocks of a page, and the page that it goes on from,
// which a comment names: <!-- run: after start.md -->.
func readBlocks(t *testing.T, file string) (blocks []block, after string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	language, body, began := "", []string(nil), 0
	var marks []string
	for i, line := range strings.Split(string(text), "\n") {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && language == "":
			language, body, began = fence, nil, i+1
			if language == "" {
				language = "text"
			}
		case isFence && language == "sh":
			blocks = append(blocks, block{line: began, script: strings.Join(body, "\n"), marks: marks})
			language, marks = "", nil
		case isFence:
			if language == "text" && len(blocks) > 0 && blocks[len(blocks)-1].want == nil {
				blocks[len(blocks)-1].want = body
			}
			language, marks = "", nil
		case language != "":
			body = append(body, line)
		default:
			if found := runPattern.FindStringSubmatch(line); found != nil {
				marks = strings.Split(found[1], ", ")
				if page, ok := strings.CutPrefix(marks[0], "after "); ok {
					after, marks = filepath.Join(filepath.Dir(file), page), nil
				}
			}
		}
	}
	return blocks, after
}

// patience bounds everything that a reader waits for.
const patience = 2 * time.Minute

// reader follows pages in a folder of its own.
type reader struct {
	t       *testing.T
	root    string
	dir     string // where the first terminal is
	state   string
	env     []string
	replace *strings.Replacer
}

// follow runs all blocks of a page, after those of the page that it goes on
// from.
func (r *reader) follow(file string) {
	r.t.Helper()
	blocks, after := readBlocks(r.t, file)
	if after != "" {
		r.follow(after)
	}
	if len(blocks) == 0 {
		r.t.Fatalf("%s has no command", file)
	}
	for i := range blocks {
		b := &blocks[i]
		where := fmt.Sprintf("%s:%d", filepath.Base(file), b.line)
		if b.is("with kafka") {
			r.useKafka()
		}
		switch {
		case b.is("in background"):
			r.background(where, b)
		case b.is("with duckdb") && !r.duckdb():
		case b.is("until it succeeds"):
			r.until(where, b)
		default:
			if out, err := r.run(b); err != nil {
				r.t.Fatalf("%s: %v\n%s\n%s", where, err, b.script, out)
			}
		}
	}
}

// duckdb puts the shell of DuckDB on the path; where it is missing the subtest
// says so, and fails where it is required.
func (r *reader) duckdb() (there bool) {
	r.t.Run("duckdb", func(t *testing.T) {
		program := testenv.DuckDB1(t)
		folder := filepath.Join(r.t.TempDir(), "duckdb")
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(program, filepath.Join(folder, "duckdb")); err != nil {
			t.Fatal(err)
		}
		r.env = append(r.env, "PATH="+folder+":"+r.path())
		there = true
	})
	return there
}

// path is where programs are looked for: the last word counts.
func (r *reader) path() (path string) {
	for _, variable := range r.env {
		if value, ok := strings.CutPrefix(variable, "PATH="); ok {
			path = value
		}
	}
	return path
}

func (r *reader) command(ctx context.Context, b *block, script string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-eu", "-o", "pipefail", "-c", r.replace.Replace(script))
	cmd.Dir, cmd.Env = r.dir, r.env
	if b.is("in repository") {
		cmd.Dir = r.root
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// run runs a block once. A cd in it holds for what follows.
func (r *reader) run(b *block) (string, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	out, err := r.command(ctx, b, b.script+"\npwd >'"+r.state+"'").CombinedOutput()
	if err == nil {
		err = b.matches(string(out))
	}
	if err == nil && !b.is("in repository") {
		dir, readErr := os.ReadFile(r.state)
		if readErr != nil {
			return string(out), readErr
		}
		r.dir = strings.TrimSpace(string(dir))
	}
	return string(out), err
}

func (r *reader) until(where string, b *block) {
	r.t.Helper()
	deadline, tick := time.After(patience), time.NewTicker(50*time.Millisecond)
	defer tick.Stop()
	for {
		out, err := r.run(b)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			r.t.Fatalf("%s: not within %s: %v\n%s\n%s", where, patience, err, b.script, out)
		}
	}
}

// background starts a block in a terminal of its own. When the test ends it is
// told to stop, and must stop well.
func (r *reader) background(where string, b *block) {
	r.t.Helper()
	cmd := r.command(context.Background(), b, b.script)
	var out lockedBuffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		r.t.Fatalf("%s: %v", where, err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	r.t.Cleanup(func() {
		stopAfter := time.AfterFunc(patience, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		defer stopAfter.Stop()
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM); err != nil {
			r.t.Errorf("%s ended early: %v", where, err)
		}
		var exit *exec.ExitError
		// bash itself may be ended by the signal that its command heeds, and go run
		// says so with status 1.
		if err := <-done; err != nil && !errors.As(err, &exit) {
			r.t.Errorf("%s: %v", where, err)
		}
		if r.t.Failed() {
			r.t.Logf("%s: %s\n%s", where, b.script, out.String())
		}
	})
}

// matches reports whether the wanted lines stand in the output, in order. "…"
// in a line stands for anything.
func (b *block) matches(out string) error {
	lines := strings.Split(out, "\n")
	for _, want := range b.want {
		pattern := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(want), "…", ".*") + "$")
		at := slices.IndexFunc(lines, pattern.MatchString)
		if at < 0 {
			return fmt.Errorf("the output lacks %q", want)
		}
		lines = lines[at+1:]
	}
	return nil
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
