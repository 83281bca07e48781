package ops

import (
	"context"
	"errors"
	"strings"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// page is how many events one question or one verb handles at a time.
const page = 200

// ErrNoTarget refuses a verb that names no event.
var ErrNoTarget = errors.New("name at least one event id")

// DeadFilter selects dead events. All conditions that are set must hold.
type DeadFilter struct {
	Topic string
	Type  string
	Key   string // event key or aggregate id
	Error string // part of the last error
	After int64  // only greater outbox ids
	Limit int    // 0 means 100
}

// ListDead returns dead events of the outbox, lowest id first. more says that
// there are others beyond the limit.
func ListDead(ctx context.Context, inspector store.Inspector, filter DeadFilter) (dead []store.Tracked, more bool, err error) {
	limit := filter.Limit
	if limit <= 0 {
		limit = 100
	}
	query := store.Filter{Status: store.StatusDead, Topic: filter.Topic, Type: filter.Type, Key: filter.Key, After: filter.After, Limit: page}
	for {
		found, err := inspector.Find(ctx, query)
		if err != nil {
			return nil, false, err
		}
		for _, t := range found {
			if t.Row == nil || !strings.Contains(t.Row.LastErr, filter.Error) {
				continue
			}
			if len(dead) == limit {
				return dead, true, nil
			}
			dead = append(dead, t)
		}
		if len(found) < page {
			return dead, false, nil
		}
		query.After = found[len(found)-1].ID
	}
}

// RetryDead makes dead events due again with their attempts forgotten. Events
// behind them on the same key follow in order.
func RetryDead(ctx context.Context, operator store.Operator, action store.Action, ids ...string) ([]store.Result, error) {
	return inPages(ctx, "dead retry", operator.RetryDead, action, ids)
}

// SkipDead gives dead events up: a marker with the same id and version is sent
// in their place, so that consumers do not wait for them for ever.
func SkipDead(ctx context.Context, operator store.Operator, action store.Action, ids ...string) ([]store.Result, error) {
	return inPages(ctx, "dead skip", operator.SkipDead, action, ids)
}

// Requeue sends events once more, with the ids they have. Consumers that
// applied them will count duplicates.
func Requeue(ctx context.Context, operator store.Operator, action store.Action, ids ...string) ([]store.Result, error) {
	return inPages(ctx, "requeue", operator.Requeue, action, ids)
}

type verb func(context.Context, store.Action, []string) ([]store.Result, error)

// inPages keeps each transaction short. When one fails, the results of those
// before it are returned with the error.
func inPages(ctx context.Context, op string, do verb, action store.Action, ids []string) ([]store.Result, error) {
	if strings.TrimSpace(action.Reason) == "" {
		return nil, &waybill.Error{Op: op, Err: store.ErrNoReason}
	}
	if len(ids) == 0 {
		return nil, &waybill.Error{Op: op, Err: ErrNoTarget}
	}
	results := make([]store.Result, 0, len(ids))
	for len(ids) > 0 {
		n := min(len(ids), page)
		part, err := do(ctx, action, ids[:n])
		if err != nil {
			return results, err
		}
		results = append(results, part...)
		ids = ids[n:]
	}
	return results, nil
}
