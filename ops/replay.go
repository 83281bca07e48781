package ops

import (
	"context"
	"encoding/json"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// ReplayQuery selects events to be sent again. Either EventIDs or at least one
// other condition must be set; all that are set must hold. Events in the
// archive are not found by conditions: they are gone for a replay.
type ReplayQuery struct {
	EventIDs    []string
	Topic       string
	Type        string
	Key         string    // event key or aggregate id
	From, Until time.Time // on the time of insertion, half open
	Limit       int       // the most events; 0 means no bound
}

// ReplayConfig adjusts [Replay]. Nil means that nothing is changed.
type ReplayConfig struct {
	// Apply queues the events; else only what would be done is told.
	Apply bool
	// Rate bounds the events queued in a second. 0 means 100, below 0 no bound.
	Rate int
	// Each, where set, is told what became of each event, in order of ids.
	Each func(store.Result)
}

// WouldQueue is the outcome of an event in a replay that changes nothing.
const WouldQueue = "would be queued"

// ReplayResult sums up a replay by outcome.
type ReplayResult struct {
	DryRun   bool           `json:"dry_run"`
	Outcomes map[string]int `json:"outcomes"`
}

// Replay puts settled events into the queue again. They keep their ids, so a
// consumer that has applied them counts duplicates: a replay reaches those that
// have not.
func Replay(ctx context.Context, st interface {
	store.Inspector
	store.Operator
}, action store.Action, query ReplayQuery, config *ReplayConfig,
) (ReplayResult, error) {
	action.Verb = "replay"
	r := replay{store: st, action: action}
	if config != nil {
		r.config = *config
	}
	r.result = ReplayResult{DryRun: !r.config.Apply, Outcomes: make(map[string]int)}
	if r.config.Apply && action.Reason == "" {
		return r.result, &waybill.Error{Op: "replay", Err: store.ErrNoReason}
	}
	if len(query.EventIDs) == 0 && query.Topic == "" && query.Type == "" && query.Key == "" && query.From.IsZero() && query.Until.IsZero() {
		return r.result, &waybill.Error{Op: "replay", Err: ErrNoTarget, Hint: "or a topic, type, key or time range"}
	}
	if len(query.EventIDs) > 0 {
		return r.result, r.ids(ctx, query)
	}
	return r.result, r.matching(ctx, query)
}

type replay struct {
	store interface {
		store.Inspector
		store.Operator
	}
	action store.Action
	config ReplayConfig
	result ReplayResult
	queued int
}

func (r *replay) ids(ctx context.Context, query ReplayQuery) error {
	ids := query.EventIDs
	for len(ids) > 0 {
		n := min(len(ids), r.step())
		found, err := r.store.Find(ctx, store.Filter{EventIDs: ids[:n], Limit: n})
		if err != nil {
			return err
		}
		known := make(map[string]*store.Tracked, len(found))
		for i := range found {
			known[found[i].Event.ID] = &found[i]
		}
		if err := r.queue(ctx, ids[:n], known); err != nil {
			return err
		}
		ids = ids[n:]
	}
	return nil
}

// matching goes through the events by id, so what is inserted meanwhile at the
// end is met once.
func (r *replay) matching(ctx context.Context, query ReplayQuery) error {
	filter := store.Filter{Topic: query.Topic, Type: query.Type, Key: query.Key, From: query.From, Until: query.Until}
	for left := query.Limit; query.Limit <= 0 || left > 0; {
		filter.Limit = r.step()
		if query.Limit > 0 {
			filter.Limit = min(filter.Limit, left)
		}
		found, err := r.store.Find(ctx, filter)
		if err != nil {
			return err
		}
		ids := make([]string, len(found))
		known := make(map[string]*store.Tracked, len(found))
		for i := range found {
			ids[i] = found[i].Event.ID
			known[ids[i]] = &found[i]
		}
		if err := r.queue(ctx, ids, known); err != nil {
			return err
		}
		if len(found) < filter.Limit {
			return nil
		}
		left -= len(found)
		filter.After = found[len(found)-1].ID
	}
	return nil
}

// step is the number of events handled at once: a tenth of a second's worth.
func (r *replay) step() int {
	if r.config.Rate < 0 {
		return page
	}
	return max(1, min(page, r.rate()/10))
}

func (r *replay) rate() int { return orDefault(r.config.Rate, 100) }

func (r *replay) queue(ctx context.Context, ids []string, known map[string]*store.Tracked) error {
	if len(ids) == 0 {
		return nil
	}
	if !r.config.Apply {
		for _, id := range ids {
			switch t := known[id]; {
			case t == nil || t.Archived:
				r.tell(store.Result{EventID: id, Outcome: store.OutcomeGone})
			case t.Row != nil:
				r.tell(store.Result{EventID: id, Outcome: store.OutcomeAlreadyPending})
			default:
				r.tell(store.Result{EventID: id, Outcome: WouldQueue})
			}
		}
		return nil
	}
	// The rest goes before, so the last page is not followed by one.
	if r.queued > 0 && r.config.Rate >= 0 {
		if !rest(ctx, time.Duration(r.queued)*time.Second/time.Duration(r.rate())) {
			return ctx.Err()
		}
	}
	results, err := Requeue(ctx, r.store, r.action, ids...)
	r.queued = 0
	for _, result := range results {
		if result.Outcome == store.OutcomeQueued {
			r.queued++
		}
		r.tell(result)
	}
	return err
}

func (r *replay) tell(result store.Result) {
	r.result.Outcomes[result.Outcome]++
	if r.config.Each != nil {
		r.config.Each(result)
	}
}

func quoteJSON(text string) string {
	quoted, _ := json.Marshal(text) // cannot fail: text
	return string(quoted)
}
