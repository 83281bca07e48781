package reconcile

import (
	"context"
	"fmt"
	"time"

	"github.com/waybillhq/waybill"
)

// Config says how an engine runs. Nil means all defaults.
type Config struct {
	Clock Clock // default: the machine's
	// Pause is how long to wait after each chunk, so that the databases have time
	// for others. Default 0.
	Pause time.Duration
}

// Engine carries out one check. It may be used by one goroutine at a time.
type Engine struct {
	check *Check
	arms  arms
	clock Clock
	pause time.Duration
	bases *tables
}

// New makes an engine, or says what is wrong with the check.
func New(check Check, databases Databases, config *Config) (*Engine, error) {
	c, err := check.withDefaults()
	if err != nil {
		return nil, err
	}
	t, err := newTables(c, databases)
	if err != nil {
		return nil, err
	}
	e := newEngine(c, t, config)
	e.bases = t
	return e, nil
}

func newEngine(c *Check, a arms, config *Config) *Engine {
	if config == nil {
		config = &Config{}
	}
	e := &Engine{check: c, arms: a, clock: config.Clock, pause: config.Pause}
	if e.clock == nil {
		e.clock = wallClock{}
	}
	return e
}

// Check returns the check, complete with its defaults.
func (e *Engine) Check() *Check { return e.check }

// Run compares all keys, from the lowest to the highest. A range that cannot
// be read is UNVERIFIED in the report and no error; the error is the end of
// the context.
func (e *Engine) Run(ctx context.Context) (*Report, error) {
	run := &run{Engine: e, report: e.newReport(), rules: e.check.rules(), notes: make(map[note]int)}
	if err := run.sweep(ctx); err != nil {
		return nil, err
	}
	if err := run.confirm(ctx); err != nil {
		return nil, err
	}
	return run.finish(), nil
}

// run is one pass over the keys.
type run struct {
	*Engine
	report     *Report
	rules      Rules
	candidates []candidate
	notes      map[note]int
}

// candidate is a key that seems to differ.
type candidate struct {
	key       Key
	facts     Facts
	write     *Verdict
	read      *Verdict
	firstSeen time.Time
}

func (r *run) now() time.Time {
	r.rules.Now = r.clock.Now()
	r.rules.LogSince = time.Time{}
	if r.check.LogRetention > 0 {
		r.rules.LogSince = r.rules.Now.Add(-r.check.LogRetention)
	}
	return r.rules.Now
}

func (r *run) sweep(ctx context.Context) error {
	var from *Key
	for {
		to, err := r.boundary(ctx, from)
		whole := Range{From: from, To: to}
		if err == nil {
			err = r.chunk(ctx, whole)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.report.Coverage.Ranges++
		if err != nil {
			r.report.fail(whole, err)
		}
		if to == nil {
			return nil
		}
		from = to
		if r.pause > 0 {
			if err := r.clock.Wait(ctx, r.pause); err != nil {
				return err
			}
		}
	}
}

// boundary returns where the chunk from a key on ends. A database that sorts
// otherwise than the keys do must not lead the run in circles.
func (r *run) boundary(ctx context.Context, from *Key) (*Key, error) {
	to, err := r.arms.boundary(ctx, from, r.check.ChunkRows)
	if err == nil && from != nil && to != nil && to.Compare(*from) <= 0 {
		return nil, disorder(fmt.Errorf("key %s comes after %s", *to, *from))
	}
	return to, err
}

func disorder(err error) error {
	return &waybill.Error{Op: "read keys", Err: err, Hint: "the database does not sort them as the check's key type does: is the type right?"}
}

// chunk compares the keys of one range, and adds to the report only if all of
// it was read.
func (r *run) chunk(ctx context.Context, whole Range) error {
	found, size, err := r.gather(ctx, whole)
	if err != nil {
		return err
	}
	at := r.now()
	for i := range found {
		f := &found[i]
		write, read := Judge(f, &r.rules)
		r.observe(f)
		if write == nil && read == nil {
			continue
		}
		c := candidate{key: f.Key, facts: *f, write: write, read: read, firstSeen: at}
		if !c.settled() {
			r.candidates = append(r.candidates, c)
			r.spill()
			continue
		}
		r.report.add(&c, r.check)
	}
	r.report.Keys += int64(len(found))
	r.report.Rows.Write += size.Write
	r.report.Rows.Log += size.Log
	r.report.Rows.Read += size.Read
	return nil
}

// gather reads a range in the order that makes the facts hold together: W and
// L in one snapshot, then R, then L again and the consumer where they matter.
func (r *run) gather(ctx context.Context, whole Range) ([]Facts, RowCounts, error) {
	var size RowCounts
	write, log, err := r.arms.snapshot(ctx, whole)
	if err != nil {
		return nil, size, err
	}
	read, err := r.arms.readModel(ctx, whole)
	if err != nil {
		return nil, size, err
	}
	size.Write, size.Read = int64(len(write)), int64(len(read))
	var found []Facts
	for joined, err := range Merge(each(write), each(log), each(read)) {
		if err != nil {
			return nil, size, err
		}
		if !whole.Contains(joined.Key) {
			return nil, size, disorder(fmt.Errorf("key %s is among those of %s", joined.Key, whole))
		}
		size.Log += int64(len(joined.Log))
		found = append(found, Facts{Key: joined.Key, Write: joined.Write, Log: joined.Log, Read: joined.Read})
	}
	if !r.rules.HasRead || !r.rules.HasLog {
		return found, size, nil
	}
	return found, size, r.lookAgain(ctx, whole, found)
}

// lookAgain adds to the keys whose read side has a verdict what may take it
// back: events that were sent meanwhile, and the consumer's word.
func (r *run) lookAgain(ctx context.Context, whole Range, found []Facts) error {
	r.now()
	var doubtful []*Facts
	var ids []string
	for i := range found {
		f := &found[i]
		if _, read := Judge(f, &r.rules); read == nil {
			continue
		}
		doubtful = append(doubtful, f)
		for j := range f.Log {
			if f.Log[j].State == StateSent && (f.Read == nil || f.Log[j].Version > f.Read.Version) {
				ids = append(ids, f.Log[j].ID)
			}
		}
	}
	if len(doubtful) == 0 {
		return nil
	}
	const single = 20 // up to so many keys are asked for one by one
	if len(doubtful) > single {
		events, err := r.arms.events(ctx, whole)
		if err != nil {
			return err
		}
		again := make(map[string][]Event, len(events))
		for _, item := range events {
			again[item.Key.order] = item.Item
		}
		for _, f := range doubtful {
			f.Again = append([]Event{}, again[f.Key.order]...)
		}
	} else {
		for _, f := range doubtful {
			events, err := r.arms.events(ctx, Range{only: &f.Key})
			if err != nil {
				return err
			}
			f.Again = []Event{}
			for _, item := range events {
				f.Again = item.Item
			}
		}
	}
	known, err := r.arms.consumed(ctx, ids)
	if err != nil {
		return err
	}
	for _, f := range doubtful {
		for i := range f.Log {
			if fate, ok := known[f.Log[i].ID]; ok {
				if f.Consumer == nil {
					f.Consumer = make(map[string]Consumed)
				}
				f.Consumer[f.Log[i].ID] = fate
			}
		}
	}
	return nil
}
