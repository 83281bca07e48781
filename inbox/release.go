package inbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/internal/fault"
	"github.com/waybillhq/waybill/store"
)

// release is the handling of one key's held events, by one worker. A key's
// events are read anew under its lock in each transaction, so it does not matter
// who else works on the key.
type release[TX any] struct {
	p   *Processor[TX]
	key store.HeldKeyRef
	// limit bounds the events of one transaction.
	limit int
	// careful commits before each event, also one that only waited, that its
	// handling is begun; otherwise that is done for those in RETRY alone.
	careful bool
	// trial: the processor is paused. A failure costs no attempt.
	trial bool

	begun    begun
	verdicts map[string]*failure // of events whose handler must not run now
	deaths   map[string]int      // transactions that died under an event alone
	runs     map[string]*effectRun
	due      *effectRun // whose call comes next
}

// begun is the attempt that this worker has committed to make.
type begun struct {
	eventID  string
	attempts int
}

// begunMark begins last_error while an attempt is under way. A row that has it
// and no attempt left took its process down.
const begunMark = "an attempt was begun and has not ended; before it: "

// run handles the key's events until there is nothing to do for now, and
// reports whether it changed anything.
func (r *release[TX]) run(stop, work context.Context) (progress bool, err error) {
	r.verdicts = make(map[string]*failure)
	r.deaths = make(map[string]int)
	defer func() {
		for _, run := range r.runs {
			r.p.keepAnswer(work, run)
		}
	}()
	for failures := 0; stop.Err() == nil; {
		result, err := r.once(stop, work)
		var died *heldDiedError
		switch {
		case err == nil:
			failures = 0
			progress = progress || result.wrote
			if r.call(work) {
				continue
			}
			// One event is enough for a worker that keeps all others waiting.
			if !result.more || result.settled > 0 && (r.careful || r.trial) {
				return progress, nil
			}
			continue
		case work.Err() != nil:
			return progress, nil
		case errors.Is(err, errAbandoned):
			continue
		case errors.Is(err, errTaken):
			return progress, nil
		case isMoved(err):
			tell(r.p.config.Events.Conflict, ConflictInfo{Events: 1, Err: err})
			if failures++; failures > 2*maxDeaths {
				return progress, nil // whoever moves it there wakes what follows
			}
			pauseFor(stop, backoff(failures, time.Millisecond, retryLast))
			continue
		case errors.As(err, &died) && died.blame:
			tell(r.p.config.Events.Conflict, ConflictInfo{Events: 1, Err: err})
			if r.limit == 1 {
				if r.deaths[died.eventID]++; r.deaths[died.eventID] >= maxDeaths {
					r.verdicts[died.eventID] = failureOf(err, "")
				}
			}
		}
		r.limit = 1
		if failures++; failures > 2*maxDeaths {
			return progress, err
		}
		pauseFor(stop, backoff(failures, 10*time.Millisecond, retryLast))
	}
	return progress, nil
}

// heldDiedError is diedError for a held event.
type heldDiedError struct {
	eventID string
	blame   bool
	err     error
}

func (e *heldDiedError) Error() string { return fmt.Sprintf("transaction died: %v", e.err) }
func (e *heldDiedError) Unwrap() error { return e.err }

// step is what became of one held event.
type step uint8

const (
	passed  step = iota // settled: on to the next
	putOff              // it waits for a lower version: on to the next
	ended               // nothing more to do with this key now
	goAgain             // commit, and look again
)

// result is what one transaction did.
type result struct {
	settled int
	wrote   bool
	more    bool // the key may have more to do
}

