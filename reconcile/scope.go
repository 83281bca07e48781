package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/internal/fault"
)

// Mode says which keys a run compares.
type Mode string

// The modes.
const (
	// ModeFull compares all keys. After an interruption it starts again.
	ModeFull Mode = "full"
	// ModeWindow compares the keys that changed lately in any arm, read anew by
	// key. After an interruption it starts again.
	ModeWindow Mode = "window"
	// ModeWeekly compares all keys, stretch by stretch; each is recorded with its
	// findings, and the next run goes on behind the last one recorded.
	ModeWeekly Mode = "weekly"
	// ModeKey compares some keys.
	ModeKey Mode = "key"
	// ModeEvent compares the keys of some events.
	ModeEvent Mode = "event"
)

// Scope says which keys a run compares. The zero Scope is all of them.
type Scope struct {
	Mode Mode
	// Since, for ModeWindow, is when a change is recent. Default: a window
	// ([Check.Window]) before now.
	Since  time.Time
	Keys   [][]string // for ModeKey: the parts of each
	Events []string   // for ModeEvent: ids
}

// Compare compares the keys of a scope, from the lowest to the highest. What
// cannot be read is UNVERIFIED in the report and no error; an error is a
// database that does not answer at the start, or the end of the context.
func (e *Engine) Compare(ctx context.Context, scope Scope) (*Report, error) {
	r, err := e.newRun(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.compare(ctx, scope); err != nil {
		return nil, err
	}
	return r.finish(), nil
}

func (r *run) compare(ctx context.Context, scope Scope) (err error) {
	switch scope.Mode {
	case "", ModeFull, ModeWeekly:
		_, err = r.sweep(ctx, nil)
	case ModeWindow:
		err = r.window(ctx, scope.Since)
	case ModeKey:
		err = r.named(ctx, scope.Keys)
	case ModeEvent:
		err = r.ofEvents(ctx, scope.Events)
	default:
		err = &waybill.Error{Op: "reconcile", Key: string(scope.Mode), Err: errors.New("no such mode"), Hint: "full, window, weekly, key or event"}
	}
	if err != nil {
		return err
	}
	fault.Point("reconcile.read")
	if err := r.confirm(ctx); err != nil {
		return err
	}
	fault.Point("reconcile.confirmed")
	return nil
}

func (r *run) named(ctx context.Context, named [][]string) error {
	keys := make([]Key, len(named))
	for i, texts := range named {
		var err error
		if keys[i], err = ParseKey(r.check.kinds(), texts); err != nil {
			return err
		}
	}
	return r.among(ctx, keys)
}

func (r *run) ofEvents(ctx context.Context, ids []string) error {
	if r.check.Log == nil || r.check.Log.EventID == "" {
		return &waybill.Error{Op: "reconcile", Key: r.check.Name, Err: errors.New("events have no ids here"), Hint: "name the column under log: event_id"}
	}
	var keys []Key
	for _, id := range ids {
		key, err := r.arms.keyOf(ctx, id)
		switch {
		case err != nil:
			return &waybill.Error{Op: "find event", Key: id, Err: err}
		case key == nil:
			return &waybill.Error{Op: "find event", Key: id, Err: errors.New("the log of this check has no such event"), Hint: "waybill trace looks for it elsewhere"}
		}
		keys = append(keys, *key)
	}
	return r.among(ctx, keys)
}

// amongKeys is how many keys are asked for at once.
const amongKeys = 400

// among compares some keys.
func (r *run) among(ctx context.Context, keys []Key) error {
	slices.SortFunc(keys, Key.Compare)
	keys = slices.CompactFunc(keys, func(a, b Key) bool { return a.Compare(b) == 0 })
	for some := range slices.Chunk(keys, amongKeys) {
		whole := Range{among: some}
		err := r.chunk(ctx, whole)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.account(whole, err)
		if err := r.breathe(ctx); err != nil {
			return err
		}
	}
	return nil
}

// account notes a range as compared, or as one that could not be. Of keys that
// were compared one by one only those are kept that somebody will ask for.
func (r *run) account(whole Range, err error) {
	r.report.Coverage.Ranges++
	if err != nil {
		r.lose(whole, err)
		return
	}
	fault.Point("reconcile.chunk")
	if whole.among != nil {
		whole.among = slices.DeleteFunc(slices.Clone(whole.among), func(key Key) bool { return !r.memory.wants[key.order] })
	}
	n := len(r.covered)
	if n > 0 && whole.among == nil && r.covered[n-1].To != nil && whole.From != nil && r.covered[n-1].To.Compare(*whole.From) == 0 {
		r.covered[n-1].To = whole.To
		return
	}
	if n > 0 && whole.among != nil && r.covered[n-1].among != nil {
		r.covered[n-1].among = append(r.covered[n-1].among, whole.among...)
		return
	}
	r.covered = append(r.covered, whole)
}

// failure is a range, or a key, of which nothing is proved.
type failure struct {
	Range
	err error
}

// lose notes a range as not compared.
func (r *run) lose(whole Range, err error) {
	r.report.fail(whole, err)
	r.failed = append(r.failed, failure{whole, err})
}

// verified reports whether a key was compared, whatever came of it.
func (r *run) verified(key Key) bool {
	with := func(whole Range) bool { return whole.Contains(key) }
	return slices.ContainsFunc(r.covered, with) && !slices.ContainsFunc(r.failed, func(f failure) bool { return f.Contains(key) })
}

func (t *tables) keyOf(ctx context.Context, id string) (*Key, error) {
	log := t.check.Log
	s := &statement{dialect: t.log.Dialect}
	k := t.log.Dialect.keys(&log.Table, t.kinds)
	s.add("SELECT %s FROM %s", k.selected(), t.log.Dialect.table(&log.Table))
	k.where(s, Range{})
	filter(s, &log.Table)
	s.add(" AND %s = %s", t.log.Dialect.quote(log.EventID), s.bind(id))
	key, err := t.oneKey(ctx, t.log, s)
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	return key, nil
}
