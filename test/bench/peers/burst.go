package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/waybillhq/waybill/store"
)

// swallowed is what one arm made of one transaction with very many events.
type swallowed struct {
	first, last float64 // seconds from the answer to COMMIT to the first and the last record
	settled     float64 // seconds to the end of the queue; 0 where there is none
	cpu         float64 // seconds of processor time of the arm's process, from COMMIT on
	database    float64 // the same of the database's server
	mb          float64 // most memory of the arm's process
}

// burst measures what one transaction of very many events does to each arm.
func burst(ctx context.Context, o *options) (*report, error) {
	t, err := newTopics(o.kafka)
	if err != nil {
		return nil, err
	}
	defer t.close()
	all := o.taking([]*reactor{
		{name: armWaybill, what: "polling", mode: store.ModePoll},
		{name: armWaybill, what: "reading the log", mode: store.ModeCDC},
		{name: armDebezium, what: "large batches"},
	})
	var r *report
	var lines strings.Builder
	logged := ""
	if o.compressed {
		logged = ", compressed in the log"
	}
	fmt.Fprintf(&lines, "one transaction of %d events%s\n", o.burst, logged)
	fmt.Fprintf(&lines, "%-28s %9s %9s %9s %9s %12s %12s %6s\n", "seconds from its commit", "first", "last", "settled", "events/s", "CPU us/event", "of database", "MB")
	for _, a := range all {
		result, versions, err := a.swallow(ctx, o, t)
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", a.name, a.what, err)
		}
		if r == nil {
			r = versions
		}
		n := float64(o.burst)
		line := fmt.Sprintf("%-28s %9.2f %9.2f %9.2f %9.0f %12.1f %12.1f %6.0f\n", a.name+", "+a.what, result.first, result.last, result.settled,
			ratio(n, result.last), 1e6*result.cpu/n, 1e6*result.database/n, result.mb)
		o.say("%s", strings.TrimSpace(line))
		lines.WriteString(line)
	}
	r.text += lines.String()
	return r, nil
}

func (a *reactor) swallow(ctx context.Context, o *options, t *topics) (_ *swallowed, r *report, err error) {
	s, err := newSite(ctx, o.store, a.name)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	if o.compressed {
		if err := s.compress(ctx); err != nil {
			return nil, nil, err
		}
	}
	r = newReport(ctx, o, s)
	topic := newName(a.name)
	if err := t.create(ctx, topic); err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, t.remove(ctx, topic)) }()
	if err := s.migrate(ctx, a.name == armWaybill); err != nil {
		return nil, nil, err
	}
	g := &gulp{o: o, site: s, topics: t, source: newSource(topic, o)}
	if a.name == armDebezium {
		c, err := newConnector(ctx, o, s, "", draining)
		if err != nil {
			return nil, nil, err
		}
		defer func() { err = errors.Join(err, c.close(ctx)) }()
		// A virtual machine is fast once it has compiled what it runs.
		if _, err := c.drain(ctx, t, g.source, o.warm); err != nil {
			return nil, nil, err
		}
		result, err := g.measure(ctx, c.pid, false)
		if err != nil {
			return nil, nil, err
		}
		result.mb = peakMB(strconv.Itoa(c.pid))
		return result, r, nil
	}
	relay, err := startRelay(ctx, o, s, topic, a.mode)
	if err != nil {
		return nil, nil, err
	}
	err = g.ready(ctx, a.mode)
	var result *swallowed
	if err == nil {
		result, err = g.measure(ctx, relay.cmd.Process.Pid, true)
	}
	done, ended := relay.finish()
	if err = errors.Join(err, ended); err != nil {
		return nil, nil, err
	}
	result.mb = done.PeakMB
	return result, r, nil
}

// gulp is a transaction of very many events.
type gulp struct {
	o      *options
	site   *site
	topics *topics
	source *source
}

// What a relay says of the log, in its heartbeat.
const feedStateMySQL = `SELECT COUNT(*) FROM outbox_relay WHERE JSON_VALUE(report, '$.stats.feed.state') = 'STREAMING'`

const feedStateSQL = `SELECT COUNT(*) FROM outbox_relay WHERE report::jsonb #>> '{stats,feed,state}' = 'STREAMING'`

// ready waits until a relay sends, and follows the log where it is to.
func (g *gulp) ready(ctx context.Context, mode string) error {
	if err := g.site.append(ctx, g.source.events(1)); err != nil {
		return err
	}
	if err := g.topics.await(ctx, g.source.topic, 1, time.Minute); err != nil {
		return err
	}
	for deadline := now().Add(time.Minute); mode == store.ModeCDC; {
		query := feedStateSQL
		if g.site.kind == kindMySQL {
			query = feedStateMySQL
		}
		n, err := g.site.number(ctx, query)
		if err != nil || n > 0 {
			return err
		}
		if now().After(deadline) {
			return errors.New("the relay does not follow the log")
		}
		if !pause(ctx, 50*time.Millisecond) {
			return ctx.Err()
		}
	}
	return nil
}

func (g *gulp) measure(ctx context.Context, pid int, queue bool) (*swallowed, error) {
	before, err := g.topics.count(ctx, g.source.topic)
	if err != nil {
		return nil, err
	}
	commit, err := g.site.insert(ctx, g.source, g.o.burst)
	if err != nil {
		return nil, err
	}
	own, database, err := g.o.used(pid)
	if err == nil {
		err = commit()
	}
	if err != nil {
		return nil, err
	}
	result, began := &swallowed{}, now()
	if err := g.topics.await(ctx, g.source.topic, before+1, 2*time.Minute); err != nil {
		return nil, err
	}
	result.first = since(began)
	if err := g.topics.await(ctx, g.source.topic, before+g.o.burst, 5*time.Minute); err != nil {
		return nil, err
	}
	result.last = since(began)
	for queue {
		left, err := g.site.number(ctx, `SELECT COUNT(*) FROM (SELECT 1 FROM outbox_pending LIMIT 1) AS one`)
		if err != nil {
			return nil, err
		}
		if queue = left > 0; queue && !pause(ctx, 50*time.Millisecond) {
			return nil, ctx.Err()
		}
		result.settled = since(began)
	}
	ownAfter, databaseAfter, err := g.o.used(pid)
	result.cpu, result.database = ownAfter-own, databaseAfter-database
	return result, err
}
