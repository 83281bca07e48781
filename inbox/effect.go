package inbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/internal/fault"
	"github.com/waybillhq/waybill/store"
)

// Effect is what a consumer has another system do for an event: grant a coupon,
// send a message, charge a card. No transaction spans both, so it goes in three
// steps:
//
//  1. that the call is being made, and its idempotency key, are committed;
//  2. Call runs, with no transaction open;
//  3. its answer, the event's id and what the handler does are committed
//     together, if the call is still this process's.
//
// A process that dies between 1 and 3 leaves the call in doubt. When its lease
// has run out, the next one calls again with the same key if the effect is
// Idempotent, and otherwise holds the event DEAD ("parked: ...") for a person,
// for whom "waybill held resolve" has the possible answers. It never calls twice
// where that might do something twice. An answer that comes late after all is
// taken, and releases the event.
type Effect struct {
	// Name tells the effect from others of the same group, and stays the same in
	// all releases of the program. At most [store.MaxEffectName] bytes.
	Name string
	// Types are the types of event that have the effect. Empty means all.
	Types []string
	// Key returns the idempotency key that the other side is given. The first
	// one is kept with the call, and given again. nil means group, event id and name.
	Key func(event waybill.Event) string
	// Idempotent says that the other side takes a second call with the same key
	// for the first: it does nothing again, and answers the same.
	Idempotent bool
	// Call asks the other side, and returns its answer, if that is worth keeping;
	// the handler finds it by [EffectResult]. ctx ends after Config.HandlerTimeout.
	//
	// An error leaves in doubt what the other side did: an Idempotent effect is
	// called again by the schedule, another parked. An error of [NotDone],
	// [RetryAfter] or [Dead] says that it certainly did nothing.
	Call func(ctx context.Context, key string, event waybill.Event) (result []byte, err error)
}

// NotDone returns an error with which [Effect.Call] says that the other side
// certainly did nothing: it refused, or was not reached. The call is made again
// by the schedule, however the other side treats keys.
func NotDone(err error) error { return &notDone{err} }

type notDone struct{ err error }

func (e *notDone) Error() string { return e.err.Error() }
func (e *notDone) Unwrap() error { return e.err }

// EffectResult returns what the call of that name answered, inside of the
// handler, or of a later effect's Call.
func EffectResult(ctx context.Context, name string) (result []byte, ok bool) {
	results, _ := ctx.Value(resultsKey{}).(map[string][]byte)
	result, ok = results[name]
	return result, ok
}

type resultsKey struct{}

func withResults(ctx context.Context, r *effectRun) context.Context {
	if r == nil || len(r.results) == 0 {
		return ctx
	}
	return context.WithValue(ctx, resultsKey{}, r.results)
}

func (e *Effect) concerns(event *waybill.Event) bool {
	return len(e.Types) == 0 || slices.Contains(e.Types, event.Type)
}

// keyFor returns the idempotency key, in a form that every column holds.
func (e *Effect) keyFor(group string, event *waybill.Event) string {
	key := group + "/" + event.ID + "/" + e.Name
	if e.Key != nil {
		key = e.Key(*event)
	}
	if !fits(key, waybill.MaxKeyLen) {
		return "sha256:" + hash(key)
	}
	return key
}

func (c *Config) checkEffects() error {
	seen := make(map[string]bool)
	for _, e := range c.Effects {
		switch {
		case e.Name == "":
			return errors.New("an effect has no name")
		case !fits(e.Name, store.MaxEffectName):
			return fmt.Errorf("the effect's name %q is too long, limit %d bytes", e.Name, store.MaxEffectName)
		case seen[e.Name]:
			return fmt.Errorf("two effects have the name %q", e.Name)
		case e.Call == nil:
			return fmt.Errorf("effect %q has no Call", e.Name)
		}
		seen[e.Name] = true
	}
	return nil
}

// effectsOf returns the effects that an event has, in their order.
func (c *Config) effectsOf(event *waybill.Event) []*Effect {
	var found []*Effect
	for i := range c.Effects {
		if c.Effects[i].concerns(event) {
			found = append(found, &c.Effects[i])
		}
	}
	return found
}

// effectRun is how far this process has come with one event's calls.
type effectRun struct {
	// results are the answers by name, those that are not yet committed included.
	results map[string][]byte
	// event is as Call and Key see it.
	event waybill.Event
	// answer is the call that was answered and is not yet committed as DONE.
	answer *store.EffectCall
	// calling is the call to make: committed as DOING, and this process's.
	calling *store.EffectCall
	effect  *Effect // of calling
	// ready says that nothing is left to call.
	ready bool
}

