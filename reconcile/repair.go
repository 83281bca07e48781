package reconcile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"
	"unicode/utf8"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// Deed is what an action of a plan does.
type Deed string

// The deeds. The first two leave the log as it is and see to the sending; void
// and both accepts take a person's word.
const (
	DeedRetry       Deed = "retry"        // a dead event is made due, its attempts forgotten
	DeedRequeue     Deed = "requeue"      // an event is put into the queue again
	DeedReissue     Deed = "reissue"      // the event that was never written is written, from the row
	DeedVoid        Deed = "void"         // an event takes back those of a row that is not there
	DeedAcceptRow   Deed = "accept_row"   // the row is right: it gets a new version, with an event
	DeedAcceptEvent Deed = "accept_event" // the event is right: the row gets its content
	DeedAwait       Deed = "await"        // the finding is marked AWAITING_VERDICT, and nothing else
)

// changes reports whether the deed writes to the log's database.
func (d Deed) changes() bool { return d != DeedAwait }

// PlanState is how far a plan has come.
type PlanState string

// The states of a plan.
const (
	PlanMade     PlanState = "PLANNED"
	PlanApplying PlanState = "APPLYING" // or interrupted: apply it again
	PlanApplied  PlanState = "APPLIED"
)

// ActionState is what became of an action.
type ActionState string

// The states of an action.
const (
	ActionPlanned ActionState = "PLANNED"
	ActionStarted ActionState = "STARTED" // it may have been done
	ActionDone    ActionState = "DONE"
	ActionStale   ActionState = "STALE"  // row or log have changed since: plan anew
	ActionHealed  ActionState = "HEALED" // there is nothing to mend any more
	ActionFailed  ActionState = "FAILED" // and has changed nothing
)

// Plan is what is to be done about findings of the write side.
type Plan struct {
	ID         string     `json:"id"`
	Check      string     `json:"check"`
	Definition string     `json:"definition"` // of the check, when it was made
	Hash       string     `json:"hash"`       // of all that is to be done
	State      PlanState  `json:"state"`
	By         string     `json:"planned_by"`
	At         time.Time  `json:"planned_at"`
	Reason     string     `json:"reason"`
	ApprovedBy string     `json:"approved_by,omitempty"`
	ApprovedAt *time.Time `json:"approved_at,omitempty"`
	AppliedBy  string     `json:"applied_by,omitempty"`
	FinishedAt *time.Time `json:"finished_at,omitempty"`
	Actions    []Action   `json:"actions"`
	Healed     int        `json:"healed"`   // findings that were there no more
	Recorded   bool       `json:"recorded"` // false: it was only to be seen
}

// Changes counts the actions that change more than a finding's state.
func (p *Plan) Changes() (n int) {
	for i := range p.Actions {
		if p.Actions[i].Deed.changes() {
			n++
		}
	}
	return n
}

// Action is one step of a plan.
type Action struct {
	Seq       int    `json:"seq"`
	Deed      Deed   `json:"deed"`
	Finding   string `json:"finding"`
	Class     Class  `json:"class"`
	Cause     Code   `json:"cause"`
	Key       string `json:"key"`
	StoredKey string `json:"stored_key"`
	Why       string `json:"why"`
	// EventID is of the event that is retried or queued, or whose content the row
	// gets.
	EventID string        `json:"event_id,omitempty"`
	Event   *PlannedEvent `json:"event,omitempty"` // to be written
	// Set are the columns of the business row that change, as they will be.
	Set map[string]Value `json:"set,omitempty"`
	// Row and Log stand for what both were: where they are not any more, the
	// action is stale.
	Row string `json:"row"`
	Log string `json:"log"`

	State ActionState `json:"state"`
	Note  string      `json:"note,omitempty"` // of the outcome
	By    string      `json:"by,omitempty"`
	At    *time.Time  `json:"at,omitempty"`
}

