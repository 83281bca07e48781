package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/waybillhq/waybill"
)

// PlanRequest says which findings a plan is about.
type PlanRequest struct {
	// Findings are their ids. None: all open ones of the check's write side.
	Findings []string
	// Accept is a person's word on what only a person can know, where row and event
	// contradict each other: "row" or "event" is right. Empty: they are left for a
	// verdict.
	Accept string
	By     string // who plans
	Reason string
	DryRun bool // do not record the plan
	// Limit is the most findings that a plan is about, the oldest first. Default
	// 1,000.
	Limit int
}

// Plan makes a plan and records it. Nothing else is changed. Each finding is
// looked at anew: one that is there no more is left out.
func (r *Repairer) Plan(ctx context.Context, request PlanRequest) (*Plan, error) {
	c := r.engine.check
	fail := func(err error) (*Plan, error) { return nil, r.ledger.failed("plan repair", c.Name, err) }
	if request.Limit <= 0 {
		request.Limit = 1000
	}
	switch {
	case strings.TrimSpace(request.By) == "" || strings.TrimSpace(request.Reason) == "":
		return fail(errors.New("who plans, and why, is kept with the plan: both are needed"))
	case !slices.Contains([]string{"", "row", "event"}, request.Accept):
		return fail(fmt.Errorf("accept: %q is neither row nor event", request.Accept))
	}
	findings, err := r.chosen(ctx, &request)
	if err != nil {
		return fail(err)
	}
	run, err := r.engine.newRun(ctx)
	if err != nil {
		return nil, err
	}
	run.now()
	p := &Plan{
		ID: "P-" + waybill.NewID(), Check: c.Name, Definition: c.Definition(), State: PlanMade, By: strings.TrimSpace(request.By), At: run.rules.Now.Truncate(1000),
		Reason: request.Reason, Actions: []Action{}, Recorded: !request.DryRun,
	}
	w := &planner{Repairer: r, run: run, plan: p, accept: request.Accept}
	for i := range findings {
		if err := w.add(ctx, &findings[i]); err != nil {
			return fail(err)
		}
	}
	p.Hash = p.hash()
	if request.DryRun {
		return p, nil
	}
	return p, r.ledger.savePlan(ctx, p)
}

// chosen returns the findings that are meant, the oldest first.
func (r *Repairer) chosen(ctx context.Context, request *PlanRequest) (chosen []FindingRecord, err error) {
	name := r.engine.check.Name
	for _, id := range request.Findings {
		f, err := r.ledger.FindFinding(ctx, id)
		switch {
		case err != nil:
			return nil, err
		case f.Check != name:
			return nil, fmt.Errorf("the finding %s is one of the check %s", id, f.Check)
		case f.Side != WriteSide:
			return nil, fmt.Errorf("the finding %s is one of the read side: reconcile rebuild --finding %s mends it", id, id)
		case f.State == FindingResolved:
			return nil, &waybill.Error{Op: "plan repair", Key: id, Err: ErrResolved}
		}
		chosen = append(chosen, *f)
	}
	if len(request.Findings) > 0 {
		return chosen, nil
	}
	open, err := r.ledger.ListFindings(ctx, FindingFilter{Check: name, States: []FindingState{FindingOpen}})
	open = slices.DeleteFunc(open, func(f FindingRecord) bool { return f.Side != WriteSide })
	slices.SortFunc(open, func(a, b FindingRecord) int {
		return cmp.Or(a.FirstSeen.Compare(b.FirstSeen), strings.Compare(a.StoredKey, b.StoredKey))
	})
	return open[:min(len(open), request.Limit)], err
}

// planner makes one plan.
type planner struct {
	*Repairer
	run    *run
	plan   *Plan
	accept string

	finding *FindingRecord
	facts   *Facts
	verdict *Verdict
	holding *holding
}

// add plans what is to be done about a finding.
func (w *planner) add(ctx context.Context, f *FindingRecord) error {
	key, err := keyFromStored(w.engine.check.kinds(), f.StoredKey)
	if err != nil {
		return err
	}
	// The verdict comes from all arms, what is planned by from one snapshot: they
	// are of one moment if the row is the same in both.
	const tries = 3
	for n := 0; ; n++ {
		facts, verdict, err := w.run.judgeKey(ctx, key)
		if err != nil {
			return err
		}
		if decisive(verdict) == "" {
			w.plan.Healed++
			return nil
		}
		h, err := w.engine.bases.holdingNow(ctx, key, w.engine.check.Reissue.extra())
		if err != nil {
			return err
		}
		w.finding, w.facts, w.verdict, w.holding = f, facts, verdict, h
		if rowMark(facts.Write, nil) == rowMark(h.row, nil) {
			break
		}
		if n == tries {
			w.await("the row changes faster than it can be read")
			return nil
		}
	}
	return w.decide(ctx)
}

