package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
)

// LatencyOptions are those of [Latency]. Events is how many are measured.
type LatencyOptions struct {
	Options
	Rate int // events per second
}

// LatencyReport is what "bench latency" found: from the answer to an event's
// COMMIT to the event in a consumer's hands, in milliseconds; medians of the runs.
type LatencyReport struct {
	Host     Host     `json:"host"`
	Versions Versions `json:"versions"`

	Runs         int     `json:"runs"`          // how often it was measured
	Events       int     `json:"events"`        // measured in each run
	Rate         int     `json:"rate_per_s"`    // that was asked for
	Reached      float64 `json:"reached_per_s"` // that was written
	PayloadBytes int     `json:"payload_bytes"` // data of one event
	P50          float64 `json:"p50_ms"`        // half of the events took no longer
	P95          float64 `json:"p95_ms"`        // 95 % of them
	P99          float64 `json:"p99_ms"`        // 99 % of them
	Max          float64 `json:"max_ms"`        // the slowest
	CommitP99    float64 `json:"commit_p99_ms"` // what the transaction itself took, for 99 %
	CPUPercent   float64 `json:"relay_cpu"`     // processor time of the relay's process, in percent of one core
	RSSMB        float64 `json:"rss_mb"`        // most memory of the relay's process, in 2^20 bytes
	Each         []Waits `json:"each"`          // the runs
}

// Waits is one run of a latency bench.
type Waits struct {
	Reached    float64 `json:"reached_per_s"` // as in the report
	P50        float64 `json:"p50_ms"`        // as in the report
	P95        float64 `json:"p95_ms"`        // as in the report
	P99        float64 `json:"p99_ms"`        // as in the report
	Max        float64 `json:"max_ms"`        // as in the report
	CommitP99  float64 `json:"commit_p99_ms"` // as in the report
	CPUPercent float64 `json:"relay_cpu"`     // as in the report
	RSSMB      float64 `json:"rss_mb"`        // as in the report
}

// Latency measures how long an event takes to its consumer while a relay has
// little to do.
func Latency(ctx context.Context, o *LatencyOptions) (*LatencyReport, error) {
	switch {
	case o.Rate < 1:
		return nil, optionError("--rate", errors.New("less than 1"), "")
	case o.Broker == kindNone:
		return nil, optionError("--broker", errors.New("none"), "without a broker nothing arrives")
	}
	b, err := newBench(ctx, &o.Options)
	if err != nil {
		return nil, err
	}
	report := &LatencyReport{Host: b.host, Versions: b.versions, Runs: o.Runs, Events: o.Events, Rate: o.Rate, PayloadBytes: o.Payload}
	report.Each, err = repeat(o.Runs, func(int) (*Waits, error) {
		run, err := b.latencyRun(ctx, o)
		if err != nil {
			return nil, err
		}
		o.say("%4.0f/s: p50 %.1f ms, p99 %.1f ms, most %.1f ms, %.1f %% of a core", run.Reached, run.P50, run.P99, run.Max, run.CPUPercent)
		return run, nil
	})
	if err = errors.Join(err, b.leave(ctx)); err != nil {
		return nil, err
	}
	report.Host.LoadEnd = load()
	report.sum()
	return report, nil
}

const (
	arrival     = 30 * time.Second // within which all must have arrived
	latencyPoll = 20 * time.Millisecond
)

// latencyRun measures with a relay and a group of its own.
func (b *bench) latencyRun(ctx context.Context, o *LatencyOptions) (*Waits, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := b.task(armRelay)
	t.Format = string(waybill.FormatRaw)
	relay, err := o.start(ctx, t)
	if err != nil {
		return nil, err
	}
	began := now()
	run, err := b.watch(ctx, o)
	if err != nil {
		return nil, err
	}
	span := since(began)
	done, err := relay.finish()
	if err != nil {
		return nil, err
	}
	run.CPUPercent, run.RSSMB = round(100*done.CPU/span, 1), round(done.PeakMB, 1)
	return run, nil
}

// arrivals notes when events were committed and when they were received.
type arrivals struct {
	mu        sync.Mutex
	committed map[string]time.Time
	received  map[string]time.Time
	writing   []float64 // milliseconds of each transaction
}

func (b *bench) watch(ctx context.Context, o *LatencyOptions) (*Waits, error) {
	a := &arrivals{committed: make(map[string]time.Time), received: make(map[string]time.Time)}
	subscription, done, err := b.house.subscribe(ctx, newName())
	if err != nil {
		return nil, err
	}
	defer done()
	reading, stop := context.WithCancel(ctx)
	defer stop()
	read := make(chan error, 1)
	go func() { read <- a.receive(reading, subscription) }()
	// The first events find the relay starting, and are not counted.
	if err := b.paced(ctx, a, o.Rate, min(o.Rate, o.Events)); err != nil {
		return nil, err
	}
	if err := a.complete(ctx, read); err != nil {
		return nil, err
	}
	a.committed, a.writing = make(map[string]time.Time), nil
	began := now()
	if err := b.paced(ctx, a, o.Rate, o.Events); err != nil {
		return nil, err
	}
	reached := ratio(float64(o.Events), since(began))
	if err := a.complete(ctx, read); err != nil {
		return nil, err
	}
	return a.waits(reached), nil
}

