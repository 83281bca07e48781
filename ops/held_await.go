package ops

import (
	"context"
	"slices"
	"time"

	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/store"
)

// awaitEvery is the pause between two looks.
const awaitEvery = 100 * time.Millisecond

// Await waits until the consumer has handled the events that were made due, for
// at most limit, and returns the results with what became of them:
// [store.OutcomeApplied], [store.OutcomeStale], [store.OutcomeSkipped] or
// [store.OutcomeFailed]. What is not decided by then keeps its outcome.
func (v *Held) Await(ctx context.Context, group string, results []store.Result, limit time.Duration) ([]store.Result, error) {
	results = slices.Clone(results)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		open := 0
		for i := range results {
			r := &results[i]
			if r.Outcome != store.OutcomeRetried && r.Outcome != store.OutcomeReleased {
				continue
			}
			outcome, err := v.became(ctx, group, r.EventID)
			switch {
			case ctx.Err() != nil:
				return results, nil
			case err != nil:
				return results, err
			case outcome == "":
				open++
			default:
				r.Outcome = outcome
			}
		}
		if open == 0 || !rest(ctx, awaitEvery) {
			return results, nil
		}
	}
}

// became returns what became of an event that was made due, or "".
func (v *Held) became(ctx context.Context, group, id string) (string, error) {
	h, err := v.find(ctx, group, id)
	if err != nil {
		return "", err
	}
	if h != nil {
		failed := h.State == store.HeldDead || h.State == store.HeldRetry && h.RetryIn > 0 && h.Attempts > 0
		if failed && !inbox.IsBeingTried(h) {
			return store.OutcomeFailed, nil
		}
		return "", nil
	}
	return v.consumed(ctx, group, id)
}

// consumed returns how the group settled an event, or "".
func (v *Held) consumed(ctx context.Context, group, id string) (string, error) {
	rows, err := v.reader.FindConsumed(ctx, id)
	if err != nil {
		return "", err
	}
	for _, c := range rows {
		if c.Group != group {
			continue
		}
		switch c.Outcome {
		case store.Stale:
			return store.OutcomeStale, nil
		case store.ConsumedSkipped:
			return store.OutcomeSkipped, nil
		}
		return store.OutcomeApplied, nil
	}
	return "", nil
}
