package main

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// The arms.
const (
	armWaybill   = "waybill"
	armForget    = "waybill forget" // events are deleted as they are settled: nothing tells of them later, as with most others
	armLoop      = "three tables"
	armStatus    = "one table"
	armOneByOne  = "one by one"
	armWatermill = "watermill"
	armDebezium  = "debezium"
)

// contender is an arm with what it needs: tables and a topic of its own.
type contender struct {
	name    string
	events  int // of a run
	site    *site
	topic   string
	source  *source
	dbz     *connector
	results []outcome
}

// fleet is all contenders of a part.
type fleet struct {
	o      *options
	broker string // where the arms send to
	topics *topics
	all    []*contender
}

// newFleet makes what the contenders need.
func newFleet(ctx context.Context, o *options, broker string) (*fleet, error) {
	t, err := newTopics(o.kafka)
	if err != nil {
		return nil, err
	}
	f := &fleet{o: o, broker: broker, topics: t}
	for _, name := range o.arms {
		c := &contender{name: name, events: o.events, topic: newName(name)}
		switch name {
		case armWatermill, armOneByOne:
			c.events = max(o.events/o.slow, 1)
		}
		f.all = append(f.all, c)
		if err := f.equip(ctx, c); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", name, err), f.close(ctx))
		}
	}
	return f, nil
}

func (f *fleet) equip(ctx context.Context, c *contender) (err error) {
	if c.site, err = newSite(ctx, f.o.store, c.name); err != nil {
		return err
	}
	if err := f.topics.create(ctx, c.topic); err != nil {
		return err
	}
	c.source = newSource(c.topic, f.o)
	switch c.name {
	case armWaybill, armForget, armLoop:
		return c.site.migrate(ctx, true)
	case armDebezium:
		if err := c.site.migrate(ctx, false); err != nil {
			return err
		}
		broker := f.broker
		if broker == f.o.kafka {
			broker = "" // Connect's own
		}
		if c.dbz, err = newConnector(ctx, f.o, c.site, broker, draining); err != nil {
			return err
		}
		// A virtual machine is fast once it has compiled what it runs.
		warm, err := c.dbz.drain(ctx, f.topics, c.source, f.o.warm)
		if err == nil {
			f.o.say("%s, warming up: %s", c.name, perSecond(warm.rate()))
		}
		return err
	}
	return nil
}

func (f *fleet) close(ctx context.Context) error {
	var errs []error
	for _, c := range f.all {
		if c.dbz != nil {
			errs = append(errs, c.dbz.close(ctx))
		}
		if c.site != nil {
			errs = append(errs, c.site.close(ctx))
		}
		errs = append(errs, f.topics.remove(ctx, c.topic))
	}
	f.topics.close()
	return errors.Join(errs...)
}

// drain measures all contenders in turns; who begins changes from run to run.
func drain(ctx context.Context, o *options, broker string) (_ *report, err error) {
	f, err := newFleet(ctx, o, broker)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.close(ctx)) }()
	r := newReport(ctx, o, f.all[0].site)
	for n := range o.runs {
		for i := range f.all {
			c := f.all[(i+n)%len(f.all)]
			result, err := f.run(ctx, c)
			if err != nil && ctx.Err() != nil && n > 0 {
				// Told to stop: the runs that all have done count.
				for _, c := range f.all {
					c.results = c.results[:n]
				}
				r.drained(f.all)
				return r, nil
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			c.results = append(c.results, *result)
			o.say("run %d of %d: %-12s %10s %7.1f us of processor, %4.0f MB", n+1, o.runs, c.name, perSecond(result.rate()), result.cpuPerEvent(), result.PeakMB)
		}
	}
	r.drained(f.all)
	return r, nil
}

// run fills a contender's tables, lets it drain them, and counts what arrived.
func (f *fleet) run(ctx context.Context, c *contender) (*outcome, error) {
	if c.dbz != nil {
		return c.dbz.drain(ctx, f.topics, c.source, c.events)
	}
	before, err := f.topics.count(ctx, c.topic)
	if err != nil {
		return nil, err
	}
	t := task{Arm: c.name, Store: "postgres", DSN: c.site.dsn, Broker: "kafka", URL: "kafka://" + f.broker, Topic: c.topic, Format: "raw", Events: c.events}
	program, words := f.o.self, []string{armCommand}
	switch c.name {
	case armWaybill, armForget, armLoop:
		err = c.site.fill(ctx, c.source, c.events)
		program, words = f.o.waybill, []string{"bench", "__arm"}
		if t.Arm, t.Forget = "relay", c.name == armForget; c.name == armLoop {
			t.Arm = "loop"
		}
	case armStatus, armOneByOne:
		err = fillSingle(ctx, c.site.pool, c.source, c.events)
	case armWatermill:
		err = fillWatermill(ctx, c.site.pool, c.source, c.events)
	}
	if err != nil {
		return nil, err
	}
	result, err := f.do(ctx, t, program, words)
	if err != nil {
		return nil, err
	}
	after, err := f.topics.count(ctx, c.topic)
	if err == nil && (after-before != c.events || result.Events != c.events) {
		err = fmt.Errorf("%d records arrived and %d were counted, of %d events", after-before, result.Events, c.events)
	}
	return result, err
}

// do runs a task in a process of its own, or here where a test has none.
func (f *fleet) do(ctx context.Context, t task, program string, words []string) (*outcome, error) {
	if program == "" {
		return t.run(ctx)
	}
	r, err := start(ctx, t, program, words...)
	if err != nil {
		return nil, err
	}
	return r.wait()
}

func (o *outcome) rate() float64 { return ratio(float64(o.Events), o.Seconds) }

// cpuPerEvent is in microseconds.
func (o *outcome) cpuPerEvent() float64 { return ratio(o.CPU*1e6, float64(o.Events)) }

func (o *options) say(format string, args ...any) {
	_, _ = fmt.Fprintf(os.Stderr, format+"\n", args...)
}
