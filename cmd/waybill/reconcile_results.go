package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waybillhq/waybill/cmd/waybill/internal/checks"
	"github.com/waybillhq/waybill/cmd/waybill/internal/config"
	"github.com/waybillhq/waybill/reconcile"
)

// scoped says which keys a run compares.
type scoped struct {
	Mode  string   `enum:"full,window,weekly" default:"full" placeholder:"MODE" help:"full compares all keys (default); window those that changed lately in any arm; weekly all keys, going on where the last one stopped."`
	Now   bool     `help:"All keys, from the first one: the same as --mode full."`
	Key   []string `placeholder:"PART" sep:"none" help:"Only this key: repeated for each part, binary ones in hex."`
	Event []string `placeholder:"ID" sep:"none" help:"Only the key of this event. May be repeated."`
}

func (s *scoped) scope() (reconcile.Scope, error) {
	scope := reconcile.Scope{Mode: reconcile.Mode(s.Mode)}
	given := 0
	for _, one := range []bool{s.Now, scope.Mode != reconcile.ModeFull, len(s.Key) > 0, len(s.Event) > 0} {
		if one {
			given++
		}
	}
	switch {
	case given > 1:
		return scope, errors.New("--now, --mode, --key and --event each say which keys are compared: give one of them")
	case len(s.Key) > 0:
		scope = reconcile.Scope{Mode: reconcile.ModeKey, Keys: [][]string{s.Key}}
	case len(s.Event) > 0:
		scope = reconcile.Scope{Mode: reconcile.ModeEvent, Events: s.Event}
	}
	return scope, nil
}

// runCheck runs a check, and keeps the outcome where the file says so.
func runCheck(a *app, file *checks.File, name string, scope reconcile.Scope) (report *reconcile.Report, err error) {
	var ledger *reconcile.Ledger
	if file.Results != nil {
		var stop func()
		if ledger, stop, err = openLedger(a, file, false); err != nil {
			return nil, err
		}
		defer stop()
	}
	err = withEngine(a, file, name, false, func(engine *reconcile.Engine) error {
		if ledger == nil {
			report, err = engine.Compare(a.ctx, scope)
			return err
		}
		report, err = reconcile.NewRunner(engine, ledger, nil).Run(a.ctx, scope)
		if err != nil {
			return err
		}
		if report.Trend, err = ledger.Trend(a.ctx, file.Checks[name].Name, 14); err != nil {
			return err
		}
		records, err := ledger.ListFindings(a.ctx, reconcile.FindingFilter{Check: file.Checks[name].Name, States: findingStates["unresolved"]})
		report.Recall(records)
		return err
	})
	return report, err
}

// openLedger opens the results. From here on no output shows their secrets.
func openLedger(a *app, file *checks.File, create bool) (*reconcile.Ledger, func(), error) {
	ledger, secrets, stop, err := file.Ledger(a.ctx, create)
	a.secrets = append(a.secrets, secrets...)
	if err != nil {
		if errors.Is(err, checks.ErrNoResults) {
			return nil, nil, usageError{err}
		}
		return nil, nil, err
	}
	a.stdout = &config.RedactWriter{To: a.stdout, Secrets: secrets}
	if create {
		return ledger, stop, nil
	}
	if err := ledger.Ready(a.ctx); err != nil {
		stop()
		return nil, nil, err
	}
	return ledger, stop, nil
}

// withLedger runs f with the results and the checks that were asked for.
func withLedger(a *app, asked []string, f func(file *checks.File, ledger *reconcile.Ledger, names []string) error) error {
	file, err := loadChecks(a)
	if err != nil {
		return err
	}
	names, err := file.Names(asked)
	if err != nil {
		return usageError{err}
	}
	ledger, stop, err := openLedger(a, file, false)
	if err != nil {
		return err
	}
	defer stop()
	return f(file, ledger, names)
}

type reconcileMigrateCmd struct{}

