package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/waybillhq/waybill/cmd/waybill/internal/checks"
	"github.com/waybillhq/waybill/reconcile"
)

type reconcileRebuildCmd struct {
	Check   string   `placeholder:"NAME" help:"The check. Default: the only one of the file."`
	Key     []string `arg:"" optional:"" help:"Only this key, each part by itself. Default: all keys."`
	Finding []string `placeholder:"ID" sep:"none" help:"Only the key of this finding on record. May be repeated."`
	Archive bool     `help:"Also read the outbox's archive, for events that a cleanup has taken out of the outbox."`
	Swap    bool     `help:"Do it in a copy that takes the table's place in one step, instead of row by row."`
	DryRun  bool     `help:"Only count."`
	JSON    bool     `name:"json" help:"Print JSON."`
}

// Help has the examples.
func (reconcileRebuildCmd) Help() string {
	return `Rows are written on the condition that they are still as they were read, so a live consumer may go on. A key of which the
read model knows more than the log is refused, left alone and named; exit code 3 says that there are such keys. Whatever
interrupts a rebuild, it may simply be run again.

With --swap readers see all of it or nothing. The copy follows the consumer, and takes the table's place while writers wait for a
moment; on MySQL and MariaDB readers wait, too. Where a copy would lose something, such as a view or a trigger, that is said
and nothing is done.

Events that hold changes instead of states have to go through the consumer's handler: RebuildConfig.Fold of the Go package
reconcile does that.

Examples:

	waybill reconcile rebuild --config check.yaml --dry-run
	waybill reconcile rebuild L-1006 --config check.yaml
	waybill reconcile rebuild --finding F-0123456789abcdef
	waybill reconcile rebuild --swap --archive`
}

func (c *reconcileRebuildCmd) Run(a *app) error {
	if c.Swap && len(c.Key)+len(c.Finding) > 0 {
		return usageError{errors.New("--swap brings about the whole table, not some keys")}
	}
	settings := &reconcile.RebuildConfig{DryRun: c.DryRun, Archive: c.Archive, Shadow: c.Swap}
	if len(c.Key) > 0 {
		settings.Keys = [][]string{c.Key}
	}
	check := c.Check
	if len(c.Finding) > 0 {
		var err error
		if settings.Findings, check, err = c.findings(a); err != nil {
			return err
		}
	}
	return oneCheck(a, check, true, func(engine *reconcile.Engine) error {
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

// findings reads those on record, and which check of the file they are of.
func (c *reconcileRebuildCmd) findings(a *app) (found []*reconcile.FindingRecord, check string, err error) {
	err = withLedger(a, nil, func(file *checks.File, ledger *reconcile.Ledger, names []string) error {
		for _, id := range c.Finding {
			record, err := ledger.FindFinding(a.ctx, id)
			if err != nil {
				return err
			}
			found = append(found, record)
		}
		for _, name := range names {
			if file.Checks[name].Name == found[0].Check {
				check = name
			}
		}
		return nil
	})
	if err == nil && c.Check != "" {
		check = c.Check
	}
	return found, check, err
}

func rebuiltText(r *reconcile.Rebuilt) string {
	var b strings.Builder
	if r.DryRun {
		b.WriteString("Dry run, nothing was changed. ")
	}
	if r.Swapped {
		b.WriteString("The copy has taken the table's place. ")
	}
	fmt.Fprintf(&b, "%d rows follow from the log: %d written, %d were right. %d removed.\n", r.Rows, r.Written, r.Unchanged, r.Removed)
	for _, refused := range r.Refused {
		fmt.Fprintf(&b, "refused %s: %s\n", printable(refused.Key), printable(refused.Reason))
	}
	return b.String()
}