// receive reads until it is told to stop.
func (a *arrivals) receive(ctx context.Context, subscription broker.Subscription) error {
	for {
		deliveries, err := subscription.Poll(ctx, 1000, latencyPoll)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		at := now()
		a.mu.Lock()
		for i := range deliveries {
			if id := deliveries[i].Record.EventID; a.received[id].IsZero() {
				a.received[id] = at
			}
		}
		a.mu.Unlock()
	}
}

// complete waits until all that was committed has arrived.
func (a *arrivals) complete(ctx context.Context, read <-chan error) error {
	for deadline := now().Add(arrival); ; {
		left := 0
		a.mu.Lock()
		for id := range a.committed {
			if a.received[id].IsZero() {
				left++
			}
		}
		a.mu.Unlock()
		select {
		case err := <-read:
			return errors.Join(errors.New("the consumer stopped"), err)
		default:
		}
		switch {
		case left == 0:
			return nil
		case now().After(deadline):
			return &waybill.Error{Op: "bench", Err: fmt.Errorf("%d events have not arrived after %v", left, arrival)}
		case !pause(ctx, latencyPoll):
			return ctx.Err()
		}
	}
}

// paced appends n events, one to a transaction, at a rate that several writers
// share, so that a slow commit does not hold the others back.
func (b *bench) paced(ctx context.Context, a *arrivals, rate, n int) error {
	const writers = 4
	var all sync.WaitGroup
	errs := make([]error, writers)
	began := now()
	events := b.source.events(n)
	for w := range writers {
		all.Go(func() {
			for i := w; i < n && errs[w] == nil; i += writers {
				due := began.Add(time.Duration(i) * time.Second / time.Duration(rate))
				if wait := due.Sub(now()); wait > 0 && !pause(ctx, wait) {
					errs[w] = ctx.Err()
					return
				}
				from := now()
				errs[w] = b.db.append(ctx, events[i:i+1])
				at := now()
				a.mu.Lock()
				a.committed[events[i].ID] = at
				a.writing = append(a.writing, milliseconds(at.Sub(from)))
				a.mu.Unlock()
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func (a *arrivals) waits(reached float64) *Waits {
	a.mu.Lock()
	defer a.mu.Unlock()
	waits := make([]float64, 0, len(a.committed))
	for id, at := range a.committed {
		waits = append(waits, max(milliseconds(a.received[id].Sub(at)), 0))
	}
	slices.Sort(waits)
	slices.Sort(a.writing)
	return &Waits{
		Reached: round(reached, 0), P50: round(quantile(waits, 0.50), 2), P95: round(quantile(waits, 0.95), 2), P99: round(quantile(waits, 0.99), 2),
		Max: round(quantile(waits, 1), 2), CommitP99: round(quantile(a.writing, 0.99), 2),
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (r *LatencyReport) sum() {
	mid := func(figure func(*Waits) float64) float64 { return round(median(of(r.Each, figure)), 2) }
	r.Reached = mid(func(w *Waits) float64 { return w.Reached })
	r.P50 = mid(func(w *Waits) float64 { return w.P50 })
	r.P95 = mid(func(w *Waits) float64 { return w.P95 })
	r.P99 = mid(func(w *Waits) float64 { return w.P99 })
	r.Max = mid(func(w *Waits) float64 { return w.Max })
	r.CommitP99 = mid(func(w *Waits) float64 { return w.CommitP99 })
	r.CPUPercent = mid(func(w *Waits) float64 { return w.CPUPercent })
	r.RSSMB = mid(func(w *Waits) float64 { return w.RSSMB })
}

// Text shows the report to people.
func (r *LatencyReport) Text() string {
	var b strings.Builder
	heading(&b, "latency", &r.Host, &r.Versions)
	fmt.Fprintf(&b, "%d runs of %d events, %d/s asked for and %.0f/s written, %d bytes\n\n", r.Runs, r.Events, r.Rate, r.Reached, r.PayloadBytes)
	line(&b, "commit to consumer", "p50 %.1f ms, p95 %.1f ms, p99 %.1f ms, most %.1f ms", r.P50, r.P95, r.P99, r.Max)
	line(&b, "the commit itself", "p99 %.1f ms", r.CommitP99)
	line(&b, "relay", "%.1f %% of a core, %.1f MB", r.CPUPercent, r.RSSMB)
	return b.String()
}