// Help has the examples.
func (reconcileMigrateCmd) Help() string {
	return `The tables are made in the database that the file of checks names under results. They are left alone where they are there
already. A SQLite file that is missing is made.

Examples:

	waybill reconcile migrate --config check.yaml`
}

func (c *reconcileMigrateCmd) Run(a *app) error {
	file, err := loadChecks(a)
	if err != nil {
		return err
	}
	ledger, stop, err := openLedger(a, file, true)
	if err != nil {
		return err
	}
	defer stop()
	if err := ledger.Migrate(a.ctx); err != nil {
		return err
	}
	return a.print("The tables for results are there, in the database " + file.Results.Database + ".\n")
}

type reconcileRunsCmd struct {
	Check []string `arg:"" optional:"" help:"The checks. Default: all of the file."`
	Limit int      `default:"20" help:"The most runs of each check."`
	ID    string   `name:"id" placeholder:"RUN" help:"The report of this run, with at most a hundred of its findings, as JSON."`
	JSON  bool     `name:"json" help:"Print JSON."`
}

// Help has the examples.
func (reconcileRunsCmd) Help() string {
	return `The newest run of each check comes first. INTERRUPTED says that its process ended: the next run has started again, and a weekly
one, RUNNING over interruptions, goes on where it stopped.

Examples:

	waybill reconcile runs --config check.yaml
	waybill reconcile runs orders --limit 5 --json`
}

// runsPage is the runs on record.
type runsPage struct {
	Runs []reconcile.RunRecord `json:"runs"`
}

func (c *reconcileRunsCmd) Run(a *app) error {
	return withLedger(a, c.Check, func(file *checks.File, ledger *reconcile.Ledger, names []string) error {
		if c.ID != "" {
			report, err := ledger.RunReport(a.ctx, c.ID)
			if err == nil && len(report) == 0 {
				err = fmt.Errorf("there is no report of a run %q", c.ID)
			}
			if err != nil {
				return err
			}
			return a.printJSON(report)
		}
		page := runsPage{Runs: []reconcile.RunRecord{}}
		for _, name := range names {
			runs, err := ledger.Runs(a.ctx, file.Checks[name].Name, c.Limit)
			if err != nil {
				return err
			}
			page.Runs = append(page.Runs, runs...)
		}
		if c.JSON {
			return a.printJSON(page)
		}
		if len(page.Runs) == 0 {
			return a.print("no runs\n")
		}
		var rows [][]string
		for i := range page.Runs {
			r := &page.Runs[i]
			took := ""
			if r.FinishedAt != nil {
				took = r.FinishedAt.Sub(r.StartedAt).Round(time.Millisecond).String()
			}
			rows = append(rows, []string{stamp(r.StartedAt), oneLine(r.Check), string(r.Mode), string(r.State), took, fmt.Sprint(r.Keys), fmt.Sprint(r.Differences), fmt.Sprint(r.Unverified), r.ID, oneLine(r.Error)})
		}
		return a.print(a.screen.table([]string{"started", "check", "mode", "state", "took", "keys", "differences", "unverified", "run", "error"}, rows))
	})
}

type reconcileStatusCmd struct {
	Check  []string `arg:"" optional:"" help:"The checks. Default: all of the file."`
	Alarms bool     `name:"check" help:"Exit with 3 when an alert fires: findings, a run overdue, coverage stalled."`
	JSON   bool     `name:"json" help:"Print JSON."`
}

// Help has the examples.
func (reconcileStatusCmd) Help() string {
	return `What is covered "until" a time was compared after its last change before that time. Alerts are what "waybill serve" would tell.

Examples:

	waybill reconcile status --config check.yaml
	waybill reconcile status --check || echo "see waybill reconcile findings list"`
}

