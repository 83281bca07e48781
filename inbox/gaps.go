package inbox

import (
	"context"
	"fmt"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/store"
)

// gaps looks after events that wait for a lower version: it asks for what is
// missing, raises the alarm, and wakes what need not wait any more though nobody
// woke it, as after a change of the gate.
type gaps[TX any] struct {
	p     *Processor[TX]
	after int64 // the Seq up to which this round has looked
	round int
	known map[store.Aggregate]*knownGap
}

type knownGap struct {
	round   int   // of the last look that found it
	from    int64 // the first version that is missing
	asks    int
	nextAsk time.Time
	alarmed bool
}

// gapsPage is how many waiting events one look reads.
const gapsPage = 200

// askLast bounds the pause between two asks for one gap.
const askLast = time.Minute

func newGaps[TX any](p *Processor[TX]) *gaps[TX] {
	return &gaps[TX]{p: p, known: make(map[store.Aggregate]*knownGap)}
}

func (g *gaps[TX]) watch(ctx context.Context) {
	for pauseFor(ctx, g.p.config.SweepEvery) {
		if !g.mayFind() {
			continue
		}
		err := g.look(ctx)
		if ctx.Err() == nil {
			g.p.report(troubleGaps, err)
		}
	}
}

// mayFind reports whether anything waits, so far as this process knows: it has
// held something itself, or counted it.
func (g *gaps[TX]) mayFind() bool {
	counted := false
	g.p.condition.update(func(c *condition) { counted = c.held.Waiting > 0 })
	return g.p.waits.Load() || counted || len(g.known) > 0
}