// decide plans by the cause of the verdict.
func (w *planner) decide(ctx context.Context) error {
	facts := w.facts
	switch decisive(w.verdict) {
	case NeverWritten, RowGone:
		return w.reissue(ctx, DeedReissue, facts.Write)
	case Dead, NeverQueued, Stuck:
		w.resend()
		return nil
	case NoRow:
		return w.void()
	case AheadOfRow, Content, DeletedInLog:
		return w.judge(ctx)
	}
	w.await("no rule says what to do about " + string(decisive(w.verdict)))
	return nil
}

// action begins an action about the finding at hand.
func (w *planner) action(deed Deed, why string) *Action {
	w.plan.Actions = append(w.plan.Actions, Action{
		Seq: len(w.plan.Actions) + 1, Deed: deed, Finding: w.finding.ID, Class: w.verdict.Class, Cause: decisive(w.verdict), Key: w.facts.Key.String(), StoredKey: w.facts.Key.stored(),
		Why: why, Row: w.holding.rowMark(), Log: logMark(w.holding.events), State: ActionPlanned,
	})
	return &w.plan.Actions[len(w.plan.Actions)-1]
}

func (w *planner) await(why string) { w.action(DeedAwait, why) }

// resend plans for each event that is not on its way, from the latest sent one
// up. Such an event exists, so none is written in its place.
func (w *planner) resend() {
	from := int64(minVersion)
	if sent := last(w.facts.Log, isSent); sent != nil {
		from = sent.Version
	}
	if w.config.Operator == nil || w.engine.check.Log.Outbox == nil {
		w.await("the log is not the outbox of this module, so its events are sent by something else")
		return
	}
	for i := range w.facts.Log {
		e := &w.facts.Log[i]
		if e.Version <= from {
			continue
		}
		switch e.State {
		case StateDead:
			w.action(DeedRetry, e.ID+" is dead").EventID = e.ID
		case StateUnqueued:
			w.action(DeedRequeue, e.ID+" was never queued").EventID = e.ID
		case StatePending:
			if !onItsWay(e, &w.run.rules) {
				w.action(DeedRequeue, unsent(e).Text+": if it is in the queue, see to the relay").EventID = e.ID
			}
		}
	}
}

// void plans an event that takes back those of a row that is not there.
func (w *planner) void() error {
	top := last(w.facts.Log, every)
	m := w.engine.check.Reissue
	if m == nil || w.config.Appender == nil {
		w.await("the check has no reissue map, which names the type of a void event")
		return nil
	}
	e := waybill.Event{Type: m.Voided, Topic: m.Topic, CausationID: top.ID, OccurredAt: w.plan.At, Data: []byte(fmt.Sprintf(`{"voided":%q}`, top.ID))}
	if before := w.holding.latest(); before != nil {
		e.Topic, e.CorrelationID = cmp.Or(before.Topic, e.Topic), before.CorrelationID
	}
	if err := w.complete(&e, top.Version+1); err != nil {
		w.await(err.Error())
		return nil
	}
	why := fmt.Sprintf("there is no row, and the log ends at v%d with %s", top.Version, top.ID)
	if top.State == StateDead {
		why += "; that one is dead and keeps later ones back until it is skipped"
	}
	w.action(DeedVoid, why).Event = plannedOf(&e)
	return nil
}

// judge plans by a person's word, or leaves it to one.
func (w *planner) judge(ctx context.Context) error {
	row, top := w.facts.Write, last(w.facts.Log, every)
	what := w.verdict.Causes[0].Text
	switch {
	case w.accept == "row":
		next := *row
		next.Version = max(row.Version, top.Version) + 1
		return w.reissue(ctx, DeedAcceptRow, &next)
	case w.accept == "event" && decisive(w.verdict) != DeletedInLog:
		e := w.accepted()
		if e == nil {
			w.await(what + "; the event's payload is no JSON, or not all of it can be read")
			return nil
		}
		a := w.action(DeedAcceptEvent, what+"; the event is taken for right")
		a.EventID, a.Set = e.ID, make(map[string]Value)
		for i := range w.engine.check.Compare {
			if c := &w.engine.check.Compare[i]; c.in(c.Write) != "" && c.in(c.Log) != "" {
				a.Set[c.in(c.Write)] = e.Values[i]
			}
		}
		if e.Version != row.Version {
			a.Set[w.engine.check.Write.Version] = parseValue(KindNumber, fmt.Sprint(e.Version), 0)
		}
		return nil
	case w.accept == "event":
		w.await(what + "; to take the event for right is to delete the row, and no program does that")
		return nil
	}
	w.await(what + "; only a person can know whether row or event is right")
	return nil
}

