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

	"github.com/waybillhq/waybill/store"
)

// reaction is what one arm took in one run at a steady rate.
type reaction struct {
	p50, p99, most float64 // milliseconds from the answer to COMMIT to the consumer
	reached        float64 // events per second
	cpu            float64 // processor time of the arm's process, in percent of one core
	database       float64 // the same of the database's server, the writing included
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

// reactors are the arms of the part. Those who ask now and then come before those
// who are as fast as they can.
func reactors() []*reactor {
	return []*reactor{
		{name: armWaybill, what: "polling", mode: store.ModePoll},
		{name: armDebezium, what: "poll.interval.ms=10", every: 10 * time.Millisecond},
		{name: armWaybill, what: "reading the log", mode: store.ModeCDC},
		{name: armDebezium, what: "poll.interval.ms=1", every: time.Millisecond},
	}
}

// latency measures in turns how long an event takes to a consumer.
func latency(ctx context.Context, o *options) (*report, error) {
	t, err := newTopics(o.kafka)
	if err != nil {
		return nil, err
	}
	defer t.close()
	all := o.taking(reactors())
	var r *report
	if i := slices.IndexFunc(all, func(a *reactor) bool { return a.name == armDebezium }); i >= 0 {
		// A virtual machine is fast once it has compiled what it runs.
		warm, _, err := all[i].run(ctx, o, t)
		if err != nil {
			return nil, fmt.Errorf("%s, warming up: %w", armDebezium, err)
		}
		o.say("%s, warming up: p50 %.2f ms, p99 %.2f ms", armDebezium, warm.p50, warm.p99)
	}
	for n := range o.runs {
		for i := range all {
			one := all[(i+n)%len(all)]
			result, versions, err := one.run(ctx, o, t)
			if r == nil {
				r = versions
			}
			if err != nil && ctx.Err() != nil && n > 0 {
				// Told to stop: the runs that all have done count.
				for _, a := range all {
					a.results = a.results[:n]
				}
				r.reacted(o, all)
				return r, nil
			}
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", one.name, one.what, err)
			}
			one.results = append(one.results, *result)
			o.say("run %d of %d: %-8s %-20s %4.0f/s: p50 %5.2f ms, p99 %6.2f ms, most %6.1f ms, %5.1f %% of a core, database %5.1f %%",
				n+1, o.runs, one.name, one.what, result.reached, result.p50, result.p99, result.most, result.cpu, result.database)
		}
	}
	r.reacted(o, all)
	return r, nil
}

// taking leaves out the arms that are not to take part.
func (o *options) taking(all []*reactor) []*reactor {
	return slices.DeleteFunc(all, func(a *reactor) bool { return !slices.Contains(o.arms, a.name) })
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
		defer func() {
			err = errors.Join(err, c.close(ctx))
			if s.kind == kindMySQL {
				err = errors.Join(err, t.remove(ctx, c.history()))
			}
		}()
		result, err := w.measure(ctx, topic, c.pid)
		if err != nil {
			return nil, nil, err
		}
		result.mb = residentMB(strconv.Itoa(c.pid))
		return result, r, nil
	}
	relay, err := startRelay(ctx, o, s, topic, a.mode)
	if err != nil {
		return nil, nil, err
	}
	result, err := w.measure(ctx, topic, relay.cmd.Process.Pid)
	done, ended := relay.finish()
	if err = errors.Join(err, ended); err != nil {
		return nil, nil, err
	}
	result.mb = done.PeakMB
	return result, r, followed(a.mode, done, o.measured)
}

// startRelay starts a relay that runs until its input ends.
func startRelay(ctx context.Context, o *options, s *site, topic, mode string) (*running, error) {
	return start(ctx, task{Arm: "relay", Mode: mode, Store: s.kind, DSN: s.dsn, Broker: "kafka", URL: "kafka://" + o.kafka, Topic: topic, Format: "raw"}, o.waybill, "bench", "__arm")
}

// followed is an error where a relay that was to read the log polled. What it was
// told is counted now and then, so that the last events may not be counted.
func followed(mode string, done *outcome, events int) error {
	if mode == store.ModeCDC && done.Told < uint64(events/2) {
		return fmt.Errorf("the log told %d of %d events", done.Told, events)
	}
	return nil
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

func (w *watch) measure(ctx context.Context, topic string, pid int) (*reaction, error) {
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
	own, database, err := w.o.used(pid)
	if err != nil {
		return nil, err
	}
	began := now()
	if err := w.paced(ctx, w.o.measured); err != nil {
		return nil, err
	}
	w.span = since(began)
	ownAfter, databaseAfter, err := w.o.used(pid)
	if err == nil {
		err = w.complete(ctx)
	}
	if err != nil {
		return nil, err
	}
	result := w.reaction()
	result.cpu, result.database = 100*ratio(ownAfter-own, w.span), 100*ratio(databaseAfter-database, w.span)
	return result, nil
}

// used is the processor time of an arm and of the database so far.
func (o *options) used(pid int) (own, database float64, err error) {
	if own, err = processCPU(pid); err == nil && o.storePID != 0 {
		database, err = treeCPU(o.storePID)
	}
	return own, database, err
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
func (r *report) reacted(o *options, all []*reactor) {
	var b strings.Builder
	fmt.Fprintf(&b, "%d runs of %d events at %d/s\n", len(all[0].results), o.measured, o.rate)
	fmt.Fprintf(&b, "%-30s %7s %15s %7s %16s %7s %7s %10s %6s\n", "commit to consumer, ms", "p50", "", "p99", "", "most", "% core", "% database", "MB")
	for _, a := range all {
		mid := func(figure func(*reaction) float64) float64 { return median(collect(a.results, figure)) }
		p50, p99 := collect(a.results, func(x *reaction) float64 { return x.p50 }), collect(a.results, func(x *reaction) float64 { return x.p99 })
		fmt.Fprintf(&b, "%-30s %7.2f %15s %7.2f %16s %7.1f %7.1f %10.1f %6.0f\n", a.name+", "+a.what,
			median(p50), spread(p50, "%.2f"), median(p99), spread(p99, "%.2f"), mid(func(x *reaction) float64 { return x.most }),
			mid(func(x *reaction) float64 { return x.cpu }), mid(func(x *reaction) float64 { return x.database }), mid(func(x *reaction) float64 { return x.mb }))
	}
	r.text += b.String()
}
