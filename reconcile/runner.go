package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/internal/fault"
)

// RunnerConfig says how a runner works. Nil means all defaults.
type RunnerConfig struct {
	// Owner names this process for people. Default: host:pid.
	Owner string
	// LeaseTTL is how long a run that is gone keeps others away. Default 30 s.
	LeaseTTL time.Duration
	// StretchKeys is about how many keys a weekly run records at once. Default
	// 200,000.
	StretchKeys int64
	// Slice is how long a weekly run goes on before it makes room for others; the
	// next one goes on where it stopped. Default: to the end.
	Slice time.Duration
}

// Runner runs a check and keeps what it found. It may be used by one goroutine
// at a time; several processes may have one for the same check.
type Runner struct {
	engine  *Engine
	results Results
	config  RunnerConfig
}

// NewRunner makes a runner.
func NewRunner(engine *Engine, results Results, config *RunnerConfig) *Runner {
	r := &Runner{engine: engine, results: results}
	if config != nil {
		r.config = *config
	}
	if r.config.Owner == "" {
		host, _ := os.Hostname()
		r.config.Owner = fmt.Sprintf("%s:%d", host, os.Getpid())
	}
	if r.config.LeaseTTL <= 0 {
		r.config.LeaseTTL = 30 * time.Second
	}
	if r.config.StretchKeys <= 0 {
		r.config.StretchKeys = 200_000
	}
	return r
}

// Run compares the keys of a scope, and records the outcome. A weekly run that
// has used up its slice returns the report so far, its Coverage not complete.
// While another run of the check is at work the error is [ErrRunning].
func (r *Runner) Run(ctx context.Context, scope Scope) (*Report, error) {
	check := r.engine.check
	id := waybill.NewID()
	if scope.Mode == "" {
		scope.Mode = ModeFull
	}
	lease, err := r.results.Acquire(ctx, check.Name, r.config.Owner+" "+id, r.config.LeaseTTL)
	if err != nil {
		return nil, err
	}
	ctx, stop := r.renew(ctx, lease)
	defer stop()
	report, err := r.leased(ctx, lease, id, scope)
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, ErrLeaseLost) {
		return nil, cause
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), afterwards)
	defer cancel()
	return report, errors.Join(err, r.results.Release(after, lease))
}

// afterwards is how long a run that was told to stop may take to say so.
const afterwards = 5 * time.Second

// renew keeps a lease alive. The context that it returns ends with the lease.
func (r *Runner) renew(ctx context.Context, lease Lease) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(lease.TTL / 3)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				// A database that does not answer for a moment is no loss: what is
				// recorded proves that the lease lives.
				if err := r.results.Renew(ctx, lease); errors.Is(err, ErrLeaseLost) {
					cancel(err)
					return
				}
			}
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-done
	}
}

// pass is one run under its lease.
type pass struct {
	*Runner
	lease  Lease
	record RunRecord
	past   *Past
	offset time.Duration // of the results' database before this clock
	seq    int
	found  map[string]bool
}

func (r *Runner) leased(ctx context.Context, lease Lease, id string, scope Scope) (*Report, error) {
	check := r.engine.check
	p := &pass{Runner: r, lease: lease, found: make(map[string]bool)}
	p.record = RunRecord{ID: id, Check: check.Name, Mode: scope.Mode, State: RunRunning, Owner: r.config.Owner, Definition: check.Definition()}
	before := r.engine.clock.Now() // and not after, so that coverage rather ends too early than too late
	past, err := r.results.Begin(ctx, lease, &p.record)
	if err != nil {
		return nil, err
	}
	p.past = past
	p.offset = p.past.Now.Sub(before)
	p.record.StartedAt = p.past.Now
	fault.Point("reconcile.begun")
	var report *Report
	if scope.Mode == ModeWeekly {
		report, err = p.weekly(ctx)
	} else {
		report, err = p.whole(ctx, scope)
	}
	if err != nil {
		p.fail(ctx, err)
		return nil, err
	}
	report.RunID, report.Mode = p.record.ID, p.record.Mode
	report.Ignored = p.ignored(report)
	return report, nil
}