// accepted returns the event whose content the row is to get.
func (w *planner) accepted() *Event {
	e := contentOf(w.facts.Log, w.facts.Write.Version)
	if e == nil || w.run.rules.Delta || e.Delete || e.Values == nil || slices.ContainsFunc(e.Values, func(v Value) bool { return v.kind == kindUnread }) {
		return nil
	}
	return e
}

// contentOf returns the event that the row is compared with, or the one that
// is ahead of it.
func contentOf(events []Event, version int64) *Event {
	top := last(events, every)
	if top == nil || top.Version > version {
		return top
	}
	at := func(e *Event) bool { return e.Version == version }
	if sent := last(events, func(e *Event) bool { return at(e) && isSent(e) }); sent != nil {
		return sent
	}
	return last(events, at)
}

// reissue plans an event made of the row.
func (w *planner) reissue(ctx context.Context, deed Deed, row *Row) error {
	c := w.engine.check
	_, byMap := w.config.Reissuer.(mapped)
	switch {
	case w.config.Reissuer == nil || w.config.Appender == nil:
		w.await("the check has no reissue map, which says how an event is made of a row")
		return nil
	case row == nil || row.Deleted:
		w.await("the row is gone, or marked as deleted, so no event can be made of it")
		return nil
	case byMap && c.Events == "delta":
		w.await("events hold changes, and the row does not say which one is missing: write a Reissuer")
		return nil
	}
	of := &ReissueRow{Key: w.facts.Key.texts(), Version: row.Version, Columns: make(map[string]Value)}
	for name, value := range w.holding.extra {
		of.Columns[name] = value
	}
	for i := range c.Compare {
		if c.Compare[i].in(c.Compare[i].Write) != "" {
			of.Columns[c.Compare[i].Name] = w.holding.values[i]
		}
	}
	e, err := w.config.Reissuer.Reissue(ctx, of)
	if err == nil {
		if e.OccurredAt.IsZero() && deed == DeedReissue {
			e.OccurredAt = row.UpdatedAt
		}
		if deed == DeedAcceptRow {
			e.CausationID = contentOf(w.facts.Log, w.facts.Write.Version).ID
		}
		err = w.complete(&e, row.Version)
	}
	if err == nil {
		err = w.equal(&e, row)
	}
	if err != nil {
		w.await("no event can be made of the row: " + err.Error())
		return nil
	}
	why := w.verdict.Causes[0].Text
	if deed == DeedAcceptRow {
		why += "; the row is taken for right"
	} else if n := w.verdict.Missing - 1; n > 0 {
		why += fmt.Sprintf("; %d more before it cannot be made of the row: consumers that want every version wait for them", n)
	}
	a := w.action(deed, why)
	a.Event = plannedOf(&e)
	if deed == DeedAcceptRow {
		a.Set = map[string]Value{c.Write.Version: parseValue(KindNumber, fmt.Sprint(row.Version), 0)}
	}
	return nil
}

// complete sets what belongs to the key, and what the latest event of the row
// has where the map says nothing.
func (w *planner) complete(e *waybill.Event, version int64) error {
	c := w.engine.check
	key := w.facts.Key
	e.AggregateID, e.TenantID = key.texts()[len(key.parts)-1], ""
	if len(key.parts) > 1 {
		e.TenantID = key.texts()[0]
	} else if c.Log.Outbox != nil {
		e.TenantID = c.Log.Where["tenant_id"]
	}
	if e.AggregateType == "" && c.Reissue != nil {
		e.AggregateType = c.Reissue.AggregateType
	}
	if e.AggregateType == "" && c.Log.Outbox != nil {
		e.AggregateType = c.Log.Outbox.AggregateType
	}
	if before := w.holding.latest(); before != nil {
		e.TenantID, e.AggregateID = before.TenantID, before.AggregateID
		if e.Topic == "" {
			e.Topic = before.Topic
		}
		if e.Key == "" {
			e.Key = before.Key
		}
	}
	e.AggregateVersion = version
	e.ID = waybill.KeyID(e.TenantID, e.AggregateType, e.AggregateID, version, e.Type)
	e.Normalize(w.plan.At)
	return e.Validate(0)
}

// equal proves that the check will find the event equal to the row: else one
// difference would take the place of the other.
func (w *planner) equal(e *waybill.Event, row *Row) error {
	c := w.engine.check
	if c.Log.Payload == "" {
		return nil
	}
	made := Event{ID: e.ID, Version: row.Version, State: StateSent, Delete: slices.Contains(c.Log.Deletes, e.Type), Values: w.engine.bases.valuesIn(e.Data)}
	held := *row
	held.Values = w.holding.values
	if found := judgeContent(&Facts{Key: w.facts.Key, Write: &held}, &w.run.rules, &made); found != nil {
		return errors.New(found.Causes[0].Text)
	}
	return nil
}
