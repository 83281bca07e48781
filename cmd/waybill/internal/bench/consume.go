package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// ConsumeOptions are those of [Consume].
type ConsumeOptions struct {
	Options
	Gate    string // next, latest or none
	Workers int    // 0: the default
	Batch   int    // events of one transaction, of the loop too
	Poison  bool   // a further arm, with a key whose handler always fails
	Profile string // folder for profiles of the consumer's last run
}

// ConsumeReport is what "bench consume" found: medians of the runs.
type ConsumeReport struct {
	Host     Host     `json:"host"`
	Versions Versions `json:"versions"`

	Gate         string `json:"gate"`          // of the consumer: next, latest or none
	Workers      int    `json:"workers"`       // transactions at once; 0: the default
	Batch        int    `json:"batch"`         // events of one transaction at most, of consumer and loop
	Runs         int    `json:"runs"`          // how often each arm ran, in turns
	Events       int    `json:"events"`        // that each arm consumed in each run
	Keys         int    `json:"keys"`          // among which the events are spread
	PayloadBytes int    `json:"payload_bytes"` // data of one event

	ConsumeEventsPerS float64 `json:"consume_events_per_s"`          // from the first handler to the last commit
	LoopEventsPerS    float64 `json:"loop_events_per_s"`             // of a loop with the same effect and no inbox
	Ratio             float64 `json:"ratio"`                         // median of each run's consumer / loop
	RSSMB             float64 `json:"rss_mb"`                        // most memory of the consumer's process, in 2^20 bytes
	CPUMicros         float64 `json:"consume_cpu_us"`                // processor time of the consumer's process for each event, in microseconds
	LoopRSSMB         float64 `json:"loop_rss_mb"`                   // the same of the loop
	LoopCPUMicros     float64 `json:"loop_cpu_us"`                   // the same of the loop
	BatchEvents       float64 `json:"batch_events"`                  // of one transaction of the consumer, on average
	LoopBatchEvents   float64 `json:"loop_batch_events"`             // the same of the loop
	PoisonEventsPerS  float64 `json:"poison_events_per_s,omitempty"` // with a key whose handler always fails: events of the other keys
	PoisonOverConsume float64 `json:"poison_over_consume,omitempty"` // median of each run's poison / consumer

	Each []ConsumeRun `json:"each"` // the runs
}

// ConsumeRun is one run of all arms.
type ConsumeRun struct {
	ConsumeEventsPerS float64 `json:"consume_events_per_s"`          // as in the report
	LoopEventsPerS    float64 `json:"loop_events_per_s"`             // as in the report
	Ratio             float64 `json:"ratio"`                         // as in the report
	RSSMB             float64 `json:"rss_mb"`                        // as in the report
	CPUMicros         float64 `json:"consume_cpu_us"`                // as in the report
	LoopRSSMB         float64 `json:"loop_rss_mb"`                   // as in the report
	LoopCPUMicros     float64 `json:"loop_cpu_us"`                   // as in the report
	BatchEvents       float64 `json:"batch_events"`                  // as in the report
	LoopBatchEvents   float64 `json:"loop_batch_events"`             // as in the report
	PoisonEventsPerS  float64 `json:"poison_events_per_s,omitempty"` // as in the report
}

// Consume measures how fast a consumer applies events, beside a loop that has
// the same effect and no inbox.
func Consume(ctx context.Context, o *ConsumeOptions) (*ConsumeReport, error) {
	if kind, _ := brokerOf(o.Broker); kind == kindNone {
		return nil, optionError("--broker", errors.New("a consumer needs one"), "give a server, or nothing for one in this process")
	}
	if o.Events < 2*o.Keys && o.Poison {
		return nil, optionError("--keys", fmt.Errorf("%d of %d events", o.Keys, o.Events), "give each key two events or more")
	}
	b, err := newBench(ctx, &o.Options)
	if err != nil {
		return nil, err
	}
	report := &ConsumeReport{
		Host: b.host, Versions: b.versions, Gate: o.Gate, Workers: o.Workers, Batch: o.Batch,
		Runs: o.Runs, Events: o.Events, Keys: o.Keys, PayloadBytes: o.Payload,
	}
	if err = b.fillTopic(ctx, o); err == nil {
		report.Each, err = repeat(o.Runs, func(n int) (*ConsumeRun, error) { return b.consumeRun(ctx, o, n) })
	}
	if err = errors.Join(err, b.leave(ctx)); err != nil {
		return nil, err
	}
	report.Host.LoadEnd = load()
	report.sum()
	return report, nil
}

