package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// HeldStore is a consumer's database as [NewHeld] takes it.
type HeldStore[TX any] interface {
	store.Inbox[TX]
	store.HeldReader
}

// Held carries out what a person decides about events that consumers keep
// aside. Each event is handled in a transaction of its own, under its key's
// lock, in which the audit is written too; so a consumer that is at work on the
// key meanwhile is waited for.
type Held struct {
	reader store.HeldReader
	begin  func(ctx context.Context) (heldTx, error)
}

// heldTx is what the verbs need of a consumer's transaction.
type heldTx interface {
	store.TxControl
	store.ConsumedTx
	store.ProgressTx
	store.HeldTx
	store.EffectTx
	store.AuditTx
}

// NewHeld returns the verbs over a consumer's database.
func NewHeld[TX any](st HeldStore[TX]) *Held {
	return &Held{reader: st, begin: func(ctx context.Context) (heldTx, error) { return st.BeginInbox(ctx) }}
}

// ErrNoGroup says that an inbox knows no group of that name.
var ErrNoGroup = errors.New("no such consumer group")

// HeldQuery selects held events of one group. All conditions that are set must
// hold.
type HeldQuery struct {
	EventID string
	Topic   string
	Type    string
	Key     string // event key or aggregate id
	State   store.HeldState
	Error   string // part of the last error, or its fingerprint
	// Since and Until bound the time of the last failure, or since when it is
	// held; half open.
	Since, Until time.Time
	After        int64 // only greater Seq
	Limit        int   // 0 means 100
}

// ListHeld returns held events of a group in their order of arrival. more says
// that there are others beyond the limit.
func ListHeld(ctx context.Context, reader store.HeldReader, group string, query HeldQuery) (held []store.Held, more bool, err error) {
	limit := query.Limit
	if limit <= 0 {
		limit = 100
	}
	filter := store.HeldFilter{EventID: query.EventID, State: query.State, After: query.After, Limit: page}
	for {
		found, err := reader.ListHeld(ctx, group, filter)
		if err != nil {
			return nil, false, err
		}
		for _, h := range found {
			if !query.matches(&h) {
				continue
			}
			if len(held) == limit {
				return held, true, nil
			}
			held = append(held, h)
		}
		if len(found) < page {
			return held, false, nil
		}
		filter.After = found[len(found)-1].Seq
	}
}

func (q *HeldQuery) matches(h *store.Held) bool {
	return (q.Topic == "" || q.Topic == h.Topic) &&
		(q.Type == "" || q.Type == h.Event.Type) &&
		(q.Key == "" || q.Key == h.Key || q.Key == h.Event.AggregateID) &&
		matchesError(h.LastErr, q.Error) && q.inTime(h)
}

func (q *HeldQuery) inTime(h *store.Held) bool {
	at := h.LastFailedAt
	if at.IsZero() {
		at = h.HeldAt
	}
	return (q.Since.IsZero() || !at.Before(q.Since)) && (q.Until.IsZero() || at.Before(q.Until))
}

// Release lets events go ahead once, at once, their attempts kept: one that is
// DEAD gets a single further attempt. One that waits for a lower version waits no
// longer: the versions that are missing are given up, and are stale should they
// come after all. One that is BLOCKED stays: the order within its key is never
// given up; retry, release or skip what is before it.
func (v *Held) Release(ctx context.Context, action store.Action, group string, ids ...string) ([]store.Result, error) {
	return v.act(ctx, "held release", action, group, ids, func(ctx context.Context, tx heldTx, h *store.Held) (string, error) {
		if h.State == store.HeldBlocked {
			return store.OutcomeBehind, nil
		}
		if calls, err := doubts(ctx, tx, group, h.Event.ID); err != nil || len(calls) > 0 {
			return store.OutcomeInDoubt, err
		}
		err := advance(ctx, tx, group, &h.Event, h.Event.AggregateVersion-1, func(at int64) bool {
			return h.State == store.HeldWaiting || at > 0
		})
		if err != nil {
			return "", err
		}
		return store.OutcomeReleased, due(ctx, tx, h)
	}, "")
}