// PlannedEvent is an event that a plan writes.
type PlannedEvent struct {
	ID            string    `json:"event_id"`
	Type          string    `json:"type"`
	SchemaVersion int       `json:"schema_version,omitempty"`
	Topic         string    `json:"topic"`
	Key           string    `json:"key"`
	TenantID      string    `json:"tenant_id,omitempty"`
	AggregateType string    `json:"aggregate_type"`
	AggregateID   string    `json:"aggregate_id"`
	Version       int64     `json:"version"`
	CausationID   string    `json:"causation_id,omitempty"`
	CorrelationID string    `json:"correlation_id,omitempty"`
	ContentType   string    `json:"content_type,omitempty"`
	OccurredAt    time.Time `json:"occurred_at"`
	// Data is the payload where it is text, Bytes where it is not.
	Data    string            `json:"data,omitempty"`
	Bytes   []byte            `json:"bytes,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

func plannedOf(e *waybill.Event) *PlannedEvent {
	p := &PlannedEvent{
		ID: e.ID, Type: e.Type, SchemaVersion: e.SchemaVersion, Topic: e.Topic, Key: e.Key, TenantID: e.TenantID, AggregateType: e.AggregateType, AggregateID: e.AggregateID,
		Version: e.AggregateVersion, CausationID: e.CausationID, CorrelationID: e.CorrelationID, ContentType: e.ContentType, OccurredAt: e.OccurredAt, Headers: e.Headers,
	}
	if utf8.Valid(e.Data) {
		p.Data = string(e.Data)
	} else {
		p.Bytes = e.Data
	}
	return p
}

// event undoes plannedOf.
func (p *PlannedEvent) event() waybill.Event {
	e := waybill.Event{
		ID: p.ID, Type: p.Type, SchemaVersion: p.SchemaVersion, Topic: p.Topic, Key: p.Key, TenantID: p.TenantID, AggregateType: p.AggregateType, AggregateID: p.AggregateID,
		AggregateVersion: p.Version, CausationID: p.CausationID, CorrelationID: p.CorrelationID, ContentType: p.ContentType, OccurredAt: p.OccurredAt, Headers: p.Headers,
		Data: []byte(p.Data),
	}
	if p.Bytes != nil {
		e.Data = p.Bytes
	}
	return e
}

// RepairSettings are what a check says of its repairs.
type RepairSettings struct {
	// ApproveAbove is how many changes a plan may make that nobody but its planner
	// has looked at. Default 10.
	ApproveAbove *int `yaml:"approve_above"`
	// Rate is how many changes are made in a second. Default 20.
	Rate float64 `yaml:"rate"`
}

func (s RepairSettings) withDefaults() RepairSettings {
	if s.ApproveAbove == nil {
		s.ApproveAbove = new(10)
	}
	if s.Rate == 0 {
		s.Rate = 20
	}
	return s
}

// RepairConfig says what a repairer works with. Nil means that it can only wait
// for verdicts.
type RepairConfig struct {
	// Reissuer makes the events of rows that have none. Default: the check's map.
	Reissuer Reissuer
	// Appender writes events in a transaction of the log's database: that of a store
	// of this module, or your own for a log of your own.
	Appender store.Appender[store.SQLTx]
	// Operator retries and requeues events of the outbox.
	Operator store.Operator
	// Owner names this process for people. Default: host:pid.
	Owner string
	// LeaseTTL is how long a process that is gone keeps others from applying.
	// Default 30 s.
	LeaseTTL time.Duration
}

// Repairer mends the write side, by plans: what a plan says is recorded, may be
// looked at and approved, and only then is done. It is used by one goroutine at a
// time.
//
// The write side is the truth of a business, and no program can know whether
// the row or the event is right. So a repairer decides only what needs no
// verdict: an event that was never written is written from its row, one that is
// dead or was never queued is sent. What is left is done at a person's word.
type Repairer struct {
	engine *Engine
	ledger *Ledger
	config RepairConfig
	runner *Runner
}

// NewRepairer makes a repairer. The check must have a write side and a log, in
// one database, which has to let itself be written.
func NewRepairer(engine *Engine, ledger *Ledger, config *RepairConfig) (*Repairer, error) {
	r := &Repairer{engine: engine, ledger: ledger}
	if config != nil {
		r.config = *config
	}
	c := engine.check
	fail := func(text string) (*Repairer, error) {
		return nil, &waybill.Error{Op: "repair", Key: c.Name, Err: errors.New(text)}
	}
	switch {
	case engine.bases == nil:
		return fail("the write side is no database")
	case c.Write == nil || c.Log == nil:
		return fail("the check needs a write side and a log")
	case c.Write.Database != c.Log.Database:
		return fail("write side and log are in two databases, so no transaction covers both")
	case c.Log.EventID == "":
		return fail("events have no ids here: name the column under log: event_id")
	}
	if r.config.Reissuer == nil && c.Reissue != nil {
		r.config.Reissuer = mapped{c.Reissue, c.Compare}
	}
	r.runner = NewRunner(engine, ledger, &RunnerConfig{Owner: r.config.Owner, LeaseTTL: r.config.LeaseTTL})
	return r, nil
}

var (
	// ErrPlanChanged says that a plan is not the one that was looked at.
	ErrPlanChanged = errors.New("the plan is not the one with this hash")
	// ErrNotApproved says that a plan makes too many changes for one person.
	ErrNotApproved = errors.New("the plan needs the approval of a second person")
	// ErrSamePerson says that who approves a plan has made it.
	ErrSamePerson = errors.New("who made a plan cannot approve it")
	// ErrNoPlan says that there is no such plan.
	ErrNoPlan = errors.New("no such plan")
)

// hash stands for all that the plan would do.
func (p *Plan) hash() string {
	judged := make([]Action, len(p.Actions))
	for i := range p.Actions {
		judged[i] = p.Actions[i]
		judged[i].State, judged[i].Note, judged[i].By, judged[i].At = "", "", "", nil
	}
	text, err := json.Marshal([]any{p.ID, p.Check, p.Definition, p.By, p.Reason, judged})
	if err != nil { // texts, numbers and times
		panic(err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:12])
}

// rowMark stands for a business row, or for its absence.
func rowMark(row *Row, extra map[string]Value) string {
	if row == nil {
		return "absent"
	}
	return markOf(row.Version, row.Deleted, row.Values, extra)
}

// logMark stands for which events there are, whatever became of them.
func logMark(events []Event) string {
	type name struct {
		ID      string
		Version int64
	}
	names := make([]name, len(events))
	for i := range events {
		names[i] = name{events[i].ID, events[i].Version}
	}
	return markOf(names)
}

func markOf(parts ...any) string {
	text, err := json.Marshal(parts)
	if err != nil { // texts and numbers
		panic(err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// texts are the parts of the key as ParseKey reads them.
func (k Key) texts() []string {
	texts := make([]string, len(k.parts))
	for i := range k.parts {
		texts[i] = (Key{parts: k.parts[i : i+1]}).String()
	}
	return texts
}

// decisive returns the cause that decided a verdict of the write side; empty
// where there is nothing to mend.
func decisive(v *Verdict) Code {
	if v == nil || !v.Class.Difference() || len(v.Causes) == 0 {
		return ""
	}
	return v.Causes[0].Code
}

// judgeKey reads a key anew, and judges its write side.
func (r *run) judgeKey(ctx context.Context, key Key) (*Facts, *Verdict, error) {
	found, _, err := r.gather(ctx, Range{only: &key})
	if err != nil {
		return nil, nil, err
	}
	f := &Facts{Key: key}
	if len(found) > 0 {
		f = &found[0]
	}
	r.now()
	write, _ := Judge(f, &r.rules)
	return f, write, nil
}
