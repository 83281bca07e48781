package main

import (
	"fmt"
	"strings"

	"github.com/waybillhq/waybill/reconcile"
)

type reconcileRebuildCmd struct {
	Check  string   `placeholder:"NAME" help:"The check. Default: the only one of the file."`
	Key    []string `arg:"" optional:"" help:"Only this key, each part by itself. Default: all keys."`
	DryRun bool     `help:"Only count."`
	JSON   bool     `name:"json" help:"Print JSON."`
}

// Help has the examples.
func (reconcileRebuildCmd) Help() string {
	return `Rows are written on the condition that they are still as they were read, so a live consumer may go on. A key of which the
read model knows more than the log is refused, left alone and named; exit code 3 says that there are such keys.

Examples:

	waybill reconcile rebuild --config check.yaml --dry-run
	waybill reconcile rebuild L-1006 --config check.yaml`
}

func (c *reconcileRebuildCmd) Run(a *app) error {
	return oneCheck(a, c.Check, true, func(engine *reconcile.Engine) error {
		settings := &reconcile.RebuildConfig{DryRun: c.DryRun}
		if len(c.Key) > 0 {
			settings.Keys = [][]string{c.Key}
		}
		rebuilt, err := engine.Rebuild(a.ctx, settings)
		if err != nil {
			return err
		}
		if c.JSON {
			err = a.printJSON(rebuilt)
		} else {
			err = a.print(rebuiltText(rebuilt))
		}
		if err == nil && len(rebuilt.Refused) > 0 {
			return errFindings
		}
		return err
	})
}

func rebuiltText(r *reconcile.Rebuilt) string {
	var b strings.Builder
	if r.DryRun {
		b.WriteString("Dry run, nothing was changed. ")
	}
	fmt.Fprintf(&b, "%d rows follow from the log: %d written, %d were right. %d removed.\n", r.Rows, r.Written, r.Unchanged, r.Removed)
	for _, refused := range r.Refused {
		fmt.Fprintf(&b, "refused %s: %s\n", printable(refused.Key), printable(refused.Reason))
	}
	return b.String()
}
