package reconcile

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// WatchEvents are called as a watcher works; nil ones are left out.
type WatchEvents struct {
	Ran    func(*Report)              // a run ended
	Failed func(what string, _ error) // a run, an alert or the results failed; it is tried again
}

// Watcher runs a check when it is due, and tells of what it found. Several
// processes may watch one check: one of them runs it at a time.
type Watcher struct {
	runner  *Runner
	records Records
	alerter *Alerter
	prune   func(context.Context) error
	events  WatchEvents
	pruned  time.Time
	last    Mode
}

// NewWatcher makes a watcher. The runner's results and the ledger are the same
// one; alerter may be nil.
func NewWatcher(runner *Runner, ledger *Ledger, alerter *Alerter, events WatchEvents) *Watcher {
	if events.Ran == nil {
		events.Ran = func(*Report) {}
	}
	if events.Failed == nil {
		events.Failed = func(string, error) {}
	}
	if runner.config.Slice <= 0 {
		runner.config.Slice = runner.engine.check.Every / 2
	}
	return &Watcher{runner: runner, records: ledger, alerter: alerter, prune: ledger.Prune, events: events}
}

// Run watches until the context ends, which is no error.
func (w *Watcher) Run(ctx context.Context) error {
	clock := w.runner.engine.clock
	for ctx.Err() == nil {
		worked := w.look(ctx)
		if worked {
			continue
		}
		// Processes that were started together should not look together.
		pause := min(max(w.runner.engine.check.Every/10, 200*time.Millisecond), 30*time.Second)
		if err := clock.Wait(ctx, pause/2+rand.N(pause/2)); err != nil {
			break
		}
	}
	return nil
}

// look does what is due. It reports whether more may be due at once.
func (w *Watcher) look(ctx context.Context) (worked bool) {
	check := w.runner.engine.check
	standing, err := w.records.Standing(ctx, check.Name)
	if err != nil {
		w.failed(ctx, "results", err)
		return false
	}
	if due := check.Due(standing); len(due) > 0 && standing.Running == "" {
		// Runs of recent changes that take longer than their interval leave room for
		// the sweep all the same.
		mode := due[0]
		if len(due) > 1 && mode == w.last {
			mode = due[1]
		}
		w.last = mode
		report, err := w.runner.Run(ctx, Scope{Mode: mode})
		switch {
		case errors.Is(err, ErrRunning): // the other one was faster
		case err != nil:
			w.failed(ctx, "run", err)
		default:
			w.events.Ran(report)
			worked = true
		}
	}
	if w.alerter != nil {
		if err := w.alerter.Tell(ctx); err != nil {
			w.failed(ctx, "alerts", err)
		}
	}
	const rest = time.Hour
	if now := w.runner.engine.clock.Now(); now.Sub(w.pruned) >= rest {
		if err := w.prune(ctx); err != nil {
			w.failed(ctx, "prune", err)
		}
		w.pruned = now
	}
	return worked
}

func (w *Watcher) failed(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		w.events.Failed(what, err)
	}
}
