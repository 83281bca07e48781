package ops

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// Resolution is what a person has found out about an event that is in doubt, or
// has done about it. Exactly one of Compensated, Done and NotDone is set.
type Resolution struct {
	// Compensated is the reference of what was done instead by hand: a ticket, a
	// refund. The event is settled as SKIPPED.
	Compensated string
	// Done says that the calls in doubt did what they should: they count as DONE
	// with Result, and the event is handled, without another call.
	Done   bool
	Result []byte
	// NotDone says that the calls in doubt did nothing: they are made again.
	NotDone bool
}

var errNoResolution = errors.New("one answer is required: compensated, done or not done")

func (r *Resolution) check() error {
	answers := 0
	for _, set := range []bool{strings.TrimSpace(r.Compensated) != "", r.Done, r.NotDone} {
		if set {
			answers++
		}
	}
	if answers != 1 || len(r.Result) > 0 && !r.Done {
		return errNoResolution
	}
	return nil
}

// Resolve settles what is in doubt about held events, as a person has found it
// to be. An event without a call in doubt answers [store.OutcomeNoDoubt] to Done
// and NotDone, and one whose call is being made [store.OutcomeBusy].
func (v *Held) Resolve(ctx context.Context, action store.Action, group string, r Resolution, ids ...string) ([]store.Result, error) {
	if err := r.check(); err != nil {
		return nil, &waybill.Error{Op: "held resolve", Err: err}
	}
	return v.act(ctx, "held resolve", action, group, ids, func(ctx context.Context, tx heldTx, h *store.Held) (string, error) {
		calls, err := doubts(ctx, tx, group, h.Event.ID)
		if err != nil {
			return "", err
		}
		for i := range calls {
			if calls[i].ExpiresIn > 0 {
				return store.OutcomeBusy, nil
			}
		}
		if r.Compensated != "" {
			outcome, err := v.settle(ctx, tx, group, h)
			if outcome == store.OutcomeSkipped {
				outcome = store.OutcomeCompensated
			}
			return outcome, err
		}
		if len(calls) == 0 {
			return store.OutcomeNoDoubt, nil
		}
		for i := range calls {
			if err := resolveCall(ctx, tx, calls[i], &r); err != nil {
				return "", err
			}
		}
		h.Attempts = 0
		return store.OutcomeRetried, due(ctx, tx, h)
	}, r.note())
}

// note is what the audit says beside the outcome.
func (r *Resolution) note() string {
	switch {
	case r.Compensated != "":
		return fmt.Sprintf(`"compensated":%s`, quoteJSON(r.Compensated))
	case r.Done:
		return `"calls":"done"`
	}
	return `"calls":"not done"`
}

func resolveCall(ctx context.Context, tx heldTx, call store.EffectCall, r *Resolution) error {
	if r.NotDone {
		_, err := tx.ForgetEffect(ctx, call.Group, call.EffectRef)
		return err
	}
	// Taken over, so that an answer that comes later finds it is another's.
	call.Owner = "operator " + waybill.NewID()
	call, err := tx.BeginEffect(ctx, call, 0)
	if err != nil {
		return err
	}
	call.Result = r.Result
	_, err = tx.FinishEffect(ctx, call)
	return err
}

// doubts returns the event's calls of which nobody knows what they did.
func doubts(ctx context.Context, tx heldTx, group, eventID string) ([]store.EffectCall, error) {
	calls, err := tx.EffectsOf(ctx, group, eventID)
	if err != nil {
		return nil, err
	}
	var open []store.EffectCall
	for _, call := range calls {
		if inDoubt(&call) {
			open = append(open, call)
		}
	}
	return open, nil
}

// inDoubt says of a call that nobody is at whether a person has to look what it
// did.
func inDoubt(call *store.EffectCall) bool {
	return call.State == store.EffectDoing && !call.Idempotent
}
