package demo

import (
	"context"
	"fmt"
	"time"
)

// The kinds of incident, as demo_incident records them.
const (
	relayKill    = "relay kill"
	brokerOutage = "broker outage"
)

// badMoment is where a relay is killed.
type badMoment struct {
	point string // "name:n" of package fault; empty: wherever it is
	note  string
}

// The first gives duplicates for certain: the broker has the events, and
// nobody will ever know. After each kill the next relay must wait for the
// lease, so a backlog builds up and the next batches are large.
var badMoments = []badMoment{
	{"relay.published:4", "events accepted by the broker, not yet marked as sent"},
	{"relay.mid_batch:1", "half of a batch accepted, the other half not sent"},
	{"relay.before_publish:2", "events read and claimed, not yet sent"},
}

// outage is how long the broker is away.
const outage = 2 * time.Second

// mischief kills relays and stops the broker, and leaves a healthy system.
func (p *play) mischief(ctx context.Context) error {
	// Spread over the time of writing: orders meet each state of the relay.
	rest := writingTime(p.options.Events) / 12
	for _, moment := range badMoments {
		if err := p.relays.start(moment.point); err != nil {
			return err
		}
		if err := p.killAt(ctx, moment); err != nil {
			return err
		}
		if !pause(ctx, rest) {
			return context.Cause(ctx)
		}
	}
	if err := p.relays.start(""); err != nil {
		return err
	}
	if err := p.awaitProgress(ctx); err != nil {
		return err
	}
	if !pause(ctx, rest) {
		return context.Cause(ctx)
	}
	return p.outage(ctx)
}

func (p *play) killAt(ctx context.Context, moment badMoment) error {
	note := moment.note
	if moment.point != "" {
		reached, err := p.relays.reached(ctx, 20*time.Second)
		if err != nil {
			return err
		}
		if !reached {
			note = "wherever it was"
		}
	}
	pid, err := p.relays.kill()
	if err != nil {
		return err
	}
	p.view.say("relay %d (pid %d) killed with SIGKILL: %s", p.relays.started, pid, note)
	return p.orders.incident(ctx, relayKill, note)
}

// awaitProgress waits until the present relay has sent something: until the
// queue is shorter than it was.
func (p *play) awaitProgress(ctx context.Context) error {
	applied := p.inventory.applied.Load()
	_, err := eventually(ctx, 10*time.Second, func() (bool, error) {
		return p.inventory.applied.Load() > applied, p.relays.check()
	})
	return err
}

// outage stops the broker for a while and kills the relay in the middle of it,
// so that a relay also has to start while its broker is away. A broker that
// others use is away for relay and consumer alone.
func (p *play) outage(ctx context.Context) error {
	if why := p.broker.reason(); why != "" {
		p.view.say("no outage of the broker: %s", why)
		return nil
	}
	if err := p.broker.away(); err != nil {
		return err
	}
	p.view.say("broker stopped; the order service goes on writing")
	if err := p.orders.incident(ctx, brokerOutage, fmt.Sprintf("stopped for %s", outage)); err != nil {
		return err
	}
	if !pause(ctx, outage/2) {
		return context.Cause(ctx)
	}
	if err := p.killAt(ctx, badMoment{note: "while the broker is away"}); err != nil {
		return err
	}
	if err := p.relays.start(""); err != nil {
		return err
	}
	if !pause(ctx, outage/2) {
		return context.Cause(ctx)
	}
	if err := p.broker.open(ctx); err != nil {
		return err
	}
	p.view.say("broker started again")
	return nil
}
