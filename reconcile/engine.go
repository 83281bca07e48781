package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"slices"
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
// be read is UNVERIFIED in the report and no error; an error is a database
// that does not answer at the start, or the end of the context.
func (e *Engine) Run(ctx context.Context) (*Report, error) {
	return e.Compare(ctx, Scope{})
}

// run is one pass over the keys.
type run struct {
	*Engine
	report     *Report
	rules      Rules
	candidates []candidate
	notes      map[note]int
	ahead      time.Duration // of the log's database before this clock
	covered    []Range       // what was compared, adjacent ranges as one
	most       int64         // keys after which a sweep stops; 0 for never
	resumed    time.Time     // when it began to work, or went on
	failed     []failure     // what could not be
	memory     memory        // what earlier runs knew
}

// newRun asks the log's database for the time: ages of events are told by its
// clock, as far as it wrote them.
func (e *Engine) newRun(ctx context.Context) (*run, error) {
	r := &run{Engine: e, report: e.newReport(), rules: e.check.rules(), notes: make(map[note]int)}
	at, err := e.arms.now(ctx)
	if err == nil && e.bases != nil {
		err = e.bases.learn(ctx)
	}
	if err != nil {
		return nil, &waybill.Error{Op: "reconcile", Key: e.check.Name, Err: err}
	}
	r.resumed = e.clock.Now()
	if !at.IsZero() {
		r.ahead = at.Sub(r.resumed)
	}
	return r, nil
}

// candidate is a key that seems to differ.
type candidate struct {
	key       Key
	facts     Facts
	write     *Verdict
	read      *Verdict
	firstSeen time.Time
	// unconfirmed says that it was not looked at again.
	unconfirmed bool
}

// now sets the time by which is judged.
func (r *run) now() {
	r.rules.Now = r.clock.Now().Add(r.ahead)
	r.rules.LogSince = time.Time{}
	if r.check.LogRetention > 0 {
		r.rules.LogSince = r.rules.Now.Add(-r.check.LogRetention)
	}
}

