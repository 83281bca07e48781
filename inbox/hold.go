package inbox

import (
	"context"
	"time"

	"github.com/waybillhq/waybill/internal/fault"
	"github.com/waybillhq/waybill/store"
)

// keyState is what a locked key holds.
type keyState struct {
	ids     map[string]bool // some of the held ids; Hold knows of the rest
	blocked bool            // something of the key keeps back what comes after
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
		if state.blocked || len(held) < limit {
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

// setAside holds an event: after a failure for a later attempt or for a person,
// without one behind the others of its key. The savepoint is gone by now, so the
// lock lasts until the transaction ends.
func (b *batch[TX]) setAside(it *item, fail *failure) (done, more bool, err error) {
	died := func(err error) (bool, bool, error) {
		return false, false, &diedError{at: it, err: err}
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
		return true, true, nil
	}
	consumed, err := b.tx.IsConsumed(b.ctx, p.config.Group, it.event.ID, true)
	if err != nil {
		return died(err)
	}
	if consumed {
		b.duplicate(it, false)
		return true, true, nil
	}

	held := it.held(p.config.Group)
	if fail != nil {
		p.judge(&held, fail, 1)
	}
	if fail == nil || state.blocked {
		held.State, held.RetryIn = store.HeldBlocked, 0
	}
	fault.Point("inbox.holding")
	inserted, err := b.tx.Hold(b.ctx, held)
	if err != nil {
		return died(err)
	}
	state.ids[it.event.ID] = true
	if !inserted {
		b.duplicate(it, true)
		return true, true, nil
	}
	state.blocked = state.blocked || p.keepsBack(&held)
	b.news = append(b.news, func() { p.tellHeld(&held, fail) })
	if fail == nil {
		return true, true, nil
	}
	paused := p.pause.failed(it.key)
	return true, !paused && !b.trial, nil
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
		p.config.Logger.Error("event is dead", "event", held.Event.ID, "topic", held.Topic, "key", held.Key, "attempts", held.Attempts, "error", info.Err)
	case store.HeldRetry:
		p.config.Logger.Warn("event failed", "event", held.Event.ID, "topic", held.Topic, "key", held.Key, "attempts", held.Attempts,
			"retry_in", held.RetryIn.Round(time.Millisecond), "error", info.Err)
		p.wakeReleaser()
	default:
		p.config.Logger.Debug("event waits behind another of its key", "event", held.Event.ID, "topic", held.Topic, "key", held.Key)
	}
	tell(p.config.Events.Held, info)
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