// advance brings the progress of an event's aggregate up to a version, if it is
// below and may be changed.
func advance(ctx context.Context, tx heldTx, group string, e *waybill.Event, to int64, may func(at int64) bool) error {
	if to <= 0 || e.AggregateID == "" {
		return nil
	}
	p, err := tx.LockProgress(ctx, group, store.AggregateOf(e))
	if err != nil || p.Version >= to || !may(p.Version) {
		return err
	}
	_, err = tx.AdvanceProgress(ctx, group, []store.Advance{{Aggregate: p.Aggregate, From: p.Version, To: to, EventID: e.ID}})
	return err
}

func due(ctx context.Context, tx heldTx, h *store.Held) error {
	h.State, h.RetryIn = store.HeldRetry, 0
	_, err := tx.UpdateHeld(ctx, *h)
	return err
}

// Skip settles events as SKIPPED without running the handler, whatever their
// state, and counts their version as come. What is behind them follows, and what
// waited for them. One behind lower versions of its own aggregate stays in its
// place, and is skipped when those are done.
func (v *Held) Skip(ctx context.Context, action store.Action, group string, ids ...string) ([]store.Result, error) {
	return v.act(ctx, "held skip", action, group, ids, func(ctx context.Context, tx heldTx, h *store.Held) (string, error) {
		return v.settle(ctx, tx, group, h)
	}, "")
}

// settle takes an event out of what is held, as one that will not be handled.
func (v *Held) settle(ctx context.Context, tx heldTx, group string, h *store.Held) (outcome string, err error) {
	consumed, err := tx.IsConsumed(ctx, group, h.Event.ID, false)
	if err != nil {
		return "", err
	}
	if !consumed && h.State == store.HeldBlocked {
		marker, later, err := skipLater(ctx, tx, group, h)
		if err != nil {
			return "", err
		}
		if later {
			*h = *marker
			return store.OutcomeSkippedInTurn, nil
		}
	}
	outcome = store.OutcomeSkipped
	if consumed {
		outcome = store.OutcomeConsumed
	} else if _, err := tx.MarkConsumed(ctx, store.Consumed{
		Group: group, Event: h.Event, Outcome: store.ConsumedSkipped, Topic: h.Topic, Partition: h.Partition, Position: h.Position,
	}); err != nil {
		return "", err
	}
	if _, err := tx.DeleteHeld(ctx, group, h.Event.ID); err != nil {
		return "", err
	}
	err = advance(ctx, tx, group, &h.Event, h.Event.AggregateVersion, func(at int64) bool {
		return h.State != store.HeldBlocked || at == h.Event.AggregateVersion-1
	})
	h.State = ""
	return outcome, err
}

// skipLater replaces a BLOCKED event by its skip marker where lower versions of
// its aggregate are still to be settled: those must not find it come already.
func skipLater(ctx context.Context, tx heldTx, group string, h *store.Held) (marker *store.Held, later bool, err error) {
	e, err := waybill.Decode(&h.Record)
	if err != nil || e.AggregateVersion <= 1 || e.AggregateID == "" {
		return nil, false, nil //nolint:nilerr // what cannot be read has no version
	}
	found, err := tx.ReadProgress(ctx, group, []store.Aggregate{store.AggregateOf(&e)})
	if err != nil {
		return nil, false, err
	}
	if at := found[0].Version; at >= e.AggregateVersion-1 {
		return nil, false, nil
	} else if at == 0 {
		if later, err := isBehindItself(ctx, tx, group, h); err != nil || !later {
			return nil, false, err
		}
	}
	e = e.SkipMarker()
	record, err := waybill.Encode(waybill.FormatEnvelope, &e)
	if err != nil {
		return nil, false, err
	}
	skipped := *h
	skipped.Record = record
	if _, err := tx.DeleteHeld(ctx, group, h.Event.ID); err != nil {
		return nil, false, err
	}
	_, err = tx.Hold(ctx, skipped)
	return &skipped, true, err
}

