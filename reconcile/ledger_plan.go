package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/waybillhq/waybill"
)

const insertPlanSQL = `
INSERT INTO {plan} (id, check_name, definition, digest, state, planned_by, planned_at, reason, healed)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`

const insertActionSQL = `
INSERT INTO {action} (plan_id, seq, state, note, body)
VALUES (?, ?, ?, '', ?)`

// savePlan records a plan as a whole.
func (l *Ledger) savePlan(ctx context.Context, p *Plan) error {
	err := l.transaction(ctx, func(tx executor) error {
		if _, err := l.exec(ctx, tx, insertPlanSQL, p.ID, p.Check, p.Definition, p.Hash, string(p.State), p.By, p.At, p.Reason, p.Healed); err != nil {
			return err
		}
		for i := range p.Actions {
			body, err := json.Marshal(&p.Actions[i])
			if err != nil {
				return err
			}
			if _, err := l.exec(ctx, tx, insertActionSQL, p.ID, p.Actions[i].Seq, string(ActionPlanned), string(body)); err != nil {
				return err
			}
		}
		return nil
	})
	return l.failed("record plan", p.ID, err)
}

const planColumns = `id, check_name, definition, digest, state, planned_by, planned_at, reason, approved_by, approved_at, applied_by, finished_at, healed`

const selectPlansSQL = `
SELECT ` + planColumns + `
FROM {plan}`

const selectActionsSQL = `
SELECT state, note, acted_by, acted_at, body
FROM {action}
WHERE plan_id = ?
ORDER BY seq`

// Plans returns the plans of a check, or of all for "", the newest first and
// without their actions.
func (l *Ledger) Plans(ctx context.Context, check string, limit int) ([]Plan, error) {
	query, args := selectPlansSQL, []any{}
	if check != "" {
		query, args = query+" WHERE check_name = ?", append(args, check)
	}
	query += " ORDER BY planned_at DESC, id DESC"
	if limit > 0 {
		query, args = query+" LIMIT ?", append(args, limit)
	}
	plans, err := l.selectPlans(ctx, l.db.DB, query, args)
	return plans, l.failed("list plans", check, err)
}

func (l *Ledger) selectPlans(ctx context.Context, q queryer, query string, args []any) ([]Plan, error) {
	plans := []Plan{}
	err := l.rows(ctx, q, query, args, func(r *ledgerRow) error {
		p := Plan{
			ID: r.text(), Check: r.text(), Definition: r.text(), Hash: r.text(), State: PlanState(r.text()), By: r.text(), At: r.time(), Reason: r.text(),
			ApprovedBy: r.text(), ApprovedAt: r.timeOrNil(), AppliedBy: r.text(), FinishedAt: r.timeOrNil(), Healed: int(r.number()), Actions: []Action{}, Recorded: true,
		}
		plans = append(plans, p)
		return nil
	})
	return plans, err
}

// FindPlan returns a plan with its actions; the error is ErrNoPlan where there
// is none.
func (l *Ledger) FindPlan(ctx context.Context, id string) (*Plan, error) {
	p, err := l.findPlan(ctx, l.db.DB, id)
	return p, l.failed("find plan", id, err)
}

func (l *Ledger) findPlan(ctx context.Context, q queryer, id string) (*Plan, error) {
	plans, err := l.selectPlans(ctx, q, selectPlansSQL+" WHERE id = ?", []any{id})
	if err == nil && len(plans) == 0 {
		err = &waybill.Error{Op: "find plan", Key: id, Err: ErrNoPlan, Hint: "waybill reconcile plans lists them"}
	}
	if err != nil {
		return nil, err
	}
	p := &plans[0]
	err = l.rows(ctx, q, selectActionsSQL, []any{id}, func(r *ledgerRow) error {
		state, note, by, at := ActionState(r.text()), r.text(), r.text(), r.timeOrNil()
		var a Action
		if err := json.Unmarshal([]byte(r.text()), &a); err != nil {
			return fmt.Errorf("action %d: %w", len(p.Actions)+1, err)
		}
		a.State, a.Note, a.By, a.At = state, note, by, at
		p.Actions = append(p.Actions, a)
		return nil
	})
	return p, err
}

const approvePlanSQL = `
UPDATE {plan}
SET approved_by = ?, approved_at = {now}
WHERE id = ? AND state = 'PLANNED' AND approved_by IS NULL AND planned_by <> ?`

func (l *Ledger) approvePlan(ctx context.Context, id, by string) error {
	n, err := l.exec(ctx, l.db.DB, approvePlanSQL, by, id, by)
	if err == nil && n == 0 {
		err = errors.New("it is approved already, or being applied")
	}
	return err
}

const beginApplySQL = `
UPDATE {plan}
SET state = 'APPLYING', applied_by = ?
WHERE id = ?`

// beginApply returns the plan as it stands now that nobody else applies it.
func (l *Ledger) beginApply(ctx context.Context, lease Lease, id, by string) (p *Plan, err error) {
	err = l.transaction(ctx, func(tx executor) error {
		if err := l.hold(ctx, tx, lease); err != nil {
			return err
		}
		var err error
		if p, err = l.findPlan(ctx, tx, id); err != nil || p.State == PlanApplied {
			return err
		}
		_, err = l.exec(ctx, tx, beginApplySQL, by, id)
		return err
	})
	return p, err
}

const markActionSQL = `
UPDATE {action}
SET state = ?, note = ?, acted_by = ?, acted_at = {now}
WHERE plan_id = ? AND seq = ?`

// markAction records what became of an action, while the lease lives.
func (l *Ledger) markAction(ctx context.Context, lease Lease, plan string, a *Action, state ActionState, note, by string) error {
	return l.transaction(ctx, func(tx executor) error {
		if err := l.hold(ctx, tx, lease); err != nil {
			return err
		}
		_, err := l.exec(ctx, tx, markActionSQL, string(state), note, by, plan, a.Seq)
		a.State, a.Note, a.By = state, note, by
		return err
	})
}

const finishPlanSQL = `
UPDATE {plan}
SET state = 'APPLIED', finished_at = {now}
WHERE id = ? AND state = 'APPLYING'`

func (l *Ledger) finishPlan(ctx context.Context, lease Lease, id string) error {
	return l.transaction(ctx, func(tx executor) error {
		if err := l.hold(ctx, tx, lease); err != nil {
			return err
		}
		_, err := l.exec(ctx, tx, finishPlanSQL, id)
		return err
	})
}
