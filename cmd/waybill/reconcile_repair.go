package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/waybillhq/waybill/cmd/waybill/internal/checks"
	"github.com/waybillhq/waybill/reconcile"
)

type reconcilePlanCmd struct {
	Check   string   `arg:"" optional:"" help:"The check. Default: the only one of the file."`
	Finding []string `placeholder:"ID" sep:"none" help:"Only this finding on record. May be repeated. Default: all open ones of the write side."`
	Accept  string   `enum:",row,event" default:"" placeholder:"SIDE" help:"Where row and event contradict each other: row or event is right. Default: they are left for a verdict."`
	Limit   int      `default:"1000" help:"The most findings, the oldest first."`
	DryRun  bool     `help:"Show the plan, and do not record it."`
	acting  `embed:""`
}

// Help has the examples.
func (reconcilePlanCmd) Help() string {
	return `A plan says what would be done about findings of the write side, one action for each, and changes nothing:

	reissue        the event that was never written is made of the row, as the check's reissue map says
	retry, requeue an event that is dead, or was never queued, is sent: it is never written a second time
	void           events of a row that is not there are taken back by one of the map's type voided
	accept_row     the row is right: it gets the next version, with an event (--accept row)
	accept_event   the event is right: the row gets its content (--accept event)
	await          only a person can know: the finding is marked AWAITING_VERDICT

The plan is recorded with its hash. See it with "reconcile plans ID", and carry it out with "reconcile apply".

Examples:

	waybill reconcile plan --reason "the import of May forgot its events" --config check.yaml
	waybill reconcile plan orders --finding F-0123456789abcdef --accept row --reason "asked accounting"
	waybill reconcile plan --reason "what would it do?" --dry-run --json`
}

func (c *reconcilePlanCmd) Run(a *app) error {
	action, err := c.action()
	if err != nil {
		return err
	}
	return withRepairer(a, c.Check, func(repairer *reconcile.Repairer) error {
		plan, err := repairer.Plan(a.ctx, reconcile.PlanRequest{
			Findings: c.Finding, Accept: c.Accept, By: action.Actor, Reason: action.Reason, DryRun: c.DryRun, Limit: c.Limit,
		})
		if err != nil {
			return err
		}
		if c.JSON {
			return a.printJSON(plan)
		}
		return a.print(planText(a, plan))
	})
}

type reconcilePlansCmd struct {
	ID    string `arg:"" optional:"" name:"id" help:"Show this plan with its actions."`
	Check string `placeholder:"NAME" help:"Only those of this check."`
	Limit int    `default:"20" help:"The most plans."`
	JSON  bool   `name:"json" help:"Print JSON."`
}

// Help has the examples.
func (reconcilePlansCmd) Help() string {
	return `Plans stay on record, with who made, approved and applied them and what became of each action.

Examples:

	waybill reconcile plans --config check.yaml
	waybill reconcile plans P-0198c5c4-6f0a-7d4e-8a3c-5a6d1c2b3e4f --json`
}

// plansPage is the plans on record.
type plansPage struct {
	Plans []reconcile.Plan `json:"plans"`
}

func (c *reconcilePlansCmd) Run(a *app) error {
	return withLedger(a, nil, func(file *checks.File, ledger *reconcile.Ledger, _ []string) error {
		if c.ID != "" {
			plan, err := ledger.FindPlan(a.ctx, c.ID)
			if err != nil {
				return err
			}
			if c.JSON {
				return a.printJSON(plan)
			}
			return a.print(planText(a, plan))
		}
		name := c.Check
		if check := file.Checks[name]; check != nil {
			name = check.Name
		}
		plans, err := ledger.Plans(a.ctx, name, c.Limit)
		if err != nil {
			return err
		}
		if c.JSON {
			return a.printJSON(plansPage{Plans: plans})
		}
		if len(plans) == 0 {
			return a.print("no plans\n")
		}
		var rows [][]string
		for i := range plans {
			p := &plans[i]
			rows = append(rows, []string{stamp(p.At), oneLine(p.Check), string(p.State), oneLine(p.By), oneLine(p.ApprovedBy), oneLine(p.AppliedBy), p.ID, oneLine(p.Reason)})
		}
		return a.print(a.screen.table([]string{"planned", "check", "state", "by", "approved by", "applied by", "plan", "reason"}, rows))
	})
}

