package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/waybillhq/waybill"
)

// RelayOptions are those of [Relay].
type RelayOptions struct {
	Options
	Mode    string // keep, forget or both
	Format  string // of the relay's records
	Profile string // folder for profiles of the relay's last run
}

// The modes: what becomes of a settled event.
const (
	ModeKeep   = "keep"
	ModeForget = "forget"
	ModeBoth   = "both"
)

// RelayReport is what "bench relay" found: medians of the runs.
type RelayReport struct {
	Host     Host     `json:"host"`
	Versions Versions `json:"versions"`
	Limits   Limits   `json:"limits"` // raw, of the same runs

	Mode         string `json:"mode"`          // keep: settled events stay, with a receipt; forget: they are deleted; both
	Format       string `json:"format"`        // of the relay's records; the loop's are raw
	Runs         int    `json:"runs"`          // how often each arm ran, in turns
	Events       int    `json:"events"`        // that each arm drained in each run
	Keys         int    `json:"keys"`          // among which the events are spread
	PayloadBytes int    `json:"payload_bytes"` // data of one event

	RelayEventsPerS float64 `json:"relay_events_per_s"` // from the start of the relay to its last settlement
	LoopEventsPerS  float64 `json:"loop_events_per_s"`  // of a loop written by hand over the same tables
	Ratio           float64 `json:"ratio"`              // median of each run's relay / loop
	RSSMB           float64 `json:"rss_mb"`             // most memory of the relay's process, in 2^20 bytes
	CPUMicros       float64 `json:"relay_cpu_us"`       // processor time of the relay's process for each event, in microseconds
	LoopRSSMB       float64 `json:"loop_rss_mb"`        // the same of the loop
	LoopCPUMicros   float64 `json:"loop_cpu_us"`        // the same of the loop

	ForgetEventsPerS float64 `json:"forget_events_per_s,omitempty"` // mode both: the relay that forgets; relay_events_per_s is the one that keeps
	ForgetOverKeep   float64 `json:"forget_over_keep,omitempty"`    // mode both: median of each run's forget / keep

	Each []RelayRun `json:"each"` // the runs
}

// RelayRun is one run of all arms.
type RelayRun struct {
	RelayEventsPerS  float64 `json:"relay_events_per_s"`            // as in the report
	LoopEventsPerS   float64 `json:"loop_events_per_s"`             // as in the report
	Ratio            float64 `json:"ratio"`                         // as in the report
	RSSMB            float64 `json:"rss_mb"`                        // as in the report
	CPUMicros        float64 `json:"relay_cpu_us"`                  // as in the report
	LoopRSSMB        float64 `json:"loop_rss_mb"`                   // as in the report
	LoopCPUMicros    float64 `json:"loop_cpu_us"`                   // as in the report
	ForgetEventsPerS float64 `json:"forget_events_per_s,omitempty"` // as in the report
	ProduceEventsPer float64 `json:"produce_events_per_s"`          // as in the report's limits
	ReadEventsPerS   float64 `json:"read_events_per_s"`             // as in the report's limits
}

// Relay measures how fast a relay drains a queue.
func Relay(ctx context.Context, o *RelayOptions) (*RelayReport, error) {
	b, err := newBench(ctx, &o.Options)
	if err != nil {
		return nil, err
	}
	report := &RelayReport{
		Host: b.host, Versions: b.versions, Mode: o.Mode, Format: o.Format,
		Runs: o.Runs, Events: o.Events, Keys: o.Keys, PayloadBytes: o.Payload,
	}
	report.Each, err = repeat(o.Runs, func(n int) (*RelayRun, error) { return b.relayRun(ctx, o, n) })
	if err = errors.Join(err, b.leave(ctx)); err != nil {
		return nil, err
	}
	report.Host.LoadEnd = load()
	report.sum()
	return report, nil
}

