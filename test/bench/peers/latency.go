package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// reaction is what one arm took in one run at a steady rate.
type reaction struct {
	p50, p99, most float64 // milliseconds from the answer to COMMIT to the consumer
	reached        float64 // events per second
	cpu            float64 // processor time of the arm's process, in percent of one core
	mb             float64
}

// reactor is an arm that waits for events.
type reactor struct {
	name    string
	what    string // about its settings
	mode    string // of waybill
	every   time.Duration
	results []reaction
}

// latency measures in turns how long an event takes to a consumer.
func latency(ctx context.Context, o *options) (_ *report, err error) {
	t, err := newTopics(o.kafka)
	if err != nil {
		return nil, err
	}
	defer t.close()
	all := []*reactor{
		{name: armWaybill, what: "polling"},
		{name: armDebezium, what: "poll.interval.ms=10", every: 10 * time.Millisecond},
		{name: armDebezium, what: "poll.interval.ms=1", every: time.Millisecond},
	}
	if o.cdc {
		all = slices.Insert(all, 1, &reactor{name: armWaybill, what: "reading the log", mode: "cdc"})
	}
	var r *report
	for n := range o.runs {
		for i := range all {
			one := all[(i+n)%len(all)]
			result, versions, err := one.run(ctx, o, t)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", one.name, one.what, err)
			}
			if r == nil {
				r = versions
			}
			one.results = append(one.results, *result)
			o.say("run %d of %d: %-8s %-20s %4.0f/s: p50 %5.2f ms, p99 %6.2f ms, most %6.1f ms, %5.1f %% of a core", n+1, o.runs, one.name, one.what, result.reached, result.p50, result.p99, result.most, result.cpu)
		}
	}
	r.reacted(all)
	return r, nil
}

func (a *reactor) run(ctx context.Context, o *options, t *topics) (_ *reaction, r *report, err error) {
	s, err := newSite(ctx, o.store, a.name)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	r = newReport(ctx, o, s)
	topic := newName(a.name)
	if err := t.create(ctx, topic); err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, t.remove(ctx, topic)) }()
	if err := s.migrate(ctx, a.name == armWaybill); err != nil {
		return nil, nil, err
	}
	w := &watch{o: o, site: s, source: newSource(topic, o), committed: make(map[string]time.Time), received: make(map[string]time.Time)}
	if a.name == armDebezium {
		c, err := newConnector(ctx, o, s, "", reacting(a.every))
		if err != nil {
			return nil, nil, err
		}
		defer func() { err = errors.Join(err, c.close(ctx)) }()
		var before, after float64
		result, err := w.measure(ctx, topic, func() (err error) {
			before, err = processCPU(c.pid)
			return err
		}, func() (err error) {
			after, err = processCPU(c.pid)
			return err
		})
		if err != nil {
			return nil, nil, err
		}
		result.cpu, result.mb = 100*ratio(after-before, w.span), residentMB(strconv.Itoa(c.pid))
		return result, r, nil
	}
	relay, err := start(ctx, task{Arm: "relay", Mode: a.mode, Store: "postgres", DSN: s.dsn, Broker: "kafka", URL: "kafka://" + o.kafka, Topic: topic, Format: "raw"}, o.waybill, "bench", "__arm")
	if err != nil {
		return nil, nil, err
	}
	began, before := now(), 0.0
	pid := relay.cmd.Process.Pid
	var after float64
	result, err := w.measure(ctx, topic, func() (err error) {
		before, err = processCPU(pid)
		return err
	}, func() (err error) {
		after, err = processCPU(pid)
		return err
	})
	if err != nil {
		_ = relay.cmd.Process.Kill()
		_, failed := relay.wait()
		return nil, nil, errors.Join(err, failed, fmt.Errorf("after %.1f s", since(began)))
	}
	done, err := relay.finish()
	if err != nil {
		return nil, nil, err
	}
	result.cpu, result.mb = 100*ratio(after-before, w.span), done.PeakMB
	return result, r, nil
}

// watch writes events at a steady rate and notes when they arrive.
type watch struct {
	o      *options
	site   *site
	source *source
	span   float64 // seconds of the measuring

	mu        sync.Mutex
	committed map[string]time.Time
	received  map[string]time.Time
}