func newEffectRun(event waybill.Event) *effectRun {
	event.Data, event.Headers = bytes.Clone(event.Data), maps.Clone(event.Headers)
	return &effectRun{event: event, results: make(map[string][]byte)}
}

var (
	errInDoubt = errors.New("whether it happened is not known")
	// errTaken says that a call is no longer this process's: another took it for
	// dead. What that one learns counts.
	errTaken = errors.New("a call was taken over by another process")
)

// doubt is the failure of an event of which nobody knows whether its call did
// anything.
func doubt(call *store.EffectCall, cause error) *failure {
	err := fmt.Errorf("effect %s, called %d times with key %q: %w", call.Name, max(call.Tries, 1), call.Key, errInDoubt)
	if cause != nil {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return failureOf(Park(err), "")
}

// planEffects decides what comes next for an event, from its rows as they are
// under the key's lock: a call to make, which it writes, a reason to wait, or a
// failure. The event is ready when it is none of these.
func (p *Processor[TX]) planEffects(ctx context.Context, tx store.EffectTx, event *waybill.Event, run *effectRun) (next effectStep, err error) {
	group := p.config.Group
	rows, err := tx.EffectsOf(ctx, group, event.ID)
	if err != nil {
		return effectStep{}, err
	}
	for _, effect := range p.config.effectsOf(event) {
		i := slices.IndexFunc(rows, func(c store.EffectCall) bool { return c.Name == effect.Name })
		switch {
		case i < 0:
		case rows[i].State == store.EffectDone:
			run.results[effect.Name] = rows[i].Result
			continue
		case rows[i].ExpiresIn > 0 && (rows[i].Owner != p.calls.owner || p.calls.isLive(rows[i].EffectRef)):
			return effectStep{wait: rows[i].ExpiresIn}, nil
		case !effect.Idempotent:
			return effectStep{fail: doubt(&rows[i], errors.New("the process that made the call was not heard of again"))}, nil
		}
		call, err := tx.BeginEffect(ctx, store.EffectCall{
			Group: group, EffectRef: store.EffectRef{EventID: event.ID, Name: effect.Name},
			Key: effect.keyFor(group, event), Idempotent: effect.Idempotent, Owner: p.calls.owner,
		}, p.config.ReaderTTL)
		return effectStep{call: &call, effect: effect}, err
	}
	return effectStep{ready: true}, nil
}

// effectStep is what comes next for an event with effects.
type effectStep struct {
	call   *store.EffectCall // to be made, once it is committed
	effect *Effect
	wait   time.Duration // another process is at it
	fail   *failure
	ready  bool
}

// take makes a step, now committed, the run's.
func (r *effectRun) take(step effectStep) {
	r.answer = nil
	r.calling, r.effect, r.ready = step.call, step.effect, step.ready
}

// makeCall makes the run's call, and returns why the event fails, or nil. The
// lease is kept alive meanwhile, and until the answer is committed.
func (p *Processor[TX]) makeCall(work context.Context, run *effectRun, late func(*effectRun)) *failure {
	call, effect := run.calling, run.effect
	run.calling = nil
	p.calls.begin(call.EffectRef)
	began := now()
	answer := p.ask(work, *call, effect, run, late)
	fault.Point("inbox.effect_called")
	tell(p.config.Events.Called, CalledInfo{
		Event: run.event, Effect: call.Name, Key: call.Key, Try: call.Tries, Took: now().Sub(began), Err: answer.err,
	})
	if answer.err != nil {
		p.calls.end(call.EffectRef)
		return p.callFailed(work, &run.event, call, effect, answer.err)
	}
	run.answered(call, answer.result)
	// The last answer is committed with what the handler does.
	run.ready = !slices.ContainsFunc(p.config.effectsOf(&run.event), func(e *Effect) bool {
		_, done := run.results[e.Name]
		return !done
	})
	return nil
}

func (r *effectRun) answered(call *store.EffectCall, result []byte) {
	call.Result = result
	r.answer = call
	r.results[call.Name] = result
}

// CalledInfo is one call of an effect.
type CalledInfo struct {
	Event  waybill.Event
	Effect string
	Key    string
	Try    int // 1 for the first
	Took   time.Duration
	Err    error // nil when it was answered
}

func (i CalledInfo) String() string {
	if i.Err != nil {
		return fmt.Sprintf("called %s for %s, try %d: %v", i.Effect, i.Event.ID, i.Try, i.Err)
	}
	return fmt.Sprintf("called %s for %s, try %d", i.Effect, i.Event.ID, i.Try)
}

type callAnswer struct {
	result []byte
	err    error
}

// ask runs Call in a goroutine of its own. One that does not return in time is
// left to itself; if it brings an answer after all, late gets it.
func (p *Processor[TX]) ask(work context.Context, call store.EffectCall, effect *Effect, run *effectRun, late func(*effectRun)) callAnswer {
	again := newEffectRun(run.event)
	maps.Copy(again.results, run.results)
	ctx, cancel := context.WithTimeout(withResults(work, again), p.config.HandlerTimeout)
	defer cancel()
	event := newEffectRun(run.event).event
	answers := make(chan callAnswer)
	gone, finished := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(finished)
		answer := callAnswer{err: errGoexit}
		defer func() {
			if v := recover(); v != nil {
				answer = callAnswer{err: fmt.Errorf("%w: %v\n%s", ErrHandlerPanic, v, clip(string(debug.Stack()), maxStack))}
			}
			select {
			case answers <- answer:
			case <-gone:
				if answer.err == nil {
					again.answered(&call, answer.result)
					late(again)
				}
			}
		}()
		answer.result, answer.err = effect.Call(ctx, call.Key, event)
	}()
	select {
	case answer := <-answers:
		return answer
	case <-ctx.Done():
	}
	if answer, ok := waitFor(answers, patience); ok {
		return answer
	}
	close(gone)
	p.abandoned.add(finished)
	if work.Err() != nil {
		return callAnswer{err: context.Cause(work)}
	}
	return callAnswer{err: fmt.Errorf("%w of %v", ErrHandlerTimeout, p.config.HandlerTimeout)}
}