// relayRun runs the arms once; which one comes first changes from run to run.
func (b *bench) relayRun(ctx context.Context, o *RelayOptions, n int) (*RelayRun, error) {
	relayTask := b.task(armRelay)
	relayTask.Events, relayTask.Format, relayTask.Forget = o.Events, o.Format, o.Mode == ModeForget
	loopTask := b.task(armLoop)
	loopTask.Events, loopTask.Forget = o.Events, o.Mode == ModeForget
	arms := []task{relayTask, loopTask}
	if o.Mode == ModeBoth {
		relayTask.Forget = true
		arms = append(arms, relayTask)
	}
	if n == o.Runs-1 {
		arms[0].Profile = o.Profile
	}
	results := make([]*outcome, len(arms))
	for i := range arms {
		i = (i + n) % len(arms)
		if err := b.db.fill(ctx, b.source, o.Events); err != nil {
			return nil, err
		}
		var err error
		if results[i], err = o.do(ctx, arms[i]); err != nil {
			return nil, err
		}
		if err := b.drained(ctx); err != nil {
			return nil, err
		}
		o.say("run %d of %d: %-12s %10s %6.1f us %6.1f MB", n+1, o.Runs, name(arms[i]), perSecond(results[i].rate()), results[i].cpuPerEvent(), results[i].PeakMB)
	}
	relay, loop := results[0], results[1]
	run := &RelayRun{
		RelayEventsPerS: round(relay.rate(), 0), LoopEventsPerS: round(loop.rate(), 0), Ratio: round(ratio(relay.rate(), loop.rate()), 3),
		RSSMB: round(relay.PeakMB, 1), CPUMicros: round(relay.cpuPerEvent(), 1), LoopRSSMB: round(loop.PeakMB, 1), LoopCPUMicros: round(loop.cpuPerEvent(), 1),
	}
	if o.Mode == ModeBoth {
		run.ForgetEventsPerS = round(results[2].rate(), 0)
	}
	produced, err := b.house.produce(ctx, &o.Options, o.Events)
	if err != nil {
		return nil, err
	}
	read, err := b.db.readAll(ctx)
	run.ProduceEventsPer, run.ReadEventsPerS = round(produced, 0), round(read, 0)
	return run, err
}

func name(t task) string {
	if t.Forget {
		return t.Arm + ", " + ModeForget
	}
	return t.Arm
}

// drained checks that an arm did all that it was to do.
func (b *bench) drained(ctx context.Context) error {
	_, pending, _, err := b.db.counts(ctx)
	if err == nil && pending > 0 {
		err = &waybill.Error{Op: "bench", Err: fmt.Errorf("%d events are left in the queue", pending)}
	}
	return err
}

func (r *RelayReport) sum() {
	mid := func(figure func(*RelayRun) float64, digits int) float64 {
		return round(median(of(r.Each, figure)), digits)
	}
	r.RelayEventsPerS = mid(func(n *RelayRun) float64 { return n.RelayEventsPerS }, 0)
	r.LoopEventsPerS = mid(func(n *RelayRun) float64 { return n.LoopEventsPerS }, 0)
	r.Ratio = mid(func(n *RelayRun) float64 { return n.Ratio }, 3)
	r.RSSMB = mid(func(n *RelayRun) float64 { return n.RSSMB }, 1)
	r.CPUMicros = mid(func(n *RelayRun) float64 { return n.CPUMicros }, 1)
	r.LoopRSSMB = mid(func(n *RelayRun) float64 { return n.LoopRSSMB }, 1)
	r.LoopCPUMicros = mid(func(n *RelayRun) float64 { return n.LoopCPUMicros }, 1)
	r.ForgetEventsPerS = mid(func(n *RelayRun) float64 { return n.ForgetEventsPerS }, 0)
	r.ForgetOverKeep = mid(func(n *RelayRun) float64 { return ratio(n.ForgetEventsPerS, n.RelayEventsPerS) }, 3)
	r.Limits.ProduceEventsPerS = mid(func(n *RelayRun) float64 { return n.ProduceEventsPer }, 0)
	r.Limits.ReadEventsPerS = mid(func(n *RelayRun) float64 { return n.ReadEventsPerS }, 0)
}

// Text shows the report to people.
func (r *RelayReport) Text() string {
	var b strings.Builder
	heading(&b, "relay, "+r.Mode, &r.Host, &r.Versions)
	fmt.Fprintf(&b, "%d runs of %d events, %d keys, %d bytes, format %s\n\n", r.Runs, r.Events, r.Keys, r.PayloadBytes, r.Format)
	line(&b, "relay", "%10s  %5.1f us of processor, %.1f MB", perSecond(r.RelayEventsPerS), r.CPUMicros, r.RSSMB)
	line(&b, "loop by hand", "%10s  %5.1f us of processor, %.1f MB", perSecond(r.LoopEventsPerS), r.LoopCPUMicros, r.LoopRSSMB)
	line(&b, "ratio", "%10.2f", r.Ratio)
	if r.Mode == ModeBoth {
		line(&b, "relay, forget", "%10s  %.2f of keep", perSecond(r.ForgetEventsPerS), r.ForgetOverKeep)
	}
	limits(&b, &r.Limits)
	return b.String()
}