// once makes one transaction.
func (r *release[TX]) once(stop, work context.Context) (result, error) {
	p := r.p
	ctx, cancel := context.WithCancelCause(work)
	defer cancel(nil)
	w := newWatch(p.config.HandlerTimeout, cancel)
	defer w.stop()
	began := now()
	tx, err := p.st.BeginInbox(ctx)
	if err != nil {
		return result{}, fmt.Errorf("%w: %w", errBegin, err)
	}
	defer rollback(ctx, tx)
	if err := tx.LockKey(ctx, p.config.Group, r.key); err != nil {
		return result{}, err
	}
	held, err := r.read(ctx, tx)
	if err != nil {
		return result{}, err
	}
	u := &unit[TX]{release: r, ctx: ctx, work: work, tx: tx, held: held, gate: newGate(&p.config)}
	plan := r.plan(held)
	if err := u.gate.load(ctx, tx.ReadProgress, func(yield func(*waybill.Event) bool) {
		for i := range plan {
			if !yield(&plan[i].Event) {
				return
			}
		}
	}); err != nil {
		return result{}, err
	}
	if plan == nil {
		// The key is kept back. An event in RETRY would be found due for ever.
		if err := u.blockOthers(""); err != nil {
			return result{}, err
		}
	}
	last, more := "", false
	for _, h := range plan {
		enough := stop.Err() != nil || now().Sub(began) >= p.config.longest()
		if u.settled >= r.limit || u.alone || u.settled > 0 && enough {
			more = true
			break
		}
		w.restart()
		last = h.Event.ID
		next, err := u.one(&h)
		if err != nil {
			return result{}, err
		}
		if next == putOff {
			continue
		}
		if next != passed {
			more = next == goAgain
			break
		}
		u.settled++
	}
	// A full page may not have been all.
	more = more || u.settled > 0 && u.settled == len(plan) && len(held) >= heldPage
	if !u.wrote {
		return result{}, nil
	}
	w.restart()
	woken, err := u.gate.write(ctx, tx)
	if err != nil {
		return result{}, err
	}
	if woken > 0 {
		more = true
		defer p.wakeReleaser() // it may be of another key
	}
	w.restart()
	if err := tx.Commit(ctx); err != nil {
		return result{}, &heldDiedError{eventID: last, blame: true, err: err}
	}
	fault.Point("inbox.committed")
	for _, say := range u.news {
		say()
	}
	return result{settled: u.settled, wrote: true, more: more}, nil
}

// read returns what the key holds, as far as it matters.
func (r *release[TX]) read(ctx context.Context, tx store.InboxTx[TX]) ([]store.Held, error) {
	for limit := max(heldPage, r.limit); ; limit *= 10 {
		held, err := tx.HeldOfKey(ctx, r.p.config.Group, r.key, limit)
		if err != nil || len(held) < limit {
			return held, err
		}
		for i := range held {
			if r.p.keepsBack(&held[i]) {
				return held, nil
			}
		}
	}
}

// plan returns the events that may be handled, in their order. It is nil when
// a DEAD one keeps the key back.
func (r *release[TX]) plan(held []store.Held) []store.Held {
	for _, h := range held {
		if run := r.runs[h.Event.ID]; run != nil && run.answer != nil {
			return []store.Held{h}
		}
	}
	plan := make([]store.Held, 0, len(held))
	for _, h := range releaseOrder(held) {
		switch h.State {
		case store.HeldDead:
			if r.p.config.OnDead == Hold {
				return nil
			}
		case store.HeldRetry, store.HeldBlocked, store.HeldWaiting:
			plan = append(plan, h)
		}
	}
	return plan
}

// unit is the work of one transaction.
type unit[TX any] struct {
	*release[TX]
	ctx, work context.Context
	tx        store.InboxTx[TX]
	held      []store.Held
	gate      *gate
	settled   int
	alone     bool // commit before the next event
	wrote     bool
	news      []func()
}

// one handles one held event, if it is its time.
func (u *unit[TX]) one(h *store.Held) (step, error) {
	answered := u.runs[h.Event.ID] != nil && u.runs[h.Event.ID].answer != nil
	if err := u.finishAnswer(h); err != nil {
		return ended, err
	}
	if next, ok, err := u.admit(h); !ok {
		return next, err
	}
	fail := u.verdicts[h.Event.ID]
	mine := u.begun == begun{h.Event.ID, h.Attempts}
	switch {
	case fail != nil:
		delete(u.verdicts, h.Event.ID)
		return u.failed(h, fail, mine)
	case answered && u.runs[h.Event.ID] != nil:
		// Whatever the schedule says, and also where another process parked it.
		u.alone = true
		return u.apply(h, true)
	case mine:
		// A follower that takes the process down must not take this success, and
		// with it the attempt that was counted for it.
		u.alone = true
		return u.apply(h, true)
	case h.State == store.HeldRetry && h.RetryIn > 0:
		return ended, nil
	case h.State == store.HeldRetry, u.careful:
		if u.settled > 0 {
			return goAgain, nil // the attempt is begun in a transaction of its own
		}
		return u.begin(h)
	}
	return u.apply(h, false)
}