type reconcileApproveCmd struct {
	ID    string `arg:"" name:"id" help:"The plan."`
	Hash  string `required:"" placeholder:"HASH" help:"Of the plan that you have looked at."`
	Actor string `placeholder:"NAME" help:"Who, for the record. Default: the user of the operating system."`
	JSON  bool   `name:"json" help:"Print JSON."`
}

// Help has the examples.
func (reconcileApproveCmd) Help() string {
	return `A plan that makes more changes than the check's repair: {approve_above: 10} is applied only after a second person has looked at it.
Who made the plan cannot approve it.

Examples:

	waybill reconcile approve P-0198c5c4-6f0a-7d4e-8a3c-5a6d1c2b3e4f --hash 0123456789abcdef01234567 --config check.yaml`
}

func (c *reconcileApproveCmd) Run(a *app) error {
	return withPlan(a, c.ID, func(repairer *reconcile.Repairer) error {
		plan, err := repairer.Approve(a.ctx, c.ID, c.Hash, actorOf(c.Actor))
		if err != nil {
			return err
		}
		if c.JSON {
			return a.printJSON(plan)
		}
		return a.print("approved by " + printable(plan.ApprovedBy) + "\n")
	})
}

type reconcileApplyCmd struct {
	ID     string `arg:"" name:"id" help:"The plan."`
	Hash   string `required:"" placeholder:"HASH" help:"Of the plan that you have looked at."`
	DryRun bool   `help:"Say what would become of each action, and change nothing."`
	Actor  string `placeholder:"NAME" help:"Who, for the audit. Default: the user of the operating system."`
	JSON   bool   `name:"json" help:"Print JSON."`
}

// Help has the examples.
func (reconcileApplyCmd) Help() string {
	return `Each action is one transaction: the change, its entry in the audit, and the proof that the difference is gone. Where row or log are not
any more what they were when the plan was made, the action is STALE and changes nothing. In the end the keys are compared again.
Exit code 3 says that not every action was carried out.

Whatever interrupts it: apply the plan again. What was done is not done twice.

Examples:

	waybill reconcile apply P-0198c5c4-6f0a-7d4e-8a3c-5a6d1c2b3e4f --hash 0123456789abcdef01234567 --dry-run
	waybill reconcile apply P-0198c5c4-6f0a-7d4e-8a3c-5a6d1c2b3e4f --hash 0123456789abcdef01234567 --config check.yaml`
}

func (c *reconcileApplyCmd) Run(a *app) error {
	return withPlan(a, c.ID, func(repairer *reconcile.Repairer) error {
		applied, err := repairer.Apply(a.ctx, reconcile.ApplyRequest{ID: c.ID, Hash: c.Hash, By: actorOf(c.Actor), DryRun: c.DryRun})
		if err != nil {
			return err
		}
		if c.JSON {
			err = a.printJSON(applied)
		} else {
			err = a.print(appliedText(a, applied))
		}
		if err == nil && applied.Outcomes[reconcile.ActionStale]+applied.Outcomes[reconcile.ActionFailed] > 0 {
			return errFindings
		}
		return err
	})
}

func actorOf(given string) string {
	if given == "" {
		return operator()
	}
	return given
}

// withPlan runs f with a repairer of the check that a plan is about.
func withPlan(a *app, id string, f func(*reconcile.Repairer) error) error {
	name := ""
	err := withLedger(a, nil, func(file *checks.File, ledger *reconcile.Ledger, names []string) error {
		plan, err := ledger.FindPlan(a.ctx, id)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(names, func(key string) bool { return file.Checks[key].Name == plan.Check })
		if at < 0 {
			return usageError{errors.New("the plan is of the check " + plan.Check + ", which is not in this file")}
		}
		name = names[at]
		return nil
	})
	if err != nil {
		return err
	}
	return withRepairer(a, name, f)
}

