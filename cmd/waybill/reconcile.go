package main

import (
	"errors"
	"strings"

	"github.com/waybillhq/waybill/cmd/waybill/internal/checks"
	"github.com/waybillhq/waybill/cmd/waybill/internal/config"
	"github.com/waybillhq/waybill/reconcile"
)

type reconcileCmd struct {
	Run     reconcileRunCmd     `cmd:"" help:"Compare business tables, event logs and read models."`
	Explain reconcileExplainCmd `cmd:"" help:"Tell all that is known of one key."`
	Rebuild reconcileRebuildCmd `cmd:"" help:"Bring a read model to the latest sent event of each key."`

	Plan    reconcilePlanCmd    `cmd:"" help:"Plan what is to be done about findings of the write side."`
	Plans   reconcilePlansCmd   `cmd:"" help:"List the plans on record, or show one."`
	Approve reconcileApproveCmd `cmd:"" help:"Agree to a plan that somebody else has made."`
	Apply   reconcileApplyCmd   `cmd:"" help:"Carry out a plan."`

	ExportPlan       reconcileExportPlanCmd       `cmd:"" help:"Write what another engine needs to find candidates."`
	ImportCandidates reconcileImportCandidatesCmd `cmd:"" help:"Compare the keys that another engine has found."`

	Status   reconcileStatusCmd   `cmd:"" help:"Show when each check last ran, what it covers, and its alerts."`
	Runs     reconcileRunsCmd     `cmd:"" help:"List the runs on record."`
	Findings reconcileFindingsCmd `cmd:"" help:"Show the differences on record, and decide about them."`
	Migrate  reconcileMigrateCmd  `cmd:"" help:"Create the tables that keep the results."`
}

// Help says what they have in common.
func (reconcileCmd) Help() string {
	return "The checks are in the file that --config names, check.yaml by default."
}

type reconcileRunCmd struct {
	Check    []string `arg:"" optional:"" help:"The checks to run. Default: all of the file."`
	scoped   `embed:""`
	JSON     bool   `name:"json" xor:"format" help:"Print JSON."`
	Markdown bool   `xor:"format" help:"Print Markdown."`
	HTML     string `name:"html" placeholder:"FILE" help:"Also write the report as a page that stands by itself."`
}

// Help has the examples.
func (reconcileRunCmd) Help() string {
	return `Nothing is changed. What seems to differ is read again after a while, and reported if it still does. Exit code 3 says that
there are differences, or keys that could not be compared; events in flight are no difference.

All keys are compared, unless less is asked for. With results in the file of checks, the run is kept with its findings; while
another run of the check is at work this one is refused. Findings that somebody has decided about do not count for the exit code.

The page of --html loads nothing and runs nothing, so it can be mailed or kept with an incident. It holds values of your
tables: the file is made for its owner alone, and replaced only when the new one is whole.

Examples:

	waybill reconcile run --config check.yaml
	waybill reconcile run --config check.yaml --html report.html
	waybill reconcile run orders --mode window
	waybill reconcile run orders --key tenant-7 --key O-1001
	waybill reconcile run orders --json | jq '.runs[0].findings[].key'`
}

// reconciled is the JSON of a run: one report for each check.
type reconciled struct {
	Differences int                 `json:"differences"` // of all checks
	Ignored     int                 `json:"ignored"`     // of the differences: somebody has decided about them
	InFlight    int                 `json:"in_flight"`   // of all checks
	Unverified  int                 `json:"unverified"`  // of all checks
	Runs        []*reconcile.Report `json:"runs"`        // one for each check
}

func (c *reconcileRunCmd) Run(a *app) error {
	file, err := loadChecks(a)
	if err != nil {
		return err
	}
	names, err := file.Names(c.Check)
	if err != nil {
		return usageError{err}
	}
	scope, err := c.scope()
	if err != nil {
		return usageError{err}
	}
	var all reconciled
	for _, name := range names {
		report, err := runCheck(a, file, name, scope)
		if err != nil {
			return err
		}
		all.Runs = append(all.Runs, report)
		all.Differences += report.Differences
		all.Ignored += report.Ignored
		all.InFlight += report.InFlight
		all.Unverified += report.Unverified
	}
	err = c.show(a, &all)
	if err == nil && all.Differences-all.Ignored+all.Unverified > 0 {
		return errFindings
	}
	return err
}

type reconcileExplainCmd struct {
	Key   []string `arg:"" help:"The key, each part by itself; binary ones in hex."`
	Check string   `placeholder:"NAME" help:"The check. Default: the only one of the file."`
	JSON  bool     `name:"json" help:"Print JSON."`
}

// Help has the examples.
func (reconcileExplainCmd) Help() string {
	return `Examples:

	waybill reconcile explain L-1002 --config check.yaml
	waybill reconcile explain tenant-7 O-1001 --check orders --json`
}

func (c *reconcileExplainCmd) Run(a *app) error {
	return oneCheck(a, c.Check, false, func(engine *reconcile.Engine) error {
		story, err := engine.Explain(a.ctx, c.Key)
		if err != nil {
			return err
		}
		if c.JSON {
			return a.printJSON(story)
		}
		return a.print(story.Text())
	})
}

func loadChecks(a *app) (*checks.File, error) {
	file, err := checks.Load(a.cli.Config)
	if err != nil {
		return nil, usageError{err}
	}
	return file, nil
}

// oneCheck runs f with the engine of the check named, or of the only one.
func oneCheck(a *app, name string, writing bool, f func(*reconcile.Engine) error) error {
	file, err := loadChecks(a)
	if err != nil {
		return err
	}
	names, err := file.Names(nil)
	if name != "" {
		names, err = file.Names([]string{name})
	}
	if err != nil {
		return usageError{err}
	}
	if len(names) > 1 {
		return usageError{errors.New("the file has several checks: name one by --check, of " + strings.Join(names, ", "))}
	}
	return withEngine(a, file, names[0], writing, f)
}

func withEngine(a *app, file *checks.File, name string, writing bool, f func(*reconcile.Engine) error) error {
	check := file.Checks[name]
	opened, err := file.Open(a.ctx, check, writing)
	a.secrets = append(a.secrets, opened.Secrets...)
	if err != nil {
		return err
	}
	defer opened.Close()
	a.stdout = &config.RedactWriter{To: a.stdout, Secrets: opened.Secrets}
	engine, err := reconcile.New(*check, opened.Databases, nil)
	if err != nil {
		return usageError{err}
	}
	return f(engine)
}
