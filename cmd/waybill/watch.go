package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/waybillhq/waybill/cmd/waybill/internal/checks"
	"github.com/waybillhq/waybill/cmd/waybill/internal/config"
	"github.com/waybillhq/waybill/cmd/waybill/internal/logging"
	"github.com/waybillhq/waybill/ops"
	"github.com/waybillhq/waybill/reconcile"
)

// watch runs checks when they are due, beside a relay.
type watch struct {
	file   *checks.File
	checks []*reconcile.Check // complete, by name
	logger *slog.Logger
	redact func(string) string

	mu     sync.Mutex
	ledger *reconcile.Ledger
	err    error // why there is none yet
}

// newWatch reads the checks that the configuration names; nil where it names
// none. From here on the log does not show their secrets.
func (a *app) newWatch(c *config.Config) (*watch, error) {
	if c.Reconcile.Checks == "" {
		return nil, nil
	}
	file, err := checks.Load(c.Reconcile.Checks)
	if err != nil {
		return nil, usageError{err}
	}
	if file.Results == nil {
		return nil, usageError{fmt.Errorf("%s: results is missing: runs that nobody sees must be kept somewhere", c.Reconcile.Checks)}
	}
	w := &watch{file: file, err: errors.New("the results have not been opened yet")}
	names, err := file.Names(nil)
	if err != nil {
		return nil, usageError{err}
	}
	for _, name := range names {
		check, err := file.Checks[name].Complete()
		if err != nil {
			return nil, usageError{err}
		}
		w.checks = append(w.checks, check)
	}
	a.secrets = append(slices.Clone(a.secrets), file.Secrets()...)
	secrets := a.secrets
	w.redact = func(text string) string { return config.Redact(text, secrets) }
	if w.logger, err = logging.New(a.stderr, c.Log.Level, c.Log.Format, a.secrets); err != nil {
		return nil, usageError{err}
	}
	return w, nil
}

// Standing implements [promwaybill.ReconcileResults].
func (w *watch) Standing(ctx context.Context, check string) (*reconcile.Standing, error) {
	w.mu.Lock()
	ledger, err := w.ledger, w.err
	w.mu.Unlock()
	if ledger == nil {
		return nil, err
	}
	return ledger.Standing(ctx, check)
}

// run watches until ctx ends. Databases that are away are waited for: the relay
// does not depend on them.
func (w *watch) run(ctx context.Context) {
	targets, err := w.targets()
	if err != nil {
		w.logger.Error("alerts have no target", "error", err)
	}
	for ctx.Err() == nil {
		stop, err := w.open(ctx)
		if err == nil {
			defer stop()
			break
		}
		w.logger.Warn("results cannot be opened; checks wait for them", "error", err, "next_try_in", again.String())
		pause(ctx, again)
	}
	var all sync.WaitGroup
	for i := range w.checks {
		all.Go(func() { w.watchOne(ctx, w.checks[i], targets) })
	}
	all.Wait()
}

// again is how long to wait for a database that is away.
const again = 5 * time.Second