func withRepairer(a *app, name string, f func(*reconcile.Repairer) error) error {
	file, err := loadChecks(a)
	if err != nil {
		return err
	}
	ledger, stop, err := openLedger(a, file, false)
	if err != nil {
		return err
	}
	defer stop()
	return oneCheck(a, name, true, func(engine *reconcile.Engine) error {
		outbox, err := file.Outbox(a.ctx, engine.Check())
		if err != nil {
			return err
		}
		defer outbox.Close()
		repairer, err := reconcile.NewRepairer(engine, ledger, &reconcile.RepairConfig{Appender: outbox.Appender, Operator: outbox.Operator})
		if err != nil {
			return err
		}
		return f(repairer)
	})
}

func planText(a *app, p *reconcile.Plan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s  %s  by %s: %s\n", p.ID, printable(p.Check), p.State, printable(p.By), printable(p.Reason))
	if p.ApprovedBy != "" {
		fmt.Fprintf(&b, "approved by %s %s\n", printable(p.ApprovedBy), stamp(*p.ApprovedAt))
	}
	if p.AppliedBy != "" {
		fmt.Fprintf(&b, "applied by %s\n", printable(p.AppliedBy))
	}
	var rows [][]string
	for i := range p.Actions {
		x := &p.Actions[i]
		rows = append(rows, []string{fmt.Sprint(x.Seq), string(x.Deed), oneLine(x.Key), oneLine(changeText(x)), string(x.State), oneLine(cmp.Or(x.Note, x.Why))})
	}
	if len(rows) > 0 {
		b.WriteString("\n" + a.screen.table([]string{"", "deed", "key", "what", "state", "why"}, rows) + "\n")
	}
	fmt.Fprintf(&b, "%d actions, %d of them change something", len(p.Actions), p.Changes())
	if p.Healed > 0 {
		fmt.Fprintf(&b, "; %d findings were there no more", p.Healed)
	}
	b.WriteString("\n")
	switch {
	case !p.Recorded:
		b.WriteString("Dry run: the plan is not recorded.\n")
	case p.State != reconcile.PlanApplied:
		fmt.Fprintf(&b, "next: waybill reconcile apply %s --hash %s\n", p.ID, p.Hash)
	}
	return b.String()
}

// changeText says what an action changes.
func changeText(x *reconcile.Action) string {
	var parts []string
	if x.Event != nil {
		parts = append(parts, fmt.Sprintf("%s v%d %s", x.Event.Type, x.Event.Version, x.Event.Data))
	} else if x.EventID != "" {
		parts = append(parts, x.EventID)
	}
	for _, name := range slices.Sorted(maps.Keys(x.Set)) {
		parts = append(parts, name+" = "+x.Set[name].String())
	}
	return strings.Join(parts, ", ")
}

func appliedText(a *app, x *reconcile.Applied) string {
	var b strings.Builder
	if x.DryRun {
		b.WriteString("Dry run, nothing was changed.\n")
	}
	var rows [][]string
	outcomes := make(map[string]int)
	for i := range x.Actions {
		one := &x.Actions[i]
		rows = append(rows, []string{fmt.Sprint(one.Seq), string(one.Deed), oneLine(one.Key), string(one.State), oneLine(one.Note)})
		outcomes[strings.ToLower(string(one.State))]++
	}
	if len(rows) > 0 {
		b.WriteString(a.screen.table([]string{"", "deed", "key", "state", "note"}, rows))
	}
	b.WriteString(strings.Replace(sum(outcomes), "no event", "no action", 1) + "\n")
	if x.Recheck != nil {
		fmt.Fprintf(&b, "compared again: %d differences, %d in flight\n", x.Recheck.Differences, x.Recheck.InFlight)
	} else if !x.DryRun {
		b.WriteString("the next run compares the keys again\n")
	}
	return b.String()
}