// look goes through one page of what waits.
func (g *gaps[TX]) look(ctx context.Context) error {
	p := g.p
	page, err := p.st.ListHeld(ctx, p.config.Group, store.HeldFilter{State: store.HeldWaiting, After: g.after, Limit: gapsPage})
	if err != nil {
		return err
	}
	gate := newGate(&p.config)
	err = gate.load(ctx, p.st.FindProgress, func(yield func(*waybill.Event) bool) {
		for i := range page {
			if !yield(&page[i].Event) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	lowest := make(map[store.Aggregate]*store.Held)
	for i := range page {
		h := &page[i]
		if gate.ask(&h.Event) != mustAwait {
			if err := g.wake(ctx, h); err != nil {
				return err
			}
			continue
		}
		a := store.AggregateOf(&h.Event)
		if low := lowest[a]; low == nil || h.Event.AggregateVersion < low.Event.AggregateVersion {
			lowest[a] = h
		}
	}
	// After one question that fails no other is asked in this look: it would
	// fail alike, and perhaps after a long wait. The alarms do not depend on it.
	var failed error
	for a, h := range lowest {
		gap := Gap{Aggregate: a, Topic: h.Topic, From: gate.rows[a].at + 1, To: h.Event.AggregateVersion - 1}
		if err := g.tend(ctx, h, gap, failed == nil); err != nil {
			failed = err
		}
	}
	g.turn(page)
	return failed
}

// turn goes to the next page, or after the last one begins a new round.
func (g *gaps[TX]) turn(page []store.Held) {
	if len(page) == gapsPage {
		g.after = page[len(page)-1].Seq
		return
	}
	if g.after == 0 && len(page) == 0 {
		g.p.waits.Store(false)
	}
	overdue := 0
	for a, k := range g.known {
		if k.round != g.round {
			delete(g.known, a)
		} else if k.alarmed {
			overdue++
		}
	}
	g.after = 0
	g.round++
	g.p.condition.update(func(c *condition) { c.gaps = overdue })
}

// tend asks for what a gap lacks, if it may, and raises the alarm when it is too
// old.
func (g *gaps[TX]) tend(ctx context.Context, h *store.Held, gap Gap, mayAsk bool) (failed error) {
	p := g.p
	k := g.known[gap.Aggregate]
	if k == nil || k.from != gap.From {
		k = &knownGap{from: gap.From}
		g.known[gap.Aggregate] = k
	}
	k.round = g.round
	if mayAsk && p.config.OnGap != nil && !now().Before(k.nextAsk) {
		k.asks++
		k.nextAsk = now().Add(backoff(k.asks, p.config.SweepEvery, askLast))
		failed = g.ask(ctx, gap)
	}
	if h.HeldFor >= p.config.GapDeadline && !k.alarmed {
		k.alarmed = true
		e := h.Event
		e.Topic = h.Topic
		p.config.Logger.Error("a version is missing: others wait for it", "aggregate_type", gap.Aggregate.Type, "aggregate", gap.Aggregate.ID,
			"from", gap.From, "to", gap.To, "event", e.ID, "waited", h.HeldFor.Round(time.Second))
		tell(p.config.Events.Gap, GapInfo{Event: e, Gap: gap, Waited: h.HeldFor})
	}
	return failed
}

// ask has OnGap look, and holds what it brings.
func (g *gaps[TX]) ask(ctx context.Context, gap Gap) error {
	p := g.p
	asking, cancel := context.WithTimeout(ctx, p.config.HandlerTimeout)
	defer cancel()
	found, err := p.config.OnGap(asking, gap)
	if err != nil {
		return fmt.Errorf("ask for versions %d to %d of %s %s: %w", gap.From, gap.To, gap.Aggregate.Type, gap.Aggregate.ID, err)
	}
	for i := range found {
		e := &found[i]
		if store.AggregateOf(e) != gap.Aggregate || e.AggregateVersion < gap.From || e.AggregateVersion > gap.To {
			continue
		}
		if e.Topic == "" {
			e.Topic = gap.Topic
		}
		if err := g.take(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// take holds an event that was found elsewhere as if it had come after the
// others: the releaser puts it in its place.
func (g *gaps[TX]) take(ctx context.Context, e *waybill.Event) error {
	p := g.p
	record, err := waybill.Encode(waybill.FormatEnvelope, e)
	if err != nil {
		return err
	}
	it := newItem(broker.Delivery{Record: record, Partition: noPartition})
	return p.inKey(ctx, it.key, func(tx store.InboxTx[TX]) error {
		consumed, err := tx.IsConsumed(ctx, p.config.Group, e.ID, false)
		if err != nil {
			return err
		}
		if consumed {
			return catchUp(ctx, tx, p.config.Group, e)
		}
		held := it.held(p.config.Group)
		held.State = store.HeldBlocked
		_, err = tx.Hold(ctx, held)
		return err
	})
}

// noPartition is where an event comes from that no broker has delivered.
const noPartition = -1

// catchUp advances the progress over an event that was consumed while nobody
// counted versions.
func catchUp[TX any](ctx context.Context, tx store.InboxTx[TX], group string, e *waybill.Event) error {
	p, err := tx.LockProgress(ctx, group, store.AggregateOf(e))
	if err != nil || p.Version != e.AggregateVersion-1 {
		return err
	}
	_, err = tx.AdvanceProgress(ctx, group, []store.Advance{{
		Aggregate: p.Aggregate, From: p.Version, To: e.AggregateVersion, EventID: e.ID,
	}})
	return err
}

// wake lets the releaser have an event that need not wait.
func (g *gaps[TX]) wake(ctx context.Context, h *store.Held) error {
	p := g.p
	return p.inKey(ctx, store.HeldKeyRef{Topic: h.Topic, Key: h.Key}, func(tx store.InboxTx[TX]) error {
		// What was read without the lock may have changed.
		held, err := tx.HeldOfKey(ctx, p.config.Group, store.HeldKeyRef{Topic: h.Topic, Key: h.Key}, 0)
		if err != nil {
			return err
		}
		for _, is := range held {
			if is.Event.ID == h.Event.ID && is.State == store.HeldWaiting {
				is.State = store.HeldBlocked
				_, err := tx.UpdateHeld(ctx, is)
				return err
			}
		}
		return nil
	})
}

// inKey does something to what a key holds, and has the releaser look at it.
func (p *Processor[TX]) inKey(ctx context.Context, key store.HeldKeyRef, do func(tx store.InboxTx[TX]) error) error {
	if err := p.locked(ctx, key, do); err != nil {
		return err
	}
	p.wakeReleaser()
	return nil
}

// locked does something in a transaction that has locked a key.
func (p *Processor[TX]) locked(ctx context.Context, key store.HeldKeyRef, do func(tx store.InboxTx[TX]) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tx, err := p.st.BeginInbox(ctx)
	if err != nil {
		return err
	}
	defer rollback(ctx, tx)
	if err := tx.LockKey(ctx, p.config.Group, key); err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit(ctx)
}
