package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/waybillhq/waybill"
)

// HiddenArm are the words of the command that calls [RunArm].
var HiddenArm = []string{"bench", "__arm"}

// The arms.
const (
	armRelay = "relay"
	armLoop  = "loop"
)

// task is what an arm is to do. It goes to the arm's standard input, where
// nobody reads the passwords of its URLs.
type task struct {
	Arm     string
	Mode    string // of a relay: store.ModePoll, also where empty, or store.ModeCDC
	Store   string // kind
	DSN     string
	Broker  string // kind
	URL     string
	Topic   string
	Format  string
	Events  int // to be drained, and then it ends; 0: until its input ends
	Forget  bool
	Compare *comparison  // of a reconciliation
	Consume *consumption // of a consumer
	// Profile names a file for a processor profile.
	Profile string
}

// outcome is what an arm did.
type outcome struct {
	Events  int
	Seconds float64 // from the first look at the queue to the last settlement
	CPU     float64 // seconds of processor time meanwhile
	PeakMB  float64 // memory of the process
	Batches int     // transactions, where they count
	Follows float64 // seconds until a relay relied on the database's log; 0: it never did
	Told    uint64  // ids that the log told, as of a relay's last renewal
}

func (o *outcome) rate() float64 { return ratio(float64(o.Events), o.Seconds) }

// cpuPerEvent is in microseconds.
func (o *outcome) cpuPerEvent() float64 { return ratio(o.CPU*1e6, float64(o.Events)) }

// RunArm does the task that stands in its input and writes the outcome.
func RunArm(ctx context.Context, in io.Reader, out io.Writer) error {
	var t task
	decoder := json.NewDecoder(in)
	if err := decoder.Decode(&t); err != nil {
		return err
	}
	if t.Events == 0 && t.Compare == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		go func() {
			_, _ = io.Copy(io.Discard, in)
			cancel()
		}()
	}
	result, err := t.run(ctx)
	if err != nil {
		return err
	}
	result.PeakMB = peakMB()
	return json.NewEncoder(out).Encode(result)
}

func (t *task) run(ctx context.Context) (*outcome, error) {
	d, err := openDatabase(ctx, t.Store, t.DSN)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.close() }()
	h := &house{kind: t.Broker, url: t.URL, topic: t.Topic}
	stop, err := profile(t.Profile)
	if err != nil {
		return nil, err
	}
	defer stop()
	cpu := cpuSeconds()
	var result *outcome
	switch t.Arm {
	case armRelay:
		result, err = t.relay(ctx, d, h)
	case armLoop:
		result, err = t.loop(ctx, d, h)
	case armConsume, armBare:
		result, err = t.consumer(ctx, d, h)
	case armReconcile:
		result, err = t.compare(ctx)
	case armScan:
		result, err = t.scan(ctx)
	default:
		return nil, fmt.Errorf("there is no arm %q", t.Arm)
	}
	if err != nil {
		return nil, err
	}
	result.CPU = cpuSeconds() - cpu
	return result, nil
}

// running is an arm in another process.
type running struct {
	cmd    *exec.Cmd
	input  io.Closer
	stdout bytes.Buffer
	stderr bytes.Buffer
}

// start begins a task in a process of its own.
func (o *Options) start(ctx context.Context, t task) (*running, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	r := &running{cmd: exec.CommandContext(ctx, o.Binary, HiddenArm...)}
	input, err := r.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	r.input = input
	r.cmd.Stdout, r.cmd.Stderr, r.cmd.Env = &r.stdout, &r.stderr, environ()
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := input.Write(append(text, '\n')); err != nil {
		return nil, errors.Join(err, r.cmd.Wait())
	}
	return r, nil
}

// environ is this process's without settings of its own.
func environ() []string {
	var env []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "WAYBILL_") {
			env = append(env, entry)
		}
	}
	return env
}

// finish ends an arm that runs until it is told, and returns what it did.
func (r *running) finish() (*outcome, error) {
	_ = r.input.Close()
	return r.wait()
}

func (r *running) wait() (*outcome, error) {
	if err := r.cmd.Wait(); err != nil {
		return nil, &waybill.Error{Op: "bench", Err: fmt.Errorf("%w: %s", err, strings.TrimSpace(r.stderr.String()))}
	}
	var result outcome
	err := json.Unmarshal(r.stdout.Bytes(), &result)
	return &result, err
}

// do runs a task to its end.
func (o *Options) do(ctx context.Context, t task) (*outcome, error) {
	if o.Binary == "" {
		result, err := t.run(ctx)
		if err == nil {
			result.PeakMB = peakMB()
		}
		return result, err
	}
	r, err := o.start(ctx, t)
	if err != nil {
		return nil, err
	}
	return r.wait()
}
