package inbox

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/internal/fault"
	"github.com/waybillhq/waybill/store"
)

// maxCalls bounds the calls that are made for one batch at once.
const maxCalls = 32

// maxCallWait bounds one wait for another process's call.
const maxCallWait = 250 * time.Millisecond

// wantsCall reports whether an event has effects, one of which may still be to
// be brought about. One that is set aside anyway has no say.
func (p *Processor[TX]) wantsCall(it *item) bool {
	if len(p.config.Effects) == 0 || it.fail != nil || it.known || it.isConsumed || it.event.IsSkipMarker() {
		return false
	}
	if it.run == nil && len(p.config.effectsOf(&it.event)) == 0 {
		return false
	}
	return it.run == nil || !it.run.ready
}

// callAhead makes the calls of the events that are first of their keys, before
// the transaction that settles them, and returns those events that it may settle
// now: the ones up to the first whose call is still to be made.
func (p *Processor[TX]) callAhead(stop, work context.Context, items []*item, trial bool) ([]*item, error) {
	if len(p.config.Effects) == 0 {
		return items, nil
	}
	var first []*item
	seen := make(map[store.HeldKeyRef]bool)
	for _, it := range items {
		it.noCall, it.behind = false, false
		if !seen[it.key] && len(first) < maxCalls && p.wantsCall(it) {
			first = append(first, it)
		}
		seen[it.key] = true
	}
	var wait time.Duration
	for len(first) > 0 && stop.Err() == nil {
		due, longest, err := p.beginCalls(work, first)
		wait = max(wait, longest)
		if err != nil {
			return nil, err
		}
		p.makeCalls(work, due)
		first = due[:0]
		for _, it := range due {
			switch {
			case it.fail != nil && trial && p.tryLater(it):
				return nil, nil
			case p.wantsCall(it):
				first = append(first, it)
			}
		}
	}
	behind := make(map[store.HeldKeyRef]bool)
	for i, it := range items {
		behind[it.key] = behind[it.key] || it.behind
		if p.wantsCall(it) && !it.noCall && !behind[it.key] {
			if i == 0 && wait > 0 {
				pauseFor(stop, min(wait, maxCallWait))
			}
			return items[:i], nil
		}
	}
	return items, nil
}

// tryLater forgets a failure while the processor is paused: it holds nothing.
func (p *Processor[TX]) tryLater(it *item) bool {
	if it.trials++; it.trials > len(p.config.Schedule) || it.fail.parked {
		return false
	}
	it.fail, it.run = nil, nil
	return true
}