// admit asks the gate, and deals with an event that it does not let through.
func (u *unit[TX]) admit(h *store.Held) (next step, ok bool, err error) {
	switch u.gate.ask(&h.Event) {
	case isStale:
		if h.Forced {
			return passed, true, nil // a person wants it all the same
		}
		if h.State == store.HeldRetry || h.State == store.HeldBlocked || h.State == store.HeldWaiting {
			u.wrote = true
			u.news = append(u.news, func() { u.p.tellOvertaken(h) })
			return passed, false, overtake(u.ctx, u.tx, u.p.config.Group, h)
		}
	case mustAwait:
		verdict, err := u.gate.lock(u.ctx, u.tx, &h.Event)
		if err != nil {
			return ended, false, err
		}
		if verdict != mustAwait {
			return u.admit(h)
		}
		if h.State != store.HeldWaiting {
			waiting := *h
			waiting.State, waiting.RetryIn = store.HeldWaiting, 0
			return putOff, false, u.update(waiting)
		}
		return putOff, false, nil
	}
	return passed, true, nil
}

// begin commits that an attempt begins, so that one that takes the process down
// is counted. The schedule keeps others off the event meanwhile; if it is due
// again before the attempt ends, they wait for the key's lock.
func (u *unit[TX]) begin(h *store.Held) (step, error) {
	schedule := u.p.config.Schedule
	if h.Attempts > len(schedule) && strings.HasPrefix(h.LastErr, begunMark) {
		err := fmt.Errorf("%w: %d attempts were begun, and the last never came to an end", ErrHandlerCrash, h.Attempts)
		return u.failed(h, &failure{err: err, final: true}, true)
	}
	next := *h
	next.Attempts++
	next.State = store.HeldRetry
	next.RetryIn = 0
	if n := len(schedule); n > 0 {
		next.RetryIn = schedule[min(next.Attempts, n)-1]
	}
	if h.State == store.HeldRetry && !strings.HasPrefix(h.LastErr, begunMark) {
		next.LastErr = clip(begunMark+h.LastErr, maxErrorText)
	}
	if err := u.update(next); err != nil {
		return ended, err
	}
	if err := u.blockOthers(h.Event.ID); err != nil {
		return ended, err
	}
	u.begun = begun{h.Event.ID, next.Attempts}
	return goAgain, nil
}