// sweep compares the keys from one on, nil for the lowest, and returns where it
// stopped, nil for behind the last.
func (r *run) sweep(ctx context.Context, from *Key) (*Key, error) {
	for {
		next, done, err := r.glide(ctx, from)
		if err != nil || done {
			return next, err
		}
		from = next
		to, err := r.boundary(ctx, from)
		whole := Range{From: from, To: to}
		if err == nil {
			err = r.chunk(ctx, whole)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		r.account(whole, err)
		if to == nil || r.most > 0 && r.report.Keys >= r.most {
			return to, nil
		}
		from = to
		if err := r.breathe(ctx); err != nil {
			return nil, err
		}
	}
}

// glide goes over the keys as far as pages can be read, and judges by itself
// only what is not proved in them. It returns where it stopped, and whether the
// sweep is done.
func (r *run) glide(ctx context.Context, from *Key) (next *Key, done bool, err error) {
	p, able := r.arms.(prover)
	if !able {
		return from, false, nil
	}
	if from == nil {
		if r.report.Unindexed, err = p.unordered(ctx); err != nil {
			return nil, false, &waybill.Error{Op: "explain", Key: r.check.Name, Err: err}
		}
		if len(r.report.Unindexed) > 0 {
			return nil, true, r.scatter(ctx, p)
		}
	}
	atOnce := pagesInWork
	if r.check.Duty < 1 || r.pause > 0 {
		atOnce = 1
	}
	for page := range p.pages(ctx, from, r.check.ChunkRows, atOnce) {
		if page.err != nil {
			break
		}
		if err := r.page(ctx, &page); err != nil {
			return nil, false, err
		}
		from = page.whole.To
		if from == nil || r.most > 0 && r.report.Keys >= r.most {
			return from, true, nil
		}
		if err := r.breathe(ctx); err != nil {
			return nil, false, err
		}
	}
	return from, false, ctx.Err()
}

// breathe lets the databases work for others, in proportion to what they had
// to do since the last time.
func (r *run) breathe(ctx context.Context) error {
	wait := r.pause
	if duty := r.check.Duty; duty < 1 {
		wait += time.Duration(float64(r.clock.Now().Sub(r.resumed)) * (1 - duty) / duty)
	}
	if wait <= 0 {
		return nil
	}
	err := r.clock.Wait(ctx, wait)
	r.resumed = r.clock.Now()
	return err
}

// scatter compares all keys in no order. They are all compared, or none counts
// as such.
func (r *run) scatter(ctx context.Context, p prover) error {
	var failed error
	for part := range p.parts(ctx) {
		err := part.err
		if err == nil {
			err = r.settle(ctx, &part)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		failed = cmp.Or(failed, err)
		if err := r.breathe(ctx); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.account(Range{}, failed)
	return nil
}

// page takes over a page.
func (r *run) page(ctx context.Context, p *page) error {
	err := r.settle(ctx, p)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.account(p.whole, err)
	return nil
}

// settle takes over what was proved, and reads the rest key by key.
func (r *run) settle(ctx context.Context, p *page) (err error) {
	for some := range slices.Chunk(p.doubtful, amongKeys) {
		if err = r.chunk(ctx, Range{among: some}); err != nil {
			break
		}
	}
	r.report.Keys += p.keys
	r.report.Rows.Write += p.rows.Write
	r.report.Rows.Log += p.rows.Log
	r.report.Rows.Read += p.rows.Read
	for n, count := range p.notes {
		r.notes[n] += count
	}
	return err
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
	r.now()
	at := r.clock.Now()
	for i := range found {
		f := &found[i]
		write, read := Judge(f, &r.rules)
		r.memory.note(f, read, r.rules.Now)
		r.observe(f)
		if write == nil && read == nil {
			continue
		}
		c := candidate{key: f.Key, facts: f.trimmed(), write: write, read: read, firstSeen: at}
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
	if r.rules.HasRead && r.rules.HasLog {
		if err := r.lookAgain(ctx, whole, found); err != nil {
			return nil, size, err
		}
	}
	found, err = r.unearth(ctx, found)
	return found, size, err
}

// unearth adds what outlives the log to the keys that seem to differ without
// it: heads, then archived events. The archive is read last: what is archived
// meanwhile is in both.
func (r *run) unearth(ctx context.Context, found []Facts) ([]Facts, error) {
	if r.bases == nil || r.check.Log == nil || r.check.Log.Outbox == nil {
		return found, nil
	}
	if r.check.Log.Outbox.Head {
		for some := range slices.Chunk(r.doubtful(found), amongKeys) {
			if err := r.behead(ctx, found, some); err != nil {
				return nil, err
			}
		}
	}
	if r.check.Log.Outbox.Archive {
		for some := range slices.Chunk(r.doubtful(found), amongKeys) {
			archived, err := r.bases.archive().events(ctx, Range{among: some})
			if err != nil {
				return nil, fmt.Errorf("archive: %w", err)
			}
			found = withArchived(found, archived)
		}
	}
	return found, nil
}

// doubtful returns the keys that seem to differ.
func (r *run) doubtful(found []Facts) (keys []Key) {
	r.now()
	for i := range found {
		for _, v := range judged(&found[i], &r.rules) {
			if v != nil && v.Class != InFlight {
				keys = append(keys, found[i].Key)
				break
			}
		}
	}
	return keys
}

// judged returns the verdicts of both sides.
func judged(f *Facts, r *Rules) [2]*Verdict {
	write, read := Judge(f, r)
	return [2]*Verdict{write, read}
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
		ids = append(ids, f.unapplied()...)
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
		r.memory.recall(f)
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

// unapplied returns the ids of the first sent events that the read model does
// not show.
func (f *Facts) unapplied() (ids []string) {
	const enough = 100 // the first that is not settled decides
	for i := range f.Log {
		e := &f.Log[i]
		if e.State == StateSent && (f.Read == nil || e.Version > f.Read.Version) && len(ids) < enough {
			ids = append(ids, e.ID)
		}
	}
	return ids
}

// trimmed returns the facts with no more of the log than a report shows.
func (f *Facts) trimmed() Facts {
	t := *f
	t.Log, t.Again = nil, nil
	top, sent := last(f.Log, every), last(f.Log, isSent)
	if sent != nil && sent != top {
		t.Log = append(t.Log, *sent)
	}
	if top != nil {
		t.Log = append(t.Log, *top)
	}
	return t
}