// fillTopic makes the consumer's tables, and publishes what all arms consume.
func (b *bench) fillTopic(ctx context.Context, o *ConsumeOptions) error {
	if err := b.db.store.Migrate(ctx, store.MigrateOptions{SkipOutbox: true}); err != nil {
		return err
	}
	if _, err := b.db.db.ExecContext(ctx, modelSQL.of(b.db.kind)); err != nil {
		return err
	}
	client, err := b.house.client(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	for left := o.Events; left > 0; {
		events := b.source.events(min(left, fillBatch))
		records := make([]waybill.Record, len(events))
		for i := range events {
			if records[i], err = waybill.Encode(waybill.FormatEnvelope, &events[i]); err != nil {
				return err
			}
		}
		if err := errors.Join(client.Publish(ctx, records)...); err != nil {
			return err
		}
		left -= len(events)
	}
	return nil
}

// consumeRun runs the arms once; which one comes first changes from run to run.
func (b *bench) consumeRun(ctx context.Context, o *ConsumeOptions, n int) (*ConsumeRun, error) {
	arm := func(name, poison string) task {
		t := b.task(name)
		t.Events = o.Events
		if poison != "" {
			t.Events -= (o.Events-1)/o.Keys + 1
		}
		t.Consume = &consumption{Group: newName(), Gate: o.Gate, Workers: o.Workers, Batch: o.Batch, Poison: poison}
		return t
	}
	arms := []task{arm(armConsume, ""), arm(armBare, "")}
	if o.Poison {
		arms = append(arms, arm(armConsume, "order-0000000"))
	}
	if n == o.Runs-1 {
		arms[0].Profile = o.Profile
	}
	results := make([]*outcome, len(arms))
	for i := range arms {
		i = (i + n) % len(arms)
		t := arms[i]
		var err error
		if results[i], err = o.do(ctx, t); err != nil {
			return nil, err
		}
		done, err := b.db.effects(ctx, t.Consume.Group)
		if err != nil {
			return nil, err
		}
		if done != t.Events {
			return nil, &waybill.Error{Op: "bench", Err: fmt.Errorf("%s had %d effects, want %d", t.Arm, done, t.Events)}
		}
		o.say("run %d of %d: %-16s %10s %6.1f us %6.1f MB %6.1f events in a transaction", n+1, o.Runs, consumerName(t), perSecond(results[i].rate()),
			results[i].cpuPerEvent(), results[i].PeakMB, ratio(float64(t.Events), float64(results[i].Batches)))
	}
	consumer, loop := results[0], results[1]
	run := &ConsumeRun{
		ConsumeEventsPerS: round(consumer.rate(), 0), LoopEventsPerS: round(loop.rate(), 0), Ratio: round(ratio(consumer.rate(), loop.rate()), 3),
		RSSMB: round(consumer.PeakMB, 1), CPUMicros: round(consumer.cpuPerEvent(), 1), LoopRSSMB: round(loop.PeakMB, 1), LoopCPUMicros: round(loop.cpuPerEvent(), 1),
	}
	run.BatchEvents = round(ratio(float64(consumer.Events), float64(consumer.Batches)), 1)
	run.LoopBatchEvents = round(ratio(float64(loop.Events), float64(loop.Batches)), 1)
	if o.Poison {
		run.PoisonEventsPerS = round(results[2].rate(), 0)
	}
	return run, nil
}

func consumerName(t task) string {
	if t.Consume.Poison != "" {
		return t.Arm + ", poison"
	}
	return t.Arm
}

func (r *ConsumeReport) sum() {
	mid := func(figure func(*ConsumeRun) float64, digits int) float64 {
		return round(median(of(r.Each, figure)), digits)
	}
	r.ConsumeEventsPerS = mid(func(n *ConsumeRun) float64 { return n.ConsumeEventsPerS }, 0)
	r.LoopEventsPerS = mid(func(n *ConsumeRun) float64 { return n.LoopEventsPerS }, 0)
	r.Ratio = mid(func(n *ConsumeRun) float64 { return n.Ratio }, 3)
	r.RSSMB = mid(func(n *ConsumeRun) float64 { return n.RSSMB }, 1)
	r.CPUMicros = mid(func(n *ConsumeRun) float64 { return n.CPUMicros }, 1)
	r.LoopRSSMB = mid(func(n *ConsumeRun) float64 { return n.LoopRSSMB }, 1)
	r.LoopCPUMicros = mid(func(n *ConsumeRun) float64 { return n.LoopCPUMicros }, 1)
	r.BatchEvents = mid(func(n *ConsumeRun) float64 { return n.BatchEvents }, 1)
	r.LoopBatchEvents = mid(func(n *ConsumeRun) float64 { return n.LoopBatchEvents }, 1)
	r.PoisonEventsPerS = mid(func(n *ConsumeRun) float64 { return n.PoisonEventsPerS }, 0)
	r.PoisonOverConsume = mid(func(n *ConsumeRun) float64 { return ratio(n.PoisonEventsPerS, n.ConsumeEventsPerS) }, 3)
}

// Text shows the report to people.
func (r *ConsumeReport) Text() string {
	var b strings.Builder
	heading(&b, "consume, gate "+r.Gate, &r.Host, &r.Versions)
	fmt.Fprintf(&b, "%d runs of %d events, %d keys, %d bytes, at most %d in a transaction\n\n", r.Runs, r.Events, r.Keys, r.PayloadBytes, r.Batch)
	line(&b, "consumer", "%10s  %5.1f us of processor, %.1f MB, %.0f in a transaction", perSecond(r.ConsumeEventsPerS), r.CPUMicros, r.RSSMB, r.BatchEvents)
	line(&b, "loop without inbox", "%10s  %5.1f us of processor, %.1f MB, %.0f in a transaction", perSecond(r.LoopEventsPerS), r.LoopCPUMicros, r.LoopRSSMB, r.LoopBatchEvents)
	line(&b, "ratio", "%10.2f", r.Ratio)
	if r.PoisonEventsPerS > 0 {
		line(&b, "with a poisoned key", "%10s  %.2f of without", perSecond(r.PoisonEventsPerS), r.PoisonOverConsume)
	}
	return b.String()
}