// apply runs the handler as for an event of the stream, and takes the event out
// of what is held with it.
func (u *unit[TX]) apply(h *store.Held, counted bool) (step, error) {
	p := u.p
	it := newItem(broker.Delivery{Record: h.Record, Partition: h.Partition, Position: h.Position})
	if it.broken {
		if counted {
			h.Attempts--
		}
		return u.failed(h, it.fail, false)
	}
	died := func(blame bool, err error) (step, error) {
		return ended, &heldDiedError{eventID: h.Event.ID, blame: blame, err: err}
	}
	outcome := store.Applied
	if it.event.IsSkipMarker() {
		outcome = store.ConsumedSkipped
	}
	if outcome == store.Applied {
		if next, ok, err := u.effects(h, it.event, counted); !ok {
			return next, err
		}
	}
	if err := u.tx.Savepoint(u.ctx); err != nil {
		return died(false, err)
	}
	first, err := u.tx.MarkConsumed(u.ctx, it.consumed(p.config.Group, outcome))
	if err != nil {
		return died(false, err)
	}
	fault.Point("inbox.inserted")
	if first && outcome == store.Applied {
		attempt := h.Attempts
		if !counted {
			attempt++
		}
		r := u.handle(it, h.Event.ID, attempt)
		fault.Point("inbox.effect")
		if r.abandoned {
			u.tx.Abort()
		}
		switch {
		case r.stopped:
			return died(u.work.Err() == nil, r.err)
		case r.abandoned:
			u.verdicts[h.Event.ID] = failureOf(r.err, "")
			return ended, errAbandoned
		case r.err != nil:
			if err := u.tx.RollbackTo(u.ctx); err != nil {
				return died(true, errors.Join(r.err, err))
			}
			return u.failed(h, failureOf(r.err, r.stack), counted)
		}
	}
	if _, err := u.tx.DeleteHeld(u.ctx, p.config.Group, h.Event.ID); err != nil {
		return u.unusable(h, err, counted)
	}
	if err := u.tx.Release(u.ctx); err != nil {
		return u.unusable(h, err, counted)
	}
	u.wrote = true
	u.gate.pass(&h.Event)
	if first {
		if outcome == store.Applied {
			p.pause.succeeded()
		}
		u.applied(it, outcome)
	}
	return passed, nil
}

// handle runs the handler, in a goroutine of its own.
func (u *unit[TX]) handle(it *item, eventID string, attempt int) (r run) {
	if lost := u.p.attend(u.ctx, func(a *attendant) {
		r = u.p.call(withResults(u.ctx, u.runs[eventID]), a, u.tx.Handle(), 0, it.event, attempt)
	}); lost != nil {
		return lost.run
	}
	return r
}

// unusable deals with a handler that kept an error of the transaction to itself.
func (u *unit[TX]) unusable(h *store.Held, err error, counted bool) (step, error) {
	err = fmt.Errorf("the handler left the transaction unusable: %w", err)
	if back := u.tx.RollbackTo(u.ctx); back != nil {
		return ended, &heldDiedError{eventID: h.Event.ID, blame: true, err: errors.Join(err, back)}
	}
	return u.failed(h, failureOf(err, ""), counted)
}

// failed writes what a failed attempt means for the event and for its key.
// counted says that Attempts holds this attempt already.
func (u *unit[TX]) failed(h *store.Held, fail *failure, counted bool) (step, error) {
	p := u.p
	u.begun = begun{}
	next := *h
	if u.trial && !fail.final {
		// Everything fails; that is not this event's fault.
		if counted {
			next.Attempts--
		}
		next.State, next.RetryIn = h.State, 0
		next.LastErr, next.Stack = fail.text(), fail.stack
		return ended, u.update(next)
	}
	tries := next.Attempts
	if !counted {
		tries++
	}
	p.judge(&next, fail, tries)
	if err := u.update(next); err != nil {
		return ended, err
	}
	if err := u.blockOthers(h.Event.ID); err != nil {
		return ended, err
	}
	u.news = append(u.news, func() { p.tellHeld(&next, fail) })
	if next.State == store.HeldDead && p.config.OnDead == Continue {
		u.gate.pass(&h.Event)
		return goAgain, nil
	}
	return ended, nil
}

// blockOthers makes the key's other events in RETRY wait: one event at a time
// is tried of a key.
func (u *unit[TX]) blockOthers(eventID string) error {
	for _, other := range u.held {
		if other.State != store.HeldRetry || other.Event.ID == eventID {
			continue
		}
		other.State, other.RetryIn = store.HeldBlocked, 0
		if err := u.update(other); err != nil {
			return err
		}
	}
	return nil
}

func (u *unit[TX]) update(h store.Held) error {
	u.wrote = true
	h.Group = u.p.config.Group
	_, err := u.tx.UpdateHeld(u.ctx, h)
	return err
}

func (u *unit[TX]) applied(it *item, outcome store.Outcome) {
	u.news = append(u.news, func() {
		tell(u.p.config.Events.Applied, AppliedInfo{
			Event: it.event, Outcome: outcome, Partition: it.partition, Position: it.delivery.Position, FromHeld: true,
		})
		u.p.versions.note(&it.event)
	})
}
