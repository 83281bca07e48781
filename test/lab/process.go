package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

const patience = time.Minute

// Process is the test binary run once more, as a child.
type Process struct {
	Output *Output

	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// Start runs the child with further variables of environment. It ends with the
// test at the latest.
func Start(t testing.TB, environment ...string) (*Process, error) {
	t.Helper()
	p := &Process{Output: &Output{}, done: make(chan struct{})}
	p.cmd = exec.CommandContext(t.Context(), os.Args[0])
	p.cmd.Env = append(os.Environ(), environment...)
	p.cmd.Stdout, p.cmd.Stderr = p.Output, p.Output
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.done)
		p.err = p.cmd.Wait()
	}()
	return p, nil
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Signal sends a signal; the process may have ended.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Kill ends the process as a power cut would. It is an error if the process had
// ended in another way.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("it had ended by itself: %w", err)
	}
	<-p.done
	var exit *exec.ExitError
	if !errors.As(p.err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		return fmt.Errorf("it ended with %w, want SIGKILL", p.err)
	}
	return nil
}

// Stop asks the process to drain, and returns how it ended.
func (p *Process) Stop() error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-p.done
	return p.err
}

// Err is how the process ended, once it did.
func (p *Process) Err() error {
	<-p.done
	return p.err
}

// KillAt runs the test binary once more, as a child with further variables of
// environment, kills it with SIGKILL as soon as a file is there, and returns
// what it wrote.
func KillAt(t testing.TB, file string, environment ...string) string {
	t.Helper()
	child, err := Start(t, environment...)
	if err != nil {
		t.Fatal(err)
	}
	Until(t, patience, "the child at "+file, func() bool {
		_, err := os.Stat(file)
		return err == nil
	})
	if err := child.Kill(); err != nil {
		t.Fatalf("%v: %s", err, child.Output)
	}
	return child.Output.String()
}