// whole compares and records all of a scope at once. If it is interrupted,
// nothing but its start is on record.
func (p *pass) whole(ctx context.Context, scope Scope) (*Report, error) {
	run, err := p.newRun(ctx)
	if err != nil {
		return nil, err
	}
	began := p.engine.clock.Now().Add(run.ahead)
	if scope.Mode == ModeWindow {
		scope.Since = p.since(scope.Since, began)
		p.record.Since = &scope.Since
	}
	if err := run.compare(ctx, scope); err != nil {
		return nil, err
	}
	report := run.finish()
	outcome := p.outcome(run, report)
	outcome.Coverage = p.advance(scope, began, report)
	at := p.engine.clock.Now().Add(p.offset)
	outcome.Run.State, outcome.Run.FinishedAt = RunDone, &at
	return report, p.commit(ctx, outcome, report)
}

// since returns where a window begins: early enough to join the one before.
func (p *pass) since(asked, began time.Time) time.Time {
	since := asked
	if since.IsZero() {
		since = began.Add(-p.engine.check.Window)
		if before := p.coverage(ModeWindow); before != nil && before.Until.Add(-overlap).Before(since) {
			since = before.Until.Add(-overlap)
		}
	}
	return since
}

// overlap is how long before its commit a transaction may have noted the time.
const overlap = time.Hour

// advance returns the coverage after a run. What could not be read is not
// covered, and so nothing is.
func (p *pass) advance(scope Scope, began time.Time, report *Report) []CoverageRecord {
	if !report.Coverage.Complete {
		return nil
	}
	full := CoverageRecord{Kind: ModeFull, Definition: p.record.Definition, Until: began}
	window := CoverageRecord{Kind: ModeWindow, Definition: p.record.Definition, Until: began}
	before := p.coverage(ModeWindow)
	switch scope.Mode {
	case ModeFull, ModeWeekly:
		if before != nil && before.Until.After(began) {
			return []CoverageRecord{full} // runs in between have seen later changes
		}
		return []CoverageRecord{full, window}
	case ModeWindow:
		window.From = &scope.Since
		if before != nil {
			if before.Until.After(began) {
				return nil
			}
			if !scope.Since.After(before.Until) && (before.From == nil || before.From.Before(scope.Since)) {
				window.From = before.From
			}
		}
		return []CoverageRecord{window}
	}
	return nil
}

// coverage returns what was covered under this definition before.
func (p *pass) coverage(kind Mode) *CoverageRecord {
	for i := range p.past.Coverage {
		if c := &p.past.Coverage[i]; c.Kind == kind && c.Definition == p.record.Definition {
			return c
		}
	}
	return nil
}

// newRun makes a run that knows what earlier ones left.
func (p *pass) newRun(ctx context.Context) (*run, error) {
	run, err := p.engine.newRun(ctx)
	if err != nil {
		return nil, err
	}
	kinds := p.engine.check.kinds()
	run.memory = memory{wants: make(map[string]bool), behind: make(map[string]behind), seen: make(map[string]behind), late: make(map[string]bool)}
	remember := func(stored string) (Key, bool) {
		key, err := keyFromStored(kinds, stored)
		if err != nil { // of an earlier definition
			return key, false
		}
		run.memory.again, run.memory.wants[key.order] = append(run.memory.again, key), true
		return key, true
	}
	for i := range p.past.Open {
		remember(p.past.Open[i].StoredKey)
	}
	for _, b := range p.past.Behind {
		if key, ok := remember(b.StoredKey); ok {
			run.memory.behind[key.order] = behind{key: key, since: b.Since, version: b.ReadVersion, sent: b.SentVersion}
		}
	}
	return run, nil
}

// outcome says what a run, or a stretch, adds to the results.
func (p *pass) outcome(run *run, report *Report) *Outcome {
	at := p.engine.clock.Now().Add(p.offset)
	o := &Outcome{Run: p.record}
	listed := make(map[string]map[Side]Class) // by stored key
	for i := range report.Findings {
		f := &report.Findings[i]
		if f.order == "" {
			continue // a range
		}
		stored := storedOrder(f.order)
		if listed[stored] == nil {
			listed[stored] = make(map[Side]Class)
		}
		listed[stored][f.Side] = f.Class
		if !f.Class.Difference() || f.Unconfirmed {
			continue
		}
		sample, err := json.Marshal(f)
		if err != nil { // texts and numbers
			sample = []byte("{}")
		}
		id := findingID(p.record.Check, f.Class, stored)
		p.found[id] = true
		o.Found = append(o.Found, FindingRecord{
			ID: id, Check: p.record.Check, Class: f.Class, Side: f.Side, Key: f.Key, StoredKey: stored, State: FindingOpen,
			Detail: f.Detail, Causes: f.Causes, Missing: f.Missing, FirstSeen: at, LastSeen: at, Sample: sample,
		})
	}
	o.Resolved = p.resolved(run, report, listed)
	p.behind(run, o)
	o.Ranges = p.ranges(run, report)
	return o
}

