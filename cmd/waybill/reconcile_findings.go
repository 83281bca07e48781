package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/waybillhq/waybill/cmd/waybill/internal/checks"
	"github.com/waybillhq/waybill/reconcile"
)

type reconcileFindingsCmd struct {
	List   findingsListCmd   `cmd:"" help:"List the differences on record, the newest first."`
	Show   findingsShowCmd   `cmd:"" help:"Show one with its samples and what to do."`
	Ignore findingsIgnoreCmd `cmd:"" help:"Leave findings out of alerts and exit codes, for a time or for good."`
	Await  findingsAwaitCmd  `cmd:"" help:"Mark findings as waiting for a verdict of the people concerned."`
	Reopen findingsReopenCmd `cmd:"" help:"Count findings again."`
}

// Help says what they have in common.
func (reconcileFindingsCmd) Help() string {
	return `A finding is OPEN from the run that confirmed it to the first run that looks at its key and sees it no more: then it is RESOLVED,
by itself. Meanwhile a person may say IGNORED, or AWAITING_VERDICT.`
}

type findingsListCmd struct {
	Check []string `arg:"" optional:"" help:"The checks. Default: all of the file."`
	Class string   `placeholder:"CLASS" help:"Only of this class, as MISSING_EVENT."`
	State string   `enum:"unresolved,open,ignored,awaiting,resolved,all" default:"unresolved" placeholder:"STATE" help:"unresolved (default), open, ignored, awaiting, resolved or all."`
	Key   string   `placeholder:"KEY" help:"Only of this key, as reports show it."`
	Limit int      `default:"50" help:"The most findings."`
	JSON  bool     `name:"json" help:"Print JSON."`
}

// Help has the examples.
func (findingsListCmd) Help() string {
	return `Exit code 3 says that an open one is among them.

Examples:

	waybill reconcile findings list --config check.yaml
	waybill reconcile findings list orders --class MISSING_EVENT --state all --json`
}

// findingsPage is the findings on record.
type findingsPage struct {
	Findings []reconcile.FindingRecord `json:"findings"`
	More     bool                      `json:"more"` // than the limit
}

var findingStates = map[string][]reconcile.FindingState{
	"unresolved": {reconcile.FindingOpen, reconcile.FindingIgnored, reconcile.FindingAwaiting},
	"open":       {reconcile.FindingOpen},
	"ignored":    {reconcile.FindingIgnored},
	"awaiting":   {reconcile.FindingAwaiting},
	"resolved":   {reconcile.FindingResolved},
}

func (c *findingsListCmd) Run(a *app) error {
	return withLedger(a, c.Check, func(file *checks.File, ledger *reconcile.Ledger, names []string) error {
		page := findingsPage{Findings: []reconcile.FindingRecord{}}
		for _, name := range names {
			found, err := ledger.ListFindings(a.ctx, reconcile.FindingFilter{
				Check: file.Checks[name].Name, Class: reconcile.Class(strings.ToUpper(c.Class)), Key: c.Key, States: findingStates[c.State], Limit: c.Limit + 1,
			})
			if err != nil {
				return err
			}
			page.Findings = append(page.Findings, found...)
		}
		if page.More = len(page.Findings) > c.Limit; page.More {
			page.Findings = page.Findings[:c.Limit]
		}
		var err error
		if c.JSON {
			err = a.printJSON(page)
		} else {
			err = a.print(page.text(a))
		}
		for i := range page.Findings {
			if err == nil && page.Findings[i].State == reconcile.FindingOpen {
				return errFindings
			}
		}
		return err
	})
}

func (p *findingsPage) text(a *app) string {
	if len(p.Findings) == 0 {
		return "no findings\n"
	}
	var rows [][]string
	for i := range p.Findings {
		f := &p.Findings[i]
		rows = append(rows, []string{f.ID, string(f.Class), oneLine(f.Key), string(f.State), stamp(f.FirstSeen), stamp(f.LastSeen), fmt.Sprint(f.Seen), oneLine(f.Detail)})
	}
	text := a.screen.table([]string{"finding", "class", "key", "state", "first seen", "last seen", "runs", "what"}, rows)
	if p.More {
		text += "there are more: see --limit\n"
	}
	return text
}

type findingsShowCmd struct {
	ID   string `arg:"" help:"The finding, as F-0123456789abcdef."`
	JSON bool   `name:"json" help:"Print JSON."`
}

