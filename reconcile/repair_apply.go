package reconcile

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/internal/fault"
	"github.com/waybillhq/waybill/store"
)

// ApplyRequest says which plan is carried out, and by whom.
type ApplyRequest struct {
	ID     string
	Hash   string // of the plan that was looked at
	By     string
	DryRun bool // say what would become of each action, and change nothing
}

// Applied is what became of a plan.
type Applied struct {
	Plan     string              `json:"plan"`
	DryRun   bool                `json:"dry_run,omitempty"`
	Actions  []Action            `json:"actions"`
	Outcomes map[ActionState]int `json:"outcomes"`
	// Recheck has the keys as they were compared afterwards; nil where another run
	// was at work, and the next one will do it.
	Recheck *Report `json:"recheck,omitempty"`
}

// Approve records that a second person has looked at a plan.
func (r *Repairer) Approve(ctx context.Context, id, hash, by string) (*Plan, error) {
	p, err := r.ledger.FindPlan(ctx, id)
	if err == nil {
		err = r.sound(p, hash)
	}
	by = strings.TrimSpace(by)
	switch {
	case err != nil:
	case by == "":
		err = errors.New("who approves is kept with the plan")
	case strings.EqualFold(by, p.By):
		err = fmt.Errorf("%w: %s has made it", ErrSamePerson, p.By)
	case p.State != PlanMade:
		err = fmt.Errorf("it is %s", p.State)
	default:
		err = r.ledger.approvePlan(ctx, id, by)
	}
	if err != nil {
		return nil, r.ledger.failed("approve plan", id, err)
	}
	return r.ledger.FindPlan(ctx, id)
}

// sound reports whether a plan is what was looked at, and still fits the check.
func (r *Repairer) sound(p *Plan, hash string) error {
	switch {
	case p.Check != r.engine.check.Name:
		return fmt.Errorf("it is one of the check %s", p.Check)
	case p.hash() != p.Hash || p.Hash != hash:
		return ErrPlanChanged
	case p.Definition != r.engine.check.Definition():
		return errors.New("the check has changed since: plan anew")
	}
	return nil
}

// Apply carries a plan out, one action after the other, each in a transaction
// of its own that has the change, its entry in the audit and the proof that the
// difference is gone: else nothing is changed. A row or a log that is not as it
// was planned for makes the action stale, and others go on. At the end the keys
// are compared again.
//
// One that was interrupted, at whatever moment, is simply applied again: what
// was done is not done twice.
func (r *Repairer) Apply(ctx context.Context, request ApplyRequest) (*Applied, error) {
	p, err := r.ledger.FindPlan(ctx, request.ID)
	if err == nil {
		err = r.sound(p, request.Hash)
	}
	request.By = strings.TrimSpace(request.By)
	settings := r.engine.check.Repair
	switch {
	case err != nil:
	case request.By == "":
		err = errors.New("who applies is kept with the plan")
	case p.ApprovedBy == "" && !request.DryRun && p.Changes() > *settings.ApproveAbove:
		err = fmt.Errorf("%w: it makes %d changes, more than %d", ErrNotApproved, p.Changes(), *settings.ApproveAbove)
	}
	if err != nil {
		return nil, r.ledger.failed("apply plan", request.ID, err)
	}
	if request.DryRun {
		return r.rehearse(ctx, p, request.By)
	}
	lease, err := r.ledger.Acquire(ctx, "apply "+markOf(p.Check), r.runner.config.Owner+" "+waybill.NewID(), r.runner.config.LeaseTTL)
	if err != nil {
		return nil, err
	}
	ctx, stop := r.runner.renew(ctx, lease)
	defer stop()
	applied, err := r.carryOut(ctx, lease, p, request.By)
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, ErrLeaseLost) {
		err = cause
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), afterwards)
	defer cancel()
	return applied, errors.Join(err, r.ledger.Release(after, lease))
}

