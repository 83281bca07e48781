package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/waybillhq/waybill/internal/fault"
)

// relays runs one relay process at a time.
type relays struct {
	binary string
	config string
	log    string
	flag   string // the file that a relay makes when it has stopped at its point
	args   []string
	env    []string

	say func(format string, args ...any)

	started  int
	restarts int // of relays that ended by themselves
	running  *relayProcess
}

type relayProcess struct {
	cmd   *exec.Cmd
	point string
	done  chan struct{}
	err   error
}

// start starts the next relay. With a point, "name:n", it will stop there.
func (r *relays) start(point string) error {
	logFile, err := os.OpenFile(r.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer logFile.Close()
	_ = os.Remove(r.flag)
	// It must outlive the context: it is stopped or killed on purpose only.
	cmd := exec.CommandContext(context.Background(), r.binary, append([]string{"relay", "--config", r.config}, r.args...)...)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.Env = append(environ(point, r.flag), r.env...)
	if err := cmd.Start(); err != nil {
		return err
	}
	p := &relayProcess{cmd: cmd, point: point, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
	}()
	r.started++
	r.running = p
	return nil
}

// environ is this process's without settings of its own.
func environ(point, flag string) []string {
	var env []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "WAYBILL_") {
			env = append(env, entry)
		}
	}
	if point != "" {
		env = append(env, fault.EnvPoint+"="+point, fault.EnvFile+"="+flag)
	}
	return env
}

// reached waits until the relay has stopped at its point, and reports whether
// it did within the time. A relay that ended by itself is an error.
func (r *relays) reached(ctx context.Context, within time.Duration) (bool, error) {
	return eventually(ctx, within, func() (bool, error) {
		if _, err := os.Stat(r.flag); err == nil {
			return true, nil
		}
		return false, r.check()
	})
}

// restartsMax bounds how often a relay may end by itself before the demo gives up.
const restartsMax = 5

// check notices a relay that ended though nobody told it to, as it may at its
// start when the database is too busy, and starts it again, as a supervisor does.
func (r *relays) check() error {
	if r.running == nil {
		return nil
	}
	select {
	case <-r.running.done:
	default:
		return nil
	}
	point, ended := r.running.point, r.running.err
	r.running = nil
	if r.restarts++; r.restarts > restartsMax {
		return fmt.Errorf("the relay ended by itself (%w): %s", ended, r.lastLines())
	}
	r.say("relay %d ended by itself (%v), started again: %s", r.started, ended, r.lastLines())
	return r.start(point)
}

// kill ends the relay with SIGKILL.
func (r *relays) kill() (pid int, err error) {
	p := r.running
	pid = p.cmd.Process.Pid
	if err := p.cmd.Process.Kill(); err != nil {
		return pid, err
	}
	<-p.done
	r.running = nil
	return pid, nil
}

// stop asks the relay to stop and demands that it does so in good order.
func (r *relays) stop() error {
	p := r.running
	if p == nil {
		return nil
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	timer := time.NewTimer(time.Minute)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		return errors.New("the relay did not stop within a minute of SIGTERM")
	}
	r.running = nil
	if p.err != nil {
		return fmt.Errorf("the relay stopped badly (%w): %s", p.err, r.lastLines())
	}
	return nil
}

// end is the last resort: no process outlives the demo.
func (r *relays) end() error {
	if r.running == nil {
		return nil
	}
	_, err := r.kill()
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// lastLines returns the end of the relay's log.
func (r *relays) lastLines() string {
	text, err := os.ReadFile(r.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " | ")
}