func (w *watch) measure(ctx context.Context, topic string, before, after func() error) (*reaction, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(w.o.kafka), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	reading, stop := context.WithCancel(ctx)
	var reader sync.WaitGroup
	reader.Go(func() { w.read(reading, client) })
	defer reader.Wait()
	defer stop()
	// The first seconds find everybody starting.
	if err := errors.Join(w.paced(ctx, 5*w.o.rate), w.complete(ctx)); err != nil {
		return nil, err
	}
	w.mu.Lock()
	clear(w.committed)
	w.mu.Unlock()
	if err := before(); err != nil {
		return nil, err
	}
	began := now()
	if err := w.paced(ctx, w.o.measured); err != nil {
		return nil, err
	}
	w.span = since(began)
	if err := after(); err != nil {
		return nil, err
	}
	if err := w.complete(ctx); err != nil {
		return nil, err
	}
	return w.reaction(), nil
}

func (w *watch) read(ctx context.Context, client *kgo.Client) {
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		at := now()
		w.mu.Lock()
		fetches.EachRecord(func(r *kgo.Record) {
			for _, h := range r.Headers {
				if id := string(h.Value); h.Key == "id" && w.received[id].IsZero() {
					w.received[id] = at
				}
			}
		})
		w.mu.Unlock()
	}
}

// paced commits n transactions of one event each, shared by writers so that a
// slow commit does not hold the others back.
func (w *watch) paced(ctx context.Context, n int) error {
	const writers = 4
	events, began := w.source.events(n), now()
	errs := make([]error, writers)
	var all sync.WaitGroup
	for k := range writers {
		all.Go(func() {
			for i := k; i < n && errs[k] == nil; i += writers {
				due := began.Add(time.Duration(i) * time.Second / time.Duration(w.o.rate))
				if wait := due.Sub(now()); wait > 0 && !pause(ctx, wait) {
					errs[k] = ctx.Err()
					return
				}
				errs[k] = w.site.append(ctx, events[i:i+1])
				at := now()
				w.mu.Lock()
				w.committed[events[i].ID] = at
				w.mu.Unlock()
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// complete waits until all that was committed has arrived.
func (w *watch) complete(ctx context.Context) error {
	for deadline := now().Add(time.Minute); ; {
		left := 0
		w.mu.Lock()
		for id := range w.committed {
			if w.received[id].IsZero() {
				left++
			}
		}
		w.mu.Unlock()
		switch {
		case left == 0:
			return nil
		case now().After(deadline):
			return fmt.Errorf("%d events have not arrived", left)
		case !pause(ctx, 20*time.Millisecond):
			return ctx.Err()
		}
	}
}

func (w *watch) reaction() *reaction {
	waits := make([]float64, 0, len(w.committed))
	for id, at := range w.committed {
		waits = append(waits, max(float64(w.received[id].Sub(at))/float64(time.Millisecond), 0))
	}
	slices.Sort(waits)
	return &reaction{p50: quantile(waits, 0.50), p99: quantile(waits, 0.99), most: quantile(waits, 1), reached: ratio(float64(len(waits)), w.span)}
}

// reacted writes the table of latencies.
func (r *report) reacted(all []*reactor) {
	var b strings.Builder
	fmt.Fprintf(&b, "%d runs\n", len(all[0].results))
	fmt.Fprintf(&b, "%-30s %8s %17s %8s %17s %8s %7s\n", "commit to consumer, ms", "p50", "", "p99", "", "% core", "MB")
	for _, a := range all {
		p50, p99 := collect(a.results, func(x *reaction) float64 { return x.p50 }), collect(a.results, func(x *reaction) float64 { return x.p99 })
		fmt.Fprintf(&b, "%-30s %8.2f %17s %8.2f %17s %8.1f %7.0f\n", a.name+", "+a.what,
			median(p50), spread(p50, "%.2f"), median(p99), spread(p99, "%.2f"),
			median(collect(a.results, func(x *reaction) float64 { return x.cpu })), median(collect(a.results, func(x *reaction) float64 { return x.mb })))
	}
	r.text += b.String()
}
