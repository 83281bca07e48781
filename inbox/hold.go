package inbox

import (
	"context"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/internal/fault"
	"github.com/waybillhq/waybill/store"
)

// keyState is what a locked key holds.
type keyState struct {
	ids  map[string]bool // some of the held ids; Hold knows of the rest
	held []store.Held    // the same
	// blocked: something of the key keeps back what comes after.
	blocked bool
	// isPart: there are more than was read.
	isPart bool
}

// keepsBack reports whether an event must wait behind what the key holds. One
// that carries the whole state passes lower versions of its own aggregate: it
// makes them stale.
func (s *keyState) keepsBack(p keeper, e *waybill.Event) bool {
	if !s.blocked || s.isPart || !p.isLatest() || e.AggregateVersion == 0 {
		return s.blocked
	}
	for i := range s.held {
		if p.keepsBack(&s.held[i]) && !isBelow(&s.held[i].Event, e) {
			return true
		}
	}
	return false
}

// keeper is what the processor's configuration says of held events.
type keeper interface {
	keepsBack(h *store.Held) bool
	isLatest() bool
}

func isBelow(held, e *waybill.Event) bool {
	return held.AggregateVersion > 0 && held.AggregateVersion < e.AggregateVersion && store.AggregateOf(held) == store.AggregateOf(e)
}

// heldPage is how many of a key's held events are read at first. Most keys have
// few, and one that blocks is enough.
const heldPage = 100

// lock locks a key and reads what it holds. Whoever changes that locks the key
// too, so from here to the end of the transaction the answer stays true.
func (b *batch[TX]) lock(key store.HeldKeyRef) (*keyState, error) {
	if state := b.keys[key]; state != nil {
		return state, nil
	}
	group := b.p.config.Group
	if err := b.tx.LockKey(b.ctx, group, key); err != nil {
		return nil, err
	}
	for limit := heldPage; ; limit *= 10 {
		held, err := b.tx.HeldOfKey(b.ctx, group, key, limit)
		if err != nil {
			return nil, err
		}
		state := &keyState{ids: make(map[string]bool, len(held))}
		for i := range held {
			state.ids[held[i].Event.ID] = true
			state.blocked = state.blocked || b.p.keepsBack(&held[i])
		}
		state.held, state.isPart = held, len(held) >= limit
		if state.blocked || !state.isPart {
			b.keys[key] = state
			return state, nil
		}
	}
}

// keepsBack reports whether a held event stops the others of its key.
func (p *Processor[TX]) keepsBack(h *store.Held) bool {
	switch h.State {
	case store.HeldRetry, store.HeldBlocked:
		return true
	case store.HeldDead:
		return p.config.OnDead == Hold
	}
	return false
}

func (p *Processor[TX]) isLatest() bool { return p.config.Gate == GateLatest }

// setAside holds an event: after a failure for a later attempt or for a person,
// without one in the state given. No savepoint is open, so the lock lasts until
// the transaction ends.
func (b *batch[TX]) setAside(it *item, fail *failure, as store.HeldState) (n int, more bool, err error) {
	died := func(err error) (int, bool, error) {
		return 0, false, &diedError{at: it, err: err}
	}
	p := b.p
	state, err := b.lock(it.key)
	if err != nil {
		return died(err)
	}
	// Another reader may have come first, while this one did not have the lock:
	// what it consumed or holds is settled.
	if state.ids[it.event.ID] {
		b.duplicate(it, true)
		return 1, true, nil
	}
	consumed, err := b.tx.IsConsumed(b.ctx, p.config.Group, it.event.ID, true)
	if err != nil {
		return died(err)
	}
	if consumed {
		b.duplicate(it, false)
		return 1, true, nil
	}

	held := it.held(p.config.Group)
	if fail != nil {
		p.judge(&held, fail, 1)
	}
	switch {
	case fail == nil:
		held.State = as
	case state.blocked:
		held.State, held.RetryIn = store.HeldBlocked, 0
	}
	fault.Point("inbox.holding")
	inserted, err := b.tx.Hold(b.ctx, held)
	if err != nil {
		return died(err)
	}
	state.ids[it.event.ID] = true
	state.held = append(state.held, held)
	if !inserted {
		b.duplicate(it, true)
		return 1, true, nil
	}
	state.blocked = state.blocked || p.keepsBack(&held)
	if held.State == store.HeldDead && !p.keepsBack(&held) {
		b.gate.pass(&it.event) // the key goes on without it, and so do the versions
	}
	b.news = append(b.news, func() { p.tellHeld(&held, fail) })
	if fail == nil {
		return 1, true, nil
	}
	if it.trials > 0 && !b.trial {
		return 1, true, nil // the pause was asked about it before
	}
	paused := p.pause.failed(it.key)
	return 1, !paused && !b.trial, nil
}

