package inbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// Gate says in which versions of an aggregate a consumer wants its events. An
// event without a version passes every gate.
type Gate string

// The gates.
const (
	// GateNext lets through the version after the last one, and the same version
	// under another id. A lower version is settled as STALE without being handled;
	// a higher one is held WAITING until those before it have come.
	GateNext Gate = "next"
	// GateLatest lets through every version that is not lower than the last one,
	// and settles lower ones as STALE, also those that are held. It is for events
	// that carry the whole state.
	GateLatest Gate = "latest"
	// GateNone lets through everything.
	GateNone Gate = "none"
)

// Baseline says which version of an aggregate a group expects first.
type Baseline string

// The baselines of a group that has settled nothing of an aggregate.
const (
	// BaselineOne expects version 1.
	BaselineOne Baseline = "one"
	// BaselineFirstSeen takes whatever version comes first for the first: for a
	// group that begins in the middle of a topic.
	BaselineFirstSeen Baseline = "first seen"
)

// verdict is what the gate says of an event.
type verdict uint8

const (
	passes verdict = iota
	isStale
	mustAwait // a lower version has not come
)

// gate follows, within one transaction, how far each aggregate is, and tells
// the store at the end. What it read without a lock is compared then: see
// [store.ProgressTx].
type gate struct {
	config *Config
	rows   map[store.Aggregate]*gateRow
	undo   []gateStep
}

type gateRow struct {
	read    int64 // as the database had it
	at      int64 // with what was settled since
	eventID string
	moved   bool // something was settled by what was read
	locked  bool
}

// gateStep takes back one step.
type gateStep struct {
	row    *gateRow
	before gateRow
}

func newGate(c *Config) *gate { return &gate{config: c, rows: make(map[store.Aggregate]*gateRow)} }

// counted returns the aggregate whose versions count, if they do.
func (g *gate) counted(e *waybill.Event) (store.Aggregate, bool) {
	if g.config.Gate == GateNone || e.AggregateVersion <= 0 || e.AggregateID == "" {
		return store.Aggregate{}, false
	}
	return store.AggregateOf(e), true
}

type readProgress func(ctx context.Context, group string, aggregates []store.Aggregate) ([]store.Progress, error)

// load reads the progress of the events' aggregates, in one statement.
func (g *gate) load(ctx context.Context, read readProgress, events func(yield func(*waybill.Event) bool)) error {
	var missing []store.Aggregate
	for e := range events {
		a, ok := g.counted(e)
		if !ok || g.rows[a] != nil {
			continue
		}
		g.rows[a] = &gateRow{}
		missing = append(missing, a)
	}
	if len(missing) == 0 {
		return nil
	}
	found, err := read(ctx, g.config.Group, missing)
	if err != nil {
		return err
	}
	for _, p := range found {
		if err := g.set(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// set takes over what the database says.
func (g *gate) set(ctx context.Context, p store.Progress) error {
	row := g.rows[p.Aggregate]
	row.read, row.at, row.eventID = p.Version, p.Version, p.EventID
	if p.Version > 0 || g.config.Snapshot == nil {
		return nil
	}
	version, err := g.config.Snapshot(ctx, p.Aggregate)
	if err != nil {
		return fmt.Errorf("snapshot of %s %s: %w", p.Aggregate.Type, p.Aggregate.ID, err)
	}
	row.at = max(version, 0)
	return nil
}

// ask decides about an event whose aggregate is loaded.
func (g *gate) ask(e *waybill.Event) verdict {
	a, ok := g.counted(e)
	if !ok {
		return passes
	}
	row, version := g.rows[a], e.AggregateVersion
	switch {
	case version < row.at:
		return isStale
	case g.config.Gate == GateLatest, version <= row.at+1:
		return passes
	case row.at == 0 && g.config.Baseline == BaselineFirstSeen:
		return passes
	}
	return mustAwait
}

// pass notes that an event is settled, if that is a step at all.
func (g *gate) pass(e *waybill.Event) {
	a, ok := g.counted(e)
	if !ok {
		return
	}
	row := g.rows[a]
	if e.AggregateVersion < row.at {
		return
	}
	g.undo = append(g.undo, gateStep{row, *row})
	row.at, row.eventID, row.moved = e.AggregateVersion, e.ID, true
}

// mark and back undo steps, as the transaction's savepoints do.
func (g *gate) mark() int { return len(g.undo) }

func (g *gate) back(mark int) {
	for i := len(g.undo) - 1; i >= mark; i-- {
		step := g.undo[i]
		locked := step.row.locked
		*step.row = step.before
		step.row.locked = locked
	}
	g.undo = g.undo[:mark]
}

// lock makes sure that an event must wait indeed: from here to the end of the
// transaction nobody else can pass the version before it, and whoever does so
// later will find it held and wake it.
func (g *gate) lock(ctx context.Context, tx store.ProgressTx, e *waybill.Event) (verdict, error) {
	a, ok := g.counted(e)
	if !ok {
		return passes, nil
	}
	row := g.rows[a]
	if row.locked {
		return g.ask(e), nil
	}
	p, err := tx.LockProgress(ctx, g.config.Group, a)
	if err != nil {
		return mustAwait, err
	}
	row.locked = true
	if p.Version != row.read {
		if row.moved {
			return mustAwait, store.ErrMoved
		}
		if err := g.set(ctx, p); err != nil {
			return mustAwait, err
		}
	}
	return g.ask(e), nil
}

// write tells the store, and returns how many held events were woken by it.
func (g *gate) write(ctx context.Context, tx store.ProgressTx) (woken int, err error) {
	var advances []store.Advance
	for a, row := range g.rows {
		if row.moved {
			advances = append(advances, store.Advance{Aggregate: a, From: row.read, To: row.at, EventID: row.eventID})
		}
	}
	if len(advances) == 0 {
		return 0, nil
	}
	return tx.AdvanceProgress(ctx, g.config.Group, advances)
}

// isMoved reports whether a transaction only came too late, and will find out
// what is true now.
func isMoved(err error) bool { return errors.Is(err, store.ErrMoved) }