// checkStatus is how a check stands.
type checkStatus struct {
	reconcile.Standing
	CoverageAge map[reconcile.Mode]float64 `json:"coverage_age_seconds"` // by kind: window, full
	Overdue     bool                       `json:"overdue"`
	Alerts      []reconcile.Condition      `json:"alerts"`
}

// reconcileStatus is how all checks stand.
type reconcileStatus struct {
	Firing int           `json:"firing"` // alerts, of all checks
	Checks []checkStatus `json:"checks"`
}

func (c *reconcileStatusCmd) Run(a *app) error {
	return withLedger(a, c.Check, func(file *checks.File, ledger *reconcile.Ledger, names []string) error {
		all := reconcileStatus{Checks: []checkStatus{}}
		for _, name := range names {
			status, err := statusOf(a, file.Checks[name], ledger)
			if err != nil {
				return err
			}
			for _, alert := range status.Alerts {
				if alert.Firing {
					all.Firing++
				}
			}
			all.Checks = append(all.Checks, *status)
		}
		var err error
		if c.JSON {
			err = a.printJSON(all)
		} else {
			err = a.print(all.text(a))
		}
		if err == nil && c.Alarms && all.Firing > 0 {
			return errFindings
		}
		return err
	})
}

func statusOf(a *app, check *reconcile.Check, ledger *reconcile.Ledger) (*checkStatus, error) {
	complete, err := check.Complete()
	if err != nil {
		return nil, usageError{err}
	}
	standing, err := ledger.Standing(a.ctx, complete.Name)
	if err != nil {
		return nil, err
	}
	status := &checkStatus{Standing: *standing, CoverageAge: make(map[reconcile.Mode]float64), Alerts: complete.Conditions(standing)}
	for _, covered := range standing.Coverage {
		if covered.Definition == complete.Definition() {
			status.CoverageAge[covered.Kind] = standing.Now.Sub(covered.Until).Seconds()
		}
	}
	status.Overdue = slices.ContainsFunc(status.Alerts, func(c reconcile.Condition) bool { return c.Name == reconcile.AlertOverdue && c.Firing })
	return status, nil
}

func (all *reconcileStatus) text(a *app) string {
	var b strings.Builder
	for _, s := range all.Checks {
		fmt.Fprintf(&b, "%s\n", printable(s.Check))
		line := func(what, text string) { fmt.Fprintf(&b, "  %-11s %s\n", what, printable(text)) }
		switch {
		case s.Running != "":
			line("now", "run by "+s.Running)
		case s.LastRun == nil:
			line("now", "it has never run")
		}
		if r := s.LastRun; r != nil {
			unverified := ""
			if r.Unverified > 0 {
				unverified = fmt.Sprintf(", %d not verified", r.Unverified)
			}
			line("last run", strings.TrimSpace(fmt.Sprintf("%s %s %s, %d differences%s %s", stamp(r.StartedAt), r.Mode, r.State, r.Differences, unverified, r.Error)))
			if len(s.Coverage) == 0 {
				line("covered", "nothing yet: no run has compared all that it was to")
			}
		}
		for _, covered := range s.Coverage {
			line("covered", fmt.Sprintf("%s until %s, %s ago", map[reconcile.Mode]string{reconcile.ModeWindow: "recent changes", reconcile.ModeFull: "all keys"}[covered.Kind],
				stamp(covered.Until), s.Now.Sub(covered.Until).Round(time.Second)))
		}
		var open []string
		for _, class := range reconcile.Classes {
			if n := s.Open[class]; n > 0 {
				open = append(open, fmt.Sprintf("%d %s", n, class))
			}
		}
		if s.Ignored+s.Awaiting > 0 {
			open = append(open, fmt.Sprintf("%d ignored, %d awaiting a verdict", s.Ignored, s.Awaiting))
		}
		line("findings", orNone(open))
		for _, alert := range s.Alerts {
			if alert.Firing {
				line("ALERT", alert.Name+": "+alert.Text)
			}
		}
	}
	return b.String()
}