// judge writes into held what a failure means: the next attempt, or none. tries
// is the number of attempts with this one.
func (p *Processor[TX]) judge(held *store.Held, fail *failure, tries int) {
	schedule := p.config.Schedule
	held.Attempts = tries
	held.LastErr = fail.text()
	held.FirstErr = held.LastErr
	held.Stack = fail.stack
	held.RetryIn = 0
	if fail.parked {
		held.Attempts = tries - 1
	}
	switch {
	case fail.final, tries > len(schedule):
		held.State = store.HeldDead
	case fail.hasAfter:
		held.State, held.RetryIn = store.HeldRetry, fail.after
	default:
		held.State, held.RetryIn = store.HeldRetry, schedule[tries-1]
	}
}

func (p *Processor[TX]) tellHeld(held *store.Held, fail *failure) {
	info := HeldInfo{Event: held.Event, Key: held.Key, State: held.State, Attempts: held.Attempts, RetryIn: held.RetryIn}
	info.Event.Topic = held.Topic // an event that was held before is known by its identity alone
	if fail != nil {
		info.Err, info.Parked = fail.err, fail.parked
	}
	switch held.State {
	case store.HeldDead:
		p.letters.wake()
		p.config.Logger.Error("event is dead", "event", held.Event.ID, "topic", held.Topic, "key", held.Key, "attempts", held.Attempts, "error", info.Err)
	case store.HeldRetry:
		p.config.Logger.Warn("event failed", "event", held.Event.ID, "topic", held.Topic, "key", held.Key, "attempts", held.Attempts,
			"retry_in", held.RetryIn.Round(time.Millisecond), "error", info.Err)
		p.wakeReleaser()
	case store.HeldWaiting:
		p.waits.Store(true)
		p.config.Logger.Debug("event waits for a lower version", "event", held.Event.ID, "topic", held.Topic, "key", held.Key,
			"version", held.Event.AggregateVersion)
	default:
		p.config.Logger.Debug("event waits behind another of its key", "event", held.Event.ID, "topic", held.Topic, "key", held.Key)
	}
	tell(p.config.Events.Held, info)
}

func (p *Processor[TX]) tellOvertaken(h *store.Held) {
	info := AppliedInfo{
		Event: h.Event, Outcome: store.Stale, Partition: broker.Partition{Topic: h.Topic, ID: h.Partition}, Position: h.Position, FromHeld: true,
	}
	info.Event.Topic = h.Topic
	p.config.Logger.Debug("held event is stale", "event", h.Event.ID, "topic", h.Topic, "key", h.Key, "version", h.Event.AggregateVersion)
	tell(p.config.Events.Applied, info)
}

// count reports what the group holds.
func (p *Processor[TX]) count(ctx context.Context) error {
	counts, err := p.st.CountHeld(ctx, p.config.Group)
	if err != nil {
		return err
	}
	p.condition.update(func(c *condition) { c.held = counts })
	tell(p.config.Events.Counted, CountedInfo{counts})
	return nil
}