// isBehindItself reports whether the key holds a lower version of the event's
// aggregate.
func isBehindItself(ctx context.Context, tx heldTx, group string, h *store.Held) (bool, error) {
	held, err := tx.HeldOfKey(ctx, group, store.HeldKeyRef{Topic: h.Topic, Key: h.Key}, 0)
	if err != nil {
		return false, err
	}
	a := store.AggregateOf(&h.Event)
	return slices.ContainsFunc(held, func(other store.Held) bool {
		version := other.Event.AggregateVersion
		return version > 0 && version < h.Event.AggregateVersion && store.AggregateOf(&other.Event) == a
	}), nil
}

// leaveAlone are the outcomes that change nothing.
var leaveAlone = []string{
	store.OutcomeBehind, store.OutcomeWaits, store.OutcomeStale, store.OutcomeInDoubt, store.OutcomeNoDoubt, store.OutcomeBusy,
}

// decide changes a held event whose key is locked, and h to what it is then; an
// empty State means that it is no longer held.
type decide func(ctx context.Context, tx heldTx, h *store.Held) (outcome string, err error)

// act answers for every id, in order. When one fails, the results before it
// are returned with the error. note is a field of JSON for the audit, or empty.
func (v *Held) act(ctx context.Context, verb string, action store.Action, group string, ids []string, do decide, note string) ([]store.Result, error) {
	if strings.TrimSpace(action.Reason) == "" {
		return nil, &waybill.Error{Op: verb, Err: store.ErrNoReason}
	}
	if len(ids) == 0 {
		return nil, &waybill.Error{Op: verb, Err: ErrNoTarget}
	}
	results := make([]store.Result, 0, len(ids))
	for _, id := range ids {
		outcome, err := v.one(ctx, verb, action, group, id, do, note)
		if err != nil {
			return results, err
		}
		results = append(results, store.Result{EventID: id, Outcome: outcome})
	}
	return results, nil
}

func (v *Held) one(ctx context.Context, verb string, action store.Action, group, id string, do decide, note string) (string, error) {
	seen, err := v.find(ctx, group, id)
	if err != nil || seen == nil {
		return store.OutcomeNotHeld, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tx, err := v.begin(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if err := tx.LockKey(ctx, group, store.HeldKeyRef{Topic: seen.Topic, Key: seen.Key}); err != nil {
		return "", err
	}
	// Whoever changes a held event locks its key, so what is committed now stays.
	h, err := v.find(ctx, group, id)
	if err != nil || h == nil {
		return store.OutcomeNotHeld, err
	}
	before := describeHeld(h)
	outcome, err := do(ctx, tx, h)
	if err != nil || slices.Contains(leaveAlone, outcome) {
		return outcome, err
	}
	after := fmt.Sprintf(`{"group":%s,"outcome":%q}`, quoteJSON(group), outcome)
	if h.State != "" {
		after = describeHeld(h)
	}
	if note != "" {
		after = strings.TrimSuffix(after, "}") + "," + note + "}"
	}
	err = tx.Record(ctx, store.AuditEntry{
		Actor: action.Actor, Verb: verb, Target: id, Reason: action.Reason, Before: before, After: after,
	})
	if err != nil {
		return "", err
	}
	return outcome, tx.Commit(ctx)
}

// Note writes an entry about something that has no transaction of its own.
func (v *Held) Note(ctx context.Context, action store.Action, verb, target, after string) error {
	if strings.TrimSpace(action.Reason) == "" {
		return &waybill.Error{Op: verb, Err: store.ErrNoReason}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tx, err := v.begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	entry := store.AuditEntry{Actor: action.Actor, Verb: verb, Target: target, Reason: action.Reason, After: after}
	if err := tx.Record(ctx, entry); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

func (v *Held) find(ctx context.Context, group, id string) (*store.Held, error) {
	found, err := v.reader.ListHeld(ctx, group, store.HeldFilter{EventID: id, Limit: 1})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

func describeHeld(h *store.Held) string {
	return fmt.Sprintf(`{"group":%s,"state":%q,"attempts":%d}`, quoteJSON(h.Group), h.State, h.Attempts)
}