func (r *Repairer) rehearse(ctx context.Context, p *Plan, by string) (*Applied, error) {
	run, err := r.engine.newRun(ctx)
	if err != nil {
		return nil, err
	}
	w := &worker{Repairer: r, run: run, plan: p, by: by, dry: true}
	for i := range p.Actions {
		if a := &p.Actions[i]; a.State == ActionPlanned || a.State == ActionStarted {
			if err := w.do(ctx, a, a.State == ActionStarted); err != nil {
				return nil, r.ledger.failed("apply plan", p.ID, err)
			}
		}
	}
	return appliedOf(p, true), nil
}

func appliedOf(p *Plan, dry bool) *Applied {
	applied := &Applied{Plan: p.ID, DryRun: dry, Actions: p.Actions, Outcomes: make(map[ActionState]int)}
	for i := range p.Actions {
		applied.Outcomes[p.Actions[i].State]++
	}
	return applied
}

// carryOut does what is not done yet.
func (r *Repairer) carryOut(ctx context.Context, lease Lease, p *Plan, by string) (*Applied, error) {
	run, err := r.engine.newRun(ctx)
	if err != nil {
		return nil, err
	}
	if p, err = r.ledger.beginApply(ctx, lease, p.ID, by); err != nil {
		return nil, r.ledger.failed("apply plan", "", err)
	}
	if p.hash() != p.Hash {
		return nil, r.ledger.failed("apply plan", p.ID, ErrPlanChanged)
	}
	fault.Point("reconcile.apply.begun")
	w := &worker{Repairer: r, run: run, plan: p, by: by}
	for i := range p.Actions {
		a := &p.Actions[i]
		if a.State != ActionPlanned && a.State != ActionStarted {
			continue
		}
		before := a.State == ActionStarted // by a process that did not come back
		if err := r.ledger.markAction(ctx, lease, p.ID, a, ActionStarted, "", by); err != nil {
			return nil, r.ledger.failed("apply plan", p.ID, err)
		}
		fault.Point("reconcile.apply.started")
		if err := w.do(ctx, a, before); err != nil {
			return nil, r.ledger.failed("apply plan", fmt.Sprintf("%s/%d", p.ID, a.Seq), err)
		}
		fault.Point("reconcile.apply.done")
		if err := r.ledger.markAction(ctx, lease, p.ID, a, a.State, a.Note, by); err != nil {
			return nil, r.ledger.failed("apply plan", p.ID, err)
		}
		fault.Point("reconcile.apply.marked")
		if a.Deed.changes() && a.State == ActionDone {
			if err := r.engine.clock.Wait(ctx, time.Duration(float64(time.Second)/r.engine.check.Repair.Rate)); err != nil {
				return nil, err
			}
		}
	}
	applied := appliedOf(p, false)
	fault.Point("reconcile.apply.recheck")
	if applied.Recheck, err = r.recheck(ctx, p); err != nil {
		return applied, err
	}
	fault.Point("reconcile.apply.rechecked")
	return applied, r.ledger.failed("apply plan", p.ID, r.ledger.finishPlan(ctx, lease, p.ID))
}

