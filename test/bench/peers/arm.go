package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// task is what a process of its own is to do. It stands in the process's input,
// where nobody reads the passwords of its URLs. Its fields are those that
// "waybill bench __arm" takes.
type task struct {
	Arm    string
	Mode   string `json:",omitempty"` // of the relay: poll or cdc
	Store  string
	DSN    string
	Broker string
	URL    string
	Topic  string
	Format string
	Events int // to be drained, and then it ends; 0: until its input ends
	Forget bool
}

// outcome is what it did.
type outcome struct {
	Events  int
	Seconds float64 // from the first look at the queue to the last settlement
	CPU     float64 // seconds of processor time of the process meanwhile
	PeakMB  float64 // memory of the process
	Told    uint64  // ids that the database's log told to a relay
}

// serveArm does the task in the input.
func serveArm(ctx context.Context, in io.Reader, out io.Writer) error {
	var t task
	if err := json.NewDecoder(in).Decode(&t); err != nil {
		return err
	}
	cpu := ownCPU()
	result, err := t.run(ctx)
	if err != nil {
		return err
	}
	result.CPU = ownCPU() - cpu
	result.PeakMB = peakMB("self")
	return json.NewEncoder(out).Encode(result)
}

func (t *task) run(ctx context.Context) (*outcome, error) {
	switch t.Arm {
	case armStatus:
		return t.drainStatus(ctx)
	case armOneByOne:
		return t.drainOneByOne(ctx)
	case armWatermill:
		return t.drainWatermill(ctx)
	}
	return nil, fmt.Errorf("there is no arm %q", t.Arm)
}

// running is a task in another process.
type running struct {
	cmd            *exec.Cmd
	input          io.Closer
	stdout, stderr bytes.Buffer
}

func start(ctx context.Context, t task, program string, words ...string) (*running, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	r := &running{cmd: exec.CommandContext(ctx, program, words...)}
	input, err := r.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	r.input = input
	r.cmd.Stdout, r.cmd.Stderr, r.cmd.Env = &r.stdout, &r.stderr, environ()
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	_, err = input.Write(append(text, '\n'))
	return r, err
}

// environ leaves out what would configure the command.
func environ() []string {
	var env []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "WAYBILL_") {
			env = append(env, entry)
		}
	}
	return env
}

// finish ends a task that runs until it is told to end.
func (r *running) finish() (*outcome, error) {
	_ = r.input.Close()
	return r.wait()
}

func (r *running) wait() (*outcome, error) {
	if err := r.cmd.Wait(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(r.stderr.String()))
	}
	var result outcome
	err := json.Unmarshal(r.stdout.Bytes(), &result)
	return &result, err
}