// callFailed ends the lease of a call that brought no answer, and says what that
// means for its event.
func (p *Processor[TX]) callFailed(work context.Context, event *waybill.Event, call *store.EffectCall, effect *Effect, cause error) *failure {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(work), leaveTimeout)
	defer cancel()
	fail := failureOf(fmt.Errorf("effect %s: %w", call.Name, cause), "")
	var certain *notDone
	if errors.As(cause, &certain) || fail.hasAfter || fail.final && !fail.parked {
		if err := p.forgetCall(ctx, event, call); err != nil {
			p.config.Logger.Warn("a call that did nothing could not be forgotten: it will be in doubt", "event", event.ID, "effect", call.Name, "error", err)
		}
		return fail
	}
	// The lease ends now, so that nobody waits for it. If this fails, it ends by
	// itself.
	_, _ = p.st.RenewEffects(ctx, call.Group, call.Owner, 0, []store.EffectRef{call.EffectRef})
	if effect.Idempotent {
		return fail
	}
	return doubt(call, cause)
}

func (p *Processor[TX]) forgetCall(ctx context.Context, event *waybill.Event, call *store.EffectCall) error {
	return p.locked(ctx, store.HeldKeyRef{Topic: event.Topic, Key: orderKey(event)}, func(tx store.InboxTx[TX]) error {
		rows, err := tx.EffectsOf(ctx, call.Group, call.EventID)
		if err != nil {
			return err
		}
		mine := func(c store.EffectCall) bool { return c.Name == call.Name && c.Owner == call.Owner }
		if !slices.ContainsFunc(rows, mine) {
			return nil
		}
		_, err = tx.ForgetEffect(ctx, call.Group, call.EffectRef)
		return err
	})
}

// keepAnswer commits an answer whose event is not, or no longer, this process's
// to settle: whoever handles it next need not ask again.
func (p *Processor[TX]) keepAnswer(ctx context.Context, run *effectRun) {
	if run == nil || run.answer == nil {
		return
	}
	answer := run.answer
	defer p.calls.end(answer.EffectRef)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	tx, err := p.st.BeginInbox(ctx)
	if err == nil {
		defer rollback(ctx, tx)
		if _, err = tx.FinishEffect(ctx, *answer); err == nil {
			err = tx.Commit(ctx)
		}
	}
	if err != nil {
		p.config.Logger.Warn("the answer of a call could not be kept", "event", answer.EventID, "effect", answer.Name, "error", err)
		return
	}
	run.answer = nil
}