// recheck compares the keys again, and records what came of it.
func (r *Repairer) recheck(ctx context.Context, p *Plan) (*Report, error) {
	kinds := r.engine.check.kinds()
	var keys [][]string
	for i := range p.Actions {
		if a := &p.Actions[i]; a.Deed.changes() {
			key, err := keyFromStored(kinds, a.StoredKey)
			if err != nil {
				return nil, err
			}
			keys = append(keys, key.texts())
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	report, err := r.runner.Run(ctx, Scope{Mode: ModeKey, Keys: keys})
	if errors.Is(err, ErrRunning) { // what is open is looked at again by the next run
		return nil, nil
	}
	return report, err
}

// worker carries out the actions of one plan.
type worker struct {
	*Repairer
	run  *run
	plan *Plan
	by   string
	dry  bool
}

// do carries out an action, and sets its state. Started says that a process may
// have done it before.
func (w *worker) do(ctx context.Context, a *Action, started bool) error {
	key, err := keyFromStored(w.engine.check.kinds(), a.StoredKey)
	if err != nil {
		return err
	}
	switch a.Deed {
	case DeedAwait:
		return w.await(ctx, a)
	case DeedRetry, DeedRequeue:
		return w.resend(ctx, a, key, started)
	}
	return w.write(ctx, a, key, started)
}

// verb and reason are how the audit has an action: no other has the same.
func (w *worker) verb(a *Action) string { return "reconcile " + string(a.Deed) }

func (w *worker) reason(a *Action) string {
	return fmt.Sprintf("%s/%d: %s", w.plan.ID, a.Seq, w.plan.Reason)
}

func (a *Action) end(state ActionState, format string, args ...any) error {
	a.State, a.Note = state, fmt.Sprintf(format, args...)
	return nil
}

func (w *worker) await(ctx context.Context, a *Action) error {
	if w.dry {
		return a.end(ActionDone, "")
	}
	_, err := w.ledger.Decide(ctx, a.Finding, Decision{State: FindingAwaiting, By: w.by, Reason: w.reason(a)})
	if errors.Is(err, ErrResolved) {
		return a.end(ActionHealed, "the finding is resolved")
	}
	a.State, a.Note = ActionDone, ""
	return err
}

// resend sees to an event that exists.
func (w *worker) resend(ctx context.Context, a *Action, key Key, started bool) error {
	h, err := w.engine.bases.holdingNow(ctx, key, nil)
	if err != nil {
		return err
	}
	e := last(h.events, func(e *Event) bool { return e.ID == a.EventID })
	operate, dead := w.config.Operator.Requeue, false
	if a.Deed == DeedRetry {
		operate, dead = w.config.Operator.RetryDead, true
	}
	if started {
		// What the one before has done is seen by the audit alone: the event may be
		// dead again.
		if done, err := w.engine.bases.audited(ctx, w.engine.bases.log.DB, w.verb(a), a.EventID, w.reason(a)); err != nil || done {
			return errors.Join(err, a.end(ActionDone, ""))
		}
	}
	switch {
	case e == nil:
		return a.end(ActionStale, "the event is gone")
	case e.State == StateSent:
		return a.end(ActionHealed, "it has been sent")
	case dead && e.State != StateDead:
		return a.end(ActionStale, "it is %s", e.State)
	case w.dry:
		return a.end(ActionDone, "")
	}
	results, err := operate(ctx, store.Action{Actor: w.by, Reason: w.reason(a), Verb: w.verb(a)}, []string{a.EventID})
	if err != nil {
		return err
	}
	switch outcome := results[0].Outcome; outcome {
	case store.OutcomeRetried, store.OutcomeQueued:
		return a.end(ActionDone, "")
	case store.OutcomeAlreadyPending:
		return a.end(ActionDone, "it is in the queue: see to the relay")
	default:
		return a.end(ActionStale, "it is %s", outcome)
	}
}

// write carries out an action in a transaction of the log's database.
func (w *worker) write(ctx context.Context, a *Action, key Key, started bool) error {
	t := w.engine.bases
	limited, cancel := t.limit(ctx)
	defer cancel()
	tx, err := t.write.DB.BeginTx(limited, &sql.TxOptions{Isolation: w.isolation()})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := t.lock(limited, tx, key); err != nil {
		return err
	}
	target := a.EventID
	if a.Event != nil {
		target = a.Event.ID
	}
	audits := w.engine.check.Log.Outbox != nil
	if started && audits {
		if done, err := t.audited(limited, tx, w.verb(a), target, w.reason(a)); err != nil || done {
			return errors.Join(err, a.end(ActionDone, ""))
		}
	}
	h, err := t.holding(limited, tx, key, w.engine.check.Reissue.extra())
	if err != nil {
		return err
	}
	if a.Event != nil && last(h.events, func(e *Event) bool { return e.ID == a.Event.ID }) != nil {
		return a.end(ActionHealed, "the event is there already")
	}
	if a.Cause != RowGone && decisive(w.judge(key, h)) == "" { // of an event that is gone another arm tells
		return a.end(ActionHealed, "row and log agree")
	}
	switch {
	case h.rowMark() != a.Row && h.row == nil:
		return a.end(ActionStale, "the row is gone")
	case h.rowMark() != a.Row:
		return a.end(ActionStale, "the row has changed, it is at v%d", h.row.Version)
	case logMark(h.events) != a.Log:
		return a.end(ActionStale, "the log has changed")
	case w.dry:
		return a.end(ActionDone, "")
	}
	before := rowText(h.row)
	if err := w.change(limited, tx, a, key, h); err != nil {
		return w.refused(a, err)
	}
	if h, err = t.holding(limited, tx, key, w.engine.check.Reissue.extra()); err != nil {
		return err
	}
	if still := w.judge(key, h); decisive(still) == a.Cause {
		return a.end(ActionFailed, "it would not help: %s", still.Causes[0].Text)
	}
	if audits {
		if err := t.audit(limited, tx, w.by, w.verb(a), target, w.reason(a), before, w.after(a, h)); err != nil {
			return err
		}
	}
	fault.Point("reconcile.apply.commit")
	if err := tx.Commit(); err != nil {
		return err
	}
	return a.end(ActionDone, "")
}

// isolation lets the reads after the lock see what is committed by then.
func (w *worker) isolation() sql.IsolationLevel {
	if w.engine.bases.write.Dialect == SQLite {
		return sql.LevelDefault
	}
	return sql.LevelReadCommitted
}

// judge judges the write side by what a transaction sees.
func (w *worker) judge(key Key, h *holding) *Verdict {
	w.run.now()
	write, _ := Judge(&Facts{Key: key, Write: h.row, Log: h.events}, &w.run.rules)
	return write
}

// change makes the change itself.
func (w *worker) change(ctx context.Context, tx *sql.Tx, a *Action, key Key, h *holding) error {
	t := w.engine.bases
	var names []string
	var values []any
	switch a.Deed {
	case DeedAcceptRow:
		names, values = []string{w.engine.check.Write.Version}, []any{a.Event.Version}
	case DeedAcceptEvent:
		e := last(h.events, func(e *Event) bool { return e.ID == a.EventID })
		names, values = t.accepts(e)
	}
	if names != nil {
		n, err := t.set(ctx, tx, key, h.row.Version, names, values)
		if err != nil {
			return err
		}
		if n != 1 {
			return fmt.Errorf("%d rows would change", n)
		}
	}
	if a.Event == nil {
		return nil
	}
	results, err := w.config.Appender.Append(ctx, tx, []waybill.Event{a.Event.event()})
	if err != nil {
		return err
	}
	return results[0]
}

// refused ends an action that the database does not accept; an end of the
// context, or of the connection, ends the plan instead.
func (w *worker) refused(a *Action, err error) error {
	if errors.Is(err, waybill.ErrDuplicateEvent) || !isBroken(err) {
		return a.end(ActionFailed, "%s", err)
	}
	return err
}

func isBroken(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, sql.ErrTxDone)
}

// rowText is a row for the audit.
func rowText(row *Row) string {
	if row == nil {
		return `{"row":null}`
	}
	text, err := json.Marshal(map[string]any{"version": row.Version, "values": row.Values})
	if err != nil { // texts and numbers
		return ""
	}
	return string(text)
}

func (w *worker) after(a *Action, h *holding) string {
	after := map[string]any{"row": json.RawMessage(rowText(h.row))}
	if a.Event != nil {
		after["event"], after["type"], after["event_version"] = a.Event.ID, a.Event.Type, a.Event.Version
	}
	text, err := json.Marshal(after)
	if err != nil {
		return ""
	}
	return string(text)
}