// resolved returns the findings whose keys were compared now, with another
// outcome. One that is in flight, or cannot be proved, is not resolved by that;
// nor is any while the report could not list all.
func (p *pass) resolved(run *run, report *Report, listed map[string]map[Side]Class) (ids []string) {
	if report.LeftOut > 0 {
		return nil
	}
	kinds := p.engine.check.kinds()
	for i := range p.past.Open {
		f := &p.past.Open[i]
		key, err := keyFromStored(kinds, f.StoredKey)
		if err != nil || p.found[f.ID] || !run.verified(key) {
			continue
		}
		switch listed[f.StoredKey][f.Side] {
		case InFlight, Unverified, f.Class:
			continue
		}
		ids = append(ids, f.ID)
	}
	return ids
}

func (p *pass) behind(run *run, o *Outcome) {
	for _, b := range run.memory.seen {
		o.Behind = append(o.Behind, BehindRecord{StoredKey: b.key.stored(), Since: b.since, ReadVersion: b.version, SentVersion: b.sent})
	}
	for order, b := range run.memory.behind {
		if _, still := run.memory.seen[order]; !still && run.verified(b.key) && !run.memory.late[order] {
			o.Caught = append(o.Caught, b.key.stored())
		}
	}
}

// ranges returns the ranges to record: those compared, and those that were not.
// Keys that were compared one by one are recorded as one range without ends.
func (p *pass) ranges(run *run, report *Report) (ranges []RangeRecord) {
	next := func(r RangeRecord) {
		r.Seq = p.seq
		p.seq++
		ranges = append(ranges, r)
	}
	single := false
	for _, r := range run.covered {
		if r.among != nil {
			single = true
			continue
		}
		next(RangeRecord{From: storedEnd(r.From), To: storedEnd(r.To), Verified: true})
	}
	if single {
		next(RangeRecord{Verified: true})
	}
	if len(ranges) > 0 {
		ranges[0].Keys = report.Keys
	}
	for _, f := range run.failed {
		from, to := f.From, f.To
		switch n := len(f.among); {
		case f.only != nil:
			from, to = f.only, f.only
		case n > 0:
			from, to = &f.among[0], &f.among[n-1]
		}
		next(RangeRecord{From: storedEnd(from), To: storedEnd(to), Error: f.err.Error()})
	}
	return ranges
}

func storedEnd(key *Key) string {
	if key == nil {
		return ""
	}
	return key.stored()
}

// commit writes an outcome with the report that goes with it.
func (p *pass) commit(ctx context.Context, o *Outcome, report *Report) error {
	o.Run.Keys, o.Run.Differences, o.Run.InFlight, o.Run.Unverified = report.Keys, report.Differences, report.InFlight, report.Unverified
	o.Run.Healed, o.Run.Complete, o.Run.Counts = report.Healed, report.Coverage.Complete, report.Counts
	shown := *report
	shown.RunID, shown.Mode = o.Run.ID, o.Run.Mode
	shown.Findings = shown.Findings[:min(len(shown.Findings), keptSamples)]
	text, err := json.Marshal(&shown)
	if err != nil {
		return err
	}
	o.Report = text
	if err := p.results.Record(ctx, p.lease, o); err != nil {
		return err
	}
	p.record = o.Run
	return nil
}

// keptSamples is how many findings the report of a run keeps on record: each
// has a record of its own.
const keptSamples = 100

// fail records why there is no report. A weekly run stays to be continued.
func (p *pass) fail(ctx context.Context, why error) {
	if p.record.Mode == ModeWeekly {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), afterwards)
	defer cancel()
	at := p.engine.clock.Now().Add(p.offset)
	o := &Outcome{Run: p.record}
	o.Run.State, o.Run.FinishedAt, o.Run.Error = RunFailed, &at, why.Error()
	_ = p.results.Record(ctx, p.lease, o) // the error that is returned says more
}

// ignored counts the differences that somebody has decided about.
func (p *pass) ignored(report *Report) (n int) {
	now := p.engine.clock.Now().Add(p.offset)
	for i := range p.past.Open {
		f := &p.past.Open[i]
		expired := f.State == FindingIgnored && f.Until != nil && !f.Until.After(now)
		if f.State != FindingOpen && !expired && p.found[f.ID] {
			n++
		}
	}
	return n
}