func (w *watch) open(ctx context.Context) (func(), error) {
	ledger, _, stop, err := w.file.Ledger(ctx, false)
	if err == nil {
		if err = ledger.Ready(ctx); err != nil {
			stop()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.err = err
		return nil, err
	}
	w.ledger = ledger
	return stop, nil
}

func (w *watch) watchOne(ctx context.Context, check *reconcile.Check, targets map[string]reconcile.Notifier) {
	logger := w.logger.With("check", check.Name)
	for ctx.Err() == nil {
		opened, err := w.file.Open(ctx, check, false)
		var engine *reconcile.Engine
		if err == nil {
			if engine, err = reconcile.New(*check, opened.Databases, nil); err != nil {
				opened.Close()
			}
		}
		alerter := reconcile.NewAlerter(check, w.ledger, targets, w.redact)
		if err != nil {
			if ctx.Err() == nil {
				logger.Warn("the check cannot be run, to be tried again", "error", err, "in", again.String())
				if err := alerter.Tell(ctx); err != nil { // that it is overdue is told all the same
					logger.Warn("an alert was not told, to be tried again", "error", err)
				}
			}
			pause(ctx, again)
			continue
		}
		logger.Info("check is watched", "every", check.Every.String(), "all_keys_every", check.SweepEvery.String())
		watcher := reconcile.NewWatcher(reconcile.NewRunner(engine, w.ledger, nil), w.ledger, alerter, reconcile.WatchEvents{
			Ran: func(r *reconcile.Report) {
				logger.Info("check ran", "mode", string(r.Mode), "run", r.RunID, "keys", r.Keys, "differences", r.Differences, "unverified", r.Unverified)
			},
			Failed: func(what string, err error) {
				logger.Warn("check failed, to be tried again", "what", what, "error", err)
			},
		})
		_ = watcher.Run(ctx) // it ends with ctx, and is no error then
		opened.Close()
	}
}

// targets are who is told of alerts. Their names are on record.
func (w *watch) targets() (map[string]reconcile.Notifier, error) {
	targets := make(map[string]reconcile.Notifier)
	if !w.file.Alerts.NoLog {
		targets["log"] = logNotifier{w.logger}
	}
	hook, err := w.file.Alerts.Webhook.Notifier()
	if hook != nil {
		targets["webhook"] = hook
	}
	return targets, err
}

// logNotifier writes alerts to the log.
type logNotifier struct{ logger *slog.Logger }

// Notify implements [reconcile.Notifier].
func (n logNotifier) Notify(ctx context.Context, alert *reconcile.Alert) error {
	level, text := slog.LevelWarn, "alert"
	if !alert.Firing {
		level, text = slog.LevelInfo, "alert is over"
	}
	attributes := []any{"check", alert.Check, "alert", alert.Name, "text", alert.Text, "count", alert.Count, "new", alert.New}
	for _, sample := range alert.Samples {
		attributes = append(attributes, "finding", sample.ID+" "+sample.Key+": "+sample.Detail)
	}
	n.logger.Log(ctx, level, text, attributes...)
	return nil
}

// examine says what the doctor has to say of the checks: times that do not go
// together, results that cannot be kept, alerts that fire.
func (w *watch) examine(ctx context.Context) (found []ops.Examination) {
	say := func(what, detail, hint string) {
		found = append(found, ops.Examination{Check: "reconcile: " + what, OK: hint == "", Detail: w.redact(detail), Hint: hint})
	}
	for _, check := range w.checks {
		misfits := check.Misfits()
		for _, misfit := range misfits {
			say(check.Name, misfit, "change one of these times in the file of checks")
		}
		if len(misfits) == 0 {
			say(check.Name, fmt.Sprintf("run every %s, all keys every %s", check.Every, check.SweepEvery), "")
		}
	}
	stop, err := w.open(ctx)
	if err != nil {
		say("results", oneLine(err.Error()), "is the database there? waybill reconcile migrate makes the tables")
		return found
	}
	defer stop()
	for _, check := range w.checks {
		standing, err := w.Standing(ctx, check.Name)
		if err != nil {
			say("results", oneLine(err.Error()), "is the database there?")
			return found
		}
		for _, condition := range check.Conditions(standing) {
			if condition.Firing {
				say(check.Name, condition.Name+": "+condition.Text, "see waybill reconcile status, and waybill reconcile findings list")
			}
		}
	}
	return found
}

// coverageAge returns how far back events must be kept because a check has not
// compared what came after them. A check that covers nothing yet may need all.
func (w *watch) coverageAge(ctx context.Context) (age time.Duration, some bool, err error) {
	for _, check := range w.checks {
		if check.Log == nil || check.Log.Outbox == nil {
			continue
		}
		standing, err := w.Standing(ctx, check.Name)
		if err != nil {
			return 0, false, err
		}
		covered := false
		for _, c := range standing.Coverage {
			if c.Definition == check.Definition() {
				covered = true
				age = max(age, standing.Now.Sub(c.Until))
			}
		}
		if !covered {
			return 0, false, nil
		}
	}
	return age, true, nil
}