// beginCalls commits, in one transaction and under the keys' locks, that the
// calls of the events are made, and returns the events that have one to make. An
// event that is held, consumed, or not let through has none.
func (p *Processor[TX]) beginCalls(work context.Context, items []*item) (due []*item, wait time.Duration, err error) {
	ctx, cancel := context.WithCancel(work)
	defer cancel()
	tx, err := p.st.BeginInbox(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer rollback(ctx, tx)
	b := &batch[TX]{p: p, work: work, ctx: ctx, tx: tx}
	if err := b.prepare(items); err != nil {
		return nil, 0, err
	}
	for _, it := range slices.SortedFunc(slices.Values(items), func(x, y *item) int {
		return cmp.Or(cmp.Compare(x.key.Topic, y.key.Topic), cmp.Compare(x.key.Key, y.key.Key))
	}) {
		if _, err := b.lock(it.key); err != nil {
			return nil, 0, err
		}
	}
	steps := make(map[*item]effectStep)
	for _, it := range items {
		step, err := b.beginCall(it)
		if err != nil {
			if it.run != nil && it.run.answer != nil {
				p.calls.end(it.run.answer.EffectRef)
			}
			it.run = nil
			return nil, 0, err
		}
		steps[it] = step
		wait = max(wait, step.wait)
	}
	if err := tx.Commit(ctx); err != nil {
		return nil, 0, err
	}
	fault.Point("inbox.effect_doing")
	for _, it := range items {
		step := steps[it]
		if it.run == nil {
			continue
		}
		if it.run.answer != nil {
			p.calls.end(it.run.answer.EffectRef)
		}
		it.run.take(step)
		switch {
		case step.fail != nil:
			it.fail = step.fail
		case step.call != nil:
			due = append(due, it)
		}
	}
	return due, wait, nil
}

// beginCall is beginCalls for one event, whose key is locked.
func (b *batch[TX]) beginCall(it *item) (effectStep, error) {
	if d := b.admit(it); d != mayRun {
		it.noCall, it.behind = true, d == mustWait
		return effectStep{}, nil
	}
	consumed, err := b.tx.IsConsumed(b.ctx, b.p.config.Group, it.event.ID, false)
	if err != nil {
		return effectStep{}, err
	}
	if consumed {
		it.isConsumed = true
		return effectStep{}, nil
	}
	if it.run == nil {
		it.run = newEffectRun(it.event)
	}
	if err := b.p.config.fit(&it.run.event); err != nil {
		return effectStep{ready: true}, nil // the handler is told the same
	}
	if it.run.answer != nil {
		done, err := b.tx.FinishEffect(b.ctx, *it.run.answer)
		if err == nil && !done {
			err = errTaken
		}
		if err != nil {
			return effectStep{}, err
		}
	}
	return b.p.planEffects(b.ctx, b.tx, &it.run.event, it.run)
}

// makeCalls makes one call of each event, all at once.
func (p *Processor[TX]) makeCalls(work context.Context, items []*item) {
	var calling sync.WaitGroup
	for _, it := range items {
		calling.Go(func() {
			ref := it.run.calling.EffectRef
			it.fail = p.makeCall(work, it.run, p.answerLater(work, it.key, it.event.ID))
			if it.fail != nil || !p.calls.mayBeLost(ref) {
				return
			}
			// Another process may have parked the event meanwhile.
			held, err := p.st.ListHeld(work, p.config.Group, store.HeldFilter{EventID: it.event.ID, Limit: 1})
			if err == nil && len(held) > 0 {
				run := it.run
				it.run, it.noCall = nil, true
				p.resolve(work, it.key, it.event.ID, run)
			}
		})
	}
	calling.Wait()
}

// answerLater returns what is done with an answer that comes when nobody waits
// for it any more: its event is parked by then, or due again.
func (p *Processor[TX]) answerLater(work context.Context, key store.HeldKeyRef, eventID string) func(*effectRun) {
	return func(run *effectRun) {
		if work.Err() != nil {
			p.keepAnswer(work, run)
			return
		}
		if leave := p.alone.share(work); leave != nil {
			defer leave()
			p.resolve(work, key, eventID, run)
		}
	}
}

// resolve has a held event handled for which an answer has come.
func (p *Processor[TX]) resolve(work context.Context, key store.HeldKeyRef, eventID string, run *effectRun) {
	job := &release[TX]{p: p, key: key, limit: 1, runs: map[string]*effectRun{eventID: run}}
	if _, err := job.run(work, work); err != nil && work.Err() == nil {
		p.condition.complain(troubleHeld, err)
	}
	p.wakeReleaser()
}

// finishCalls commits, with what follows, that the events' calls are DONE. It is
// done first of all and outside of any savepoint: whatever becomes of an event,
// what was answered stays known. That a call is still this process's is decided
// by its row: an event that another process took over is not settled here.
func (b *batch[TX]) finishCalls(items []*item) error {
	for _, it := range items {
		if it.run == nil || it.run.answer == nil {
			continue
		}
		run, answer := it.run, it.run.answer
		done, err := b.tx.FinishEffect(b.ctx, *answer)
		if err != nil {
			return &diedError{at: it, err: err}
		}
		if !done {
			b.p.calls.end(answer.EffectRef)
			it.run = nil
			return errTaken
		}
		fault.Point("inbox.effect_done")
		b.news = append(b.news, func() {
			run.answer = nil
			b.p.calls.end(answer.EffectRef)
		})
	}
	return nil
}

// keepAnswers commits the answers for events that this process will not settle.
func (p *Processor[TX]) keepAnswers(ctx context.Context, items []*item) {
	for _, it := range items {
		p.keepAnswer(ctx, it.run)
	}
}

// effects brings about what a held event has the outside do, one call at a time;
// ok is false when it cannot be handled now.
func (u *unit[TX]) effects(h *store.Held, event waybill.Event, counted bool) (next step, ok bool, err error) {
	p := u.p
	if len(p.config.effectsOf(&event)) == 0 {
		return passed, true, nil
	}
	run := u.runs[h.Event.ID]
	if run == nil {
		run = newEffectRun(event)
		if u.runs == nil {
			u.runs = make(map[string]*effectRun)
		}
		u.runs[h.Event.ID] = run
	}
	if run.ready {
		return passed, true, nil
	}
	if err := p.config.fit(&run.event); err != nil {
		return passed, true, nil // the handler is told the same
	}
	step, err := p.planEffects(u.ctx, u.tx, &run.event, run)
	switch {
	case err != nil:
		return ended, false, err
	case step.ready:
		run.take(step)
		return passed, true, nil
	case step.fail != nil:
		next, err := u.failed(h, step.fail, counted)
		return next, false, err
	case step.wait > 0:
		later := *h
		later.State, later.RetryIn = store.HeldRetry, step.wait
		if counted {
			later.Attempts-- // to wait is no attempt
		}
		return ended, false, u.update(later)
	}
	u.wrote = true
	u.due = run
	u.news = append(u.news, func() { run.take(step) })
	return goAgain, false, nil
}

// finishAnswer commits, with what follows, that a held event's call is DONE. An
// answer to a call that is another's by now is dropped.
func (u *unit[TX]) finishAnswer(h *store.Held) error {
	run := u.runs[h.Event.ID]
	if run == nil || run.answer == nil {
		return nil
	}
	answer := run.answer
	done, err := u.tx.FinishEffect(u.ctx, *answer)
	if err != nil {
		return &heldDiedError{eventID: h.Event.ID, err: err}
	}
	if !done {
		u.p.calls.end(answer.EffectRef)
		delete(u.runs, h.Event.ID)
		return nil
	}
	u.wrote = true
	u.news = append(u.news, func() {
		run.answer = nil
		u.p.calls.end(answer.EffectRef)
	})
	return nil
}

// call makes the call that the last transaction has begun, if it has.
func (r *release[TX]) call(work context.Context) (called bool) {
	run := r.due
	r.due = nil
	if run == nil || run.calling == nil {
		return false
	}
	fault.Point("inbox.effect_doing")
	eventID := run.event.ID
	if fail := r.p.makeCall(work, run, r.p.answerLater(work, r.key, eventID)); fail != nil {
		r.verdicts[eventID] = fail
		delete(r.runs, eventID)
	}
	return true
}