// Help has the examples.
func (findingsShowCmd) Help() string {
	return `Examples:

	waybill reconcile findings show F-0123456789abcdef --config check.yaml`
}

func (c *findingsShowCmd) Run(a *app) error {
	return withLedger(a, nil, func(_ *checks.File, ledger *reconcile.Ledger, _ []string) error {
		found, err := ledger.FindFinding(a.ctx, c.ID)
		if err != nil {
			return err
		}
		if c.JSON {
			return a.printJSON(found)
		}
		return a.print(findingText(found))
	})
}

func findingText(f *reconcile.FindingRecord) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s  %s  %s\n", f.ID, f.Class, printable(f.Key), f.State)
	line := func(what, text string) { fmt.Fprintf(&b, "  %-11s %s\n", what, printable(text)) }
	for _, cause := range f.Causes {
		line(string(cause.Code), cause.Text)
	}
	line("seen", fmt.Sprintf("first %s, last %s, by %d runs", stamp(f.FirstSeen), stamp(f.LastSeen), f.Seen))
	if f.ResolvedAt != nil {
		line("resolved", stamp(*f.ResolvedAt))
	}
	if f.By != "" {
		until := ""
		if f.Until != nil {
			until = " until " + stamp(*f.Until)
		}
		line("decided", f.By+until+": "+f.Reason)
	}
	var sample reconcile.Finding
	if json.Unmarshal(f.Sample, &sample) == nil {
		for _, d := range sample.Differences {
			var sides []string
			for _, side := range []struct {
				name  string
				value *reconcile.Value
			}{{"row", d.Row}, {"event", d.Event}, {"read model", d.Read}} {
				if side.value != nil {
					sides = append(sides, side.name+" "+side.value.String())
				}
			}
			line(d.Column, strings.Join(sides, ", "))
		}
		if sample.Next != "" {
			line("next", sample.Next)
		}
	}
	return b.String()
}

// deciding are the arguments of a decision.
type deciding struct {
	ID     []string `arg:"" help:"The findings, as F-0123456789abcdef."`
	acting `embed:""`
}

func (d *deciding) decide(a *app, state reconcile.FindingState, until time.Duration) error {
	action, err := d.action()
	if err != nil {
		return err
	}
	return withLedger(a, nil, func(_ *checks.File, ledger *reconcile.Ledger, _ []string) error {
		decision := reconcile.Decision{State: state, By: action.Actor, Reason: action.Reason}
		if until > 0 {
			decision.Until = now().Add(until)
		}
		page := findingsPage{Findings: []reconcile.FindingRecord{}}
		var failed []error
		for _, id := range d.ID {
			found, err := ledger.Decide(a.ctx, id, decision)
			if err != nil {
				failed = append(failed, err)
				continue
			}
			page.Findings = append(page.Findings, *found)
		}
		if d.JSON {
			err = a.printJSON(page)
		} else {
			err = a.print(page.text(a))
		}
		return errors.Join(append(failed, err)...)
	})
}

type findingsIgnoreCmd struct {
	For      time.Duration `placeholder:"TIME" help:"How long, as 72h; then it opens by itself. Default: until it is resolved."`
	deciding `embed:""`
}

// Help has the examples.
func (findingsIgnoreCmd) Help() string {
	return `Who, why and how long is kept with the finding.

Examples:

	waybill reconcile findings ignore F-0123456789abcdef --for 72h --reason "the import of May, see the incident" --config check.yaml`
}

func (c *findingsIgnoreCmd) Run(a *app) error {
	if c.For < 0 {
		return usageError{errors.New("--for must not be negative")}
	}
	return c.decide(a, reconcile.FindingIgnored, c.For)
}

type findingsAwaitCmd struct {
	deciding `embed:""`
}

// Help has the examples.
func (findingsAwaitCmd) Help() string {
	return `For differences about which not the operators decide: is the row right, or the event?

Examples:

	waybill reconcile findings await F-0123456789abcdef --reason "accounting looks into it" --config check.yaml`
}

func (c *findingsAwaitCmd) Run(a *app) error { return c.decide(a, reconcile.FindingAwaiting, 0) }

type findingsReopenCmd struct {
	deciding `embed:""`
}

// Help has the examples.
func (findingsReopenCmd) Help() string {
	return `Examples:

	waybill reconcile findings reopen F-0123456789abcdef --reason "it was no import after all" --config check.yaml`
}

func (c *findingsReopenCmd) Run(a *app) error { return c.decide(a, reconcile.FindingOpen, 0) }
