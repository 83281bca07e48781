package ops

import (
	"context"
	"errors"
	"slices"

	"github.com/waybillhq/waybill/store"
)

// Retry makes events in RETRY or DEAD due now, their attempts forgotten: the
// consumer's whole schedule begins anew. Those of one key are handled in their
// order, one at a time.
//
// An event that the group has consumed answers [store.OutcomeDuplicate], one
// whose aggregate is further [store.OutcomeStale]: to apply it now may undo
// what came after it, which takes [Held.Force]. One of which a call is in doubt
// answers [store.OutcomeInDoubt]: see [Held.Resolve]. None of these is changed.
func (v *Held) Retry(ctx context.Context, action store.Action, group string, ids ...string) ([]store.Result, error) {
	return v.retry(ctx, action, group, ids, false)
}

// Force is Retry for events that are to be applied though they are stale.
func (v *Held) Force(ctx context.Context, action store.Action, group string, ids ...string) ([]store.Result, error) {
	return v.retry(ctx, action, group, ids, true)
}

func (v *Held) retry(ctx context.Context, action store.Action, group string, ids []string, force bool) ([]store.Result, error) {
	results, err := v.act(ctx, "held retry", action, group, ids, func(ctx context.Context, tx heldTx, h *store.Held) (string, error) {
		switch h.State {
		case store.HeldBlocked:
			return store.OutcomeBehind, nil
		case store.HeldWaiting:
			return store.OutcomeWaits, nil
		}
		stale, err := isStale(ctx, tx, h)
		switch {
		case err != nil:
			return "", err
		case stale && !force:
			return store.OutcomeStale, nil
		}
		if calls, err := doubts(ctx, tx, group, h.Event.ID); err != nil || len(calls) > 0 {
			return store.OutcomeInDoubt, err
		}
		h.Attempts, h.Forced = 0, stale
		return store.OutcomeRetried, due(ctx, tx, h)
	}, "")
	for i := range results {
		if results[i].Outcome != store.OutcomeNotHeld {
			continue
		}
		outcome, findErr := v.consumed(ctx, group, results[i].EventID)
		if findErr != nil {
			return results, errors.Join(err, findErr)
		}
		if outcome != "" {
			results[i].Outcome = store.OutcomeDuplicate
		}
	}
	return results, err
}

// isStale reports whether the group has settled a higher version. Where versions
// do not count, there is no progress.
func isStale(ctx context.Context, tx heldTx, h *store.Held) (bool, error) {
	if h.Event.AggregateVersion <= 0 || h.Event.AggregateID == "" {
		return false, nil
	}
	progress, err := tx.ReadProgress(ctx, h.Group, []store.Aggregate{store.AggregateOf(&h.Event)})
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(progress, func(p store.Progress) bool { return p.Version > h.Event.AggregateVersion }), nil
}
