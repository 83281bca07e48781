package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/waybillhq/waybill/reconcile"
)

type reconcileExportPlanCmd struct {
	Check string `arg:"" optional:"" help:"The check. Default: the only one of the file."`
	Out   string `required:"" placeholder:"DIR" help:"The folder to write to; it is made if it is not there."`
	Rows  int    `default:"1000000" help:"About how many rows a range has; 0 for one range."`
	JSON  bool   `name:"json" help:"Print JSON."`
}

// Help has the examples.
func (reconcileExportPlanCmd) Help() string {
	return `For tables that one machine does not compare in time. The folder gets

	plan.json           the ranges with a statement for each arm, the definition of the check and the cut
	write.sql, log.sql, read.sql
	                    statements that read a whole arm, for the shell of its database
	compare.duckdb.sql, compare.spark.sql, compare.trino.sql
	                    statements that make candidates of what the others have read

Only the ranges' ends are read from the databases. See the guide for how to run the statements.

Examples:

	waybill reconcile export-plan orders --out plan --config check.yaml
	waybill reconcile export-plan --out plan --rows 0 --json`
}

// exportedPlan is what was written.
type exportedPlan struct {
	Check      string   `json:"check"`
	Definition string   `json:"definition"` // of the check
	Ranges     int      `json:"ranges"`
	Files      []string `json:"files"` // with the folder
}

func (c *reconcileExportPlanCmd) Run(a *app) error {
	return oneCheck(a, c.Check, false, func(engine *reconcile.Engine) error {
		plan, err := engine.Export(a.ctx, c.Rows)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(c.Out, 0o755); err != nil {
			return err
		}
		done := exportedPlan{Check: plan.Check, Definition: plan.Definition, Ranges: len(plan.Ranges), Files: []string{}}
		write := func(name, text string) error {
			file := filepath.Join(c.Out, name)
			done.Files = append(done.Files, file)
			return os.WriteFile(file, []byte(text), 0o644)
		}
		text, err := json.MarshalIndent(plan, "", "  ")
		if err != nil {
			return err
		}
		if err := write("plan.json", string(text)+"\n"); err != nil {
			return err
		}
		for _, arm := range plan.Arms {
			if err := write(arm.Arm+".sql", arm.SQL+";\n"); err != nil {
				return err
			}
		}
		for _, name := range []string{"duckdb", "spark", "trino"} {
			if err := write("compare."+name+".sql", plan.Compare[name]); err != nil {
				return err
			}
		}
		if c.JSON {
			return a.printJSON(done)
		}
		return a.print(fmt.Sprintf("%s: %d ranges\n%s\n", plan.Check, done.Ranges, strings.Join(done.Files, "\n")))
	})
}

type reconcileImportCandidatesCmd struct {
	File     string `arg:"" help:"CSV with a heading that names the columns of the key."`
	Check    string `placeholder:"NAME" help:"The check. Default: the only one of the file."`
	JSON     bool   `name:"json" xor:"format" help:"Print JSON."`
	Markdown bool   `xor:"format" help:"Print Markdown."`
}

// Help has the examples.
func (reconcileImportCandidatesCmd) Help() string {
	return `Each candidate is read anew and judged as a run would: one that is stale or wrong costs time, and never is a finding. Lines that name no
key of the check are counted and left out. Nothing counts as covered by this. The report, exit code and results are those of "reconcile run".

Examples:

	waybill reconcile import-candidates plan/candidates.csv --config check.yaml
	waybill reconcile import-candidates candidates.csv --check orders --json`
}

func (c *reconcileImportCandidatesCmd) Run(a *app) error {
	file, err := loadChecks(a)
	if err != nil {
		return err
	}
	asked := []string(nil)
	if c.Check != "" {
		asked = []string{c.Check}
	}
	names, err := file.Names(asked)
	if err != nil {
		return usageError{err}
	}
	if len(names) > 1 {
		return usageError{fmt.Errorf("the file has several checks: name one by --check, of %s", strings.Join(names, ", "))}
	}
	keys, strange, err := c.read(a, names[0])
	if err != nil {
		return err
	}
	if strange > 0 {
		fmt.Fprintf(a.stderr, "%d lines name no key of the check, and were left out\n", strange)
	}
	report, err := runCheck(a, file, names[0], reconcile.Scope{Mode: reconcile.ModeKey, Keys: keys})
	if err != nil {
		return err
	}
	all := reconciled{Differences: report.Differences, Ignored: report.Ignored, InFlight: report.InFlight, Unverified: report.Unverified, Runs: []*reconcile.Report{report}}
	show := reconcileRunCmd{JSON: c.JSON, Markdown: c.Markdown}
	err = show.show(a, &all)
	if err == nil && all.Differences-all.Ignored+all.Unverified > 0 {
		return errFindings
	}
	return err
}

func (c *reconcileImportCandidatesCmd) read(a *app, name string) (keys [][]string, strange int, err error) {
	list, err := os.Open(c.File)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = list.Close() }()
	err = oneCheck(a, name, false, func(engine *reconcile.Engine) error {
		keys, strange, err = engine.ReadCandidates(list)
		return err
	})
	return keys, strange, err
}
