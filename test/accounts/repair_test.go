package accounts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill/reconcile"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/mysql"
	"github.com/waybillhq/waybill/store/postgres"
	"github.com/waybillhq/waybill/store/sqlite"
)

// depot is a database with purchases, their outbox and the results.
type depot struct {
	t        *testing.T
	d        reconcile.Database
	store    store.Outbox
	appender store.Appender[store.SQLTx]
	ledger   *reconcile.Ledger
	clock    *patient
}

// patient is a clock that does not wait, but keeps how long it would have.
type patient struct{ waited []time.Duration }

func (c *patient) Now() time.Time { return time.Now().UTC() }

func (c *patient) Wait(_ context.Context, d time.Duration) error {
	c.waited = append(c.waited, d)
	return nil
}

// enter opens the stores over a database that is there.
func enter(t *testing.T, d reconcile.Database, where string) *depot {
	t.Helper()
	p := &depot{t: t, d: d, clock: &patient{}}
	switch d.Dialect {
	case reconcile.SQLite:
		st, err := sqlite.Open(t.Context(), where, nil)
		if err != nil {
			t.Fatal(err)
		}
		p.store, p.appender = st, st
	case reconcile.Postgres:
		st, err := postgres.Open(t.Context(), where, nil)
		if err != nil {
			t.Fatal(err)
		}
		p.store, p.appender = st, st.SQL()
	default:
		st, err := mysql.Open(t.Context(), where, nil)
		if err != nil {
			t.Fatal(err)
		}
		p.store, p.appender = st, st
	}
	t.Cleanup(func() { _ = p.store.Close() })
	var err error
	if p.ledger, err = reconcile.NewLedger(d, &reconcile.LedgerConfig{Prefix: "Proof-"}); err != nil {
		t.Fatal(err)
	}
	return p
}

func newDepot(t *testing.T, dialect reconcile.Dialect) *depot {
	t.Helper()
	d := open(t, dialect)
	p := enter(t, d, address(t, d))
	if err := p.store.Migrate(t.Context(), store.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := p.ledger.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	exec(t, d, "CREATE TABLE purchase (id {text} NOT NULL PRIMARY KEY, status {text}, total {decimal}, version INTEGER NOT NULL, buyer {text}, changed {time})")
	return p
}

func purchasesCheck() *reconcile.Check {
	return &reconcile.Check{
		Name: "purchases", Key: []reconcile.KeyPart{{Name: "id"}}, Compare: []reconcile.Column{{Name: "status"}, {Name: "total", Log: "sum.total", As: reconcile.KindNumber}},
		Write:   &reconcile.Table{Database: "write", Table: "purchase", Version: "version"},
		Log:     &reconcile.Log{Table: reconcile.Table{Database: "write"}, Outbox: &reconcile.Outbox{AggregateType: "purchase"}},
		Confirm: []time.Duration{0}, Exemption: time.Hour,
		Reissue: &reconcile.ReissueMap{Topic: "purchases", Type: "PurchaseChanged", TypeBy: "status", Types: map[string]string{"PAID": "PurchasePaid"}, Data: map[string]string{"buyer.name": "buyer"}},
	}
}

func (p *depot) engine(check *reconcile.Check) *reconcile.Engine {
	p.t.Helper()
	e, err := reconcile.New(*check, reconcile.Databases{"write": p.d}, &reconcile.Config{Clock: p.clock})
	if err != nil {
		p.t.Fatal(err)
	}
	return e
}

func (p *depot) repairer(check *reconcile.Check) *reconcile.Repairer {
	p.t.Helper()
	r, err := reconcile.NewRepairer(p.engine(check), p.ledger, &reconcile.RepairConfig{Appender: p.appender, Operator: p.store, LeaseTTL: time.Minute})
	if err != nil {
		p.t.Fatal(err)
	}
	return r
}

// compare runs the check over all keys and keeps the findings.
func (p *depot) compare(check *reconcile.Check) *reconcile.Report {
	p.t.Helper()
	report, err := reconcile.NewRunner(p.engine(check), p.ledger, nil).Run(p.t.Context(), full)
	if err != nil {
		p.t.Fatal(err)
	}
	return report
}

// row writes a purchase as its last version, and events the events of all
// versions up to one, in a state.
func (p *depot) row(id string, version int) {
	p.t.Helper()
	exec(p.t, p.d, fmt.Sprintf("INSERT INTO purchase (id, status, total, version, buyer) VALUES ('%s', 'PAID', 10.50, %d, 'O''Hara')", id, version))
}

func (p *depot) event(id string, version int, state string) {
	p.t.Helper()
	payload := `{"status":"PAID","sum":{"total":"10.5"}}`
	bytes := "'" + payload + "'"
	if p.d.Dialect == reconcile.Postgres {
		bytes = "convert_to(" + bytes + ", 'UTF8')"
	}
	name := fmt.Sprintf("%s-%d", id, version)
	exec(p.t, p.d, fmt.Sprintf("INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, aggregate_version, event_type, topic, payload) VALUES ('%s', 'purchase', '%s', %d, 'PurchasePaid', 'purchases', %s)", name, id, version, bytes))
	p.become(name, state)
}

// become gives an event a state.
func (p *depot) become(name, state string) {
	p.t.Helper()
	id := fmt.Sprintf("(SELECT id FROM outbox_event WHERE event_id = '%s')", name)
	switch state {
	case "DEAD":
		exec(p.t, p.d, "UPDATE outbox_pending SET status = 'DEAD' WHERE id = "+id)
	case "SENT":
		exec(p.t, p.d, fmt.Sprintf("INSERT INTO outbox_receipt (id, event_id, outcome, via, published_at, note) SELECT id, event_id, 'SENT', 'poll', CURRENT_TIMESTAMP, '' FROM outbox_event WHERE event_id = '%s'", name))
		fallthrough
	case "UNQUEUED":
		exec(p.t, p.d, "DELETE FROM outbox_pending WHERE id = "+id)
	}
}

// send does what a relay does with all that it may send.
func (p *depot) send() {
	p.t.Helper()
	exec(p.t, p.d, "INSERT INTO outbox_receipt (id, event_id, outcome, via, published_at, note) SELECT e.id, e.event_id, 'SENT', 'poll', CURRENT_TIMESTAMP, '' FROM outbox_event e JOIN outbox_pending p ON p.id = e.id WHERE p.status = 'PENDING'",
		"DELETE FROM outbox_pending WHERE status = 'PENDING'")
}

// damage makes one fault of each kind that a plan has an answer to.
func (p *depot) damage() {
	p.t.Helper()
	for _, id := range []string{"ahead", "dead", "edited", "fine", "never", "unqueued"} {
		p.row(id, 2)
		p.event(id, 1, "SENT")
	}
	p.event("fine", 2, "SENT")
	p.event("dead", 2, "DEAD")
	p.event("unqueued", 2, "UNQUEUED")
	p.event("edited", 2, "SENT")
	p.event("ahead", 2, "SENT")
	p.event("ahead", 3, "SENT")
	p.event("orphan", 1, "SENT")
	exec(p.t, p.d, "UPDATE purchase SET status = 'VOID' WHERE id = 'edited'", "UPDATE purchase SET status = 'OPEN' WHERE id = 'ahead'", "UPDATE purchase SET status = 'NEW', buyer = NULL WHERE id = 'never'")
}

func deeds(actions []reconcile.Action) string {
	var lines []string
	for i := range actions {
		a := &actions[i]
		what := a.EventID
		if a.Event != nil {
			what = fmt.Sprintf("%s %s", a.Event.ID, a.Event.Data)
		}
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %s %s %s", a.Key, a.Deed, a.State, what, a.Note)))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (p *depot) plan(check *reconcile.Check, request reconcile.PlanRequest) *reconcile.Plan {
	p.t.Helper()
	request.By, request.Reason = "anna", "the import forgot them"
	plan, err := p.repairer(check).Plan(p.t.Context(), request)
	if err != nil {
		p.t.Fatal(err)
	}
	return plan
}

func (p *depot) apply(check *reconcile.Check, plan *reconcile.Plan) *reconcile.Applied {
	p.t.Helper()
	applied, err := p.repairer(check).Apply(p.t.Context(), reconcile.ApplyRequest{ID: plan.ID, Hash: plan.Hash, By: "bert"})
	if err != nil {
		p.t.Fatal(err)
	}
	return applied
}

// audit lists what was recorded, the oldest first.
func (p *depot) audit() string {
	p.t.Helper()
	entries, err := p.store.Audit(p.t.Context(), 1000)
	if err != nil {
		p.t.Fatal(err)
	}
	var lines []string
	for _, e := range entries {
		lines = append(lines, e.Actor+" "+e.Verb+" "+e.Target)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func count(t *testing.T, d reconcile.Database, query string) (n int) {
	t.Helper()
	if err := d.DB.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

func TestAPlanMendsTheWriteSide(t *testing.T) {
	for _, dialect := range []reconcile.Dialect{reconcile.SQLite, reconcile.Postgres, reconcile.MySQL, reconcile.MariaDB} {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			p, check := newDepot(t, dialect), purchasesCheck()
			p.damage()
			if report := p.compare(check); report.Differences != 6 {
				t.Fatalf("damaged:\n%s", report.Text())
			}
			plan := p.plan(check, reconcile.PlanRequest{DryRun: true})
			if plans, err := p.ledger.Plans(t.Context(), "", 0); err != nil || len(plans) != 0 || plan.Recorded {
				t.Errorf("a plan that was only to be seen is recorded: %v, %v", plans, err)
			}
			plan = p.plan(check, reconcile.PlanRequest{})
			want := strings.Join([]string{
				"ahead await PLANNED",
				"dead retry PLANNED dead-2",
				"edited await PLANNED",
				`never reissue PLANNED /purchase/never/2/PurchaseChanged {"buyer":{"name":null},"status":"NEW","sum":{"total":10.5}}`,
				`orphan void PLANNED /purchase/orphan/2/PurchaseVoided {"voided":"orphan-1"}`,
				"unqueued requeue PLANNED unqueued-2",
			}, "\n")
			if got := deeds(plan.Actions); got != want || plan.Changes() != 4 {
				t.Fatalf("planned:\n%s\nwant:\n%s", got, want)
			}
			events := count(t, p.d, "SELECT COUNT(*) FROM outbox_event")

			dry, err := p.repairer(check).Apply(t.Context(), reconcile.ApplyRequest{ID: plan.ID, Hash: plan.Hash, By: "bert", DryRun: true})
			if err != nil || dry.Outcomes[reconcile.ActionDone] != 6 {
				t.Errorf("rehearsed: %+v, %v", dry, err)
			}
			if after := p.audit(); after != "" || count(t, p.d, "SELECT COUNT(*) FROM outbox_event") != events {
				t.Errorf("the rehearsal has changed something: %s", after)
			}
			if _, err := p.repairer(check).Apply(t.Context(), reconcile.ApplyRequest{ID: plan.ID, Hash: "another", By: "bert"}); !errors.Is(err, reconcile.ErrPlanChanged) {
				t.Errorf("with another hash: %v", err)
			}

			for range 2 { // the second time there is nothing to do
				applied := p.apply(check, plan)
				if r := applied.Recheck; applied.Outcomes[reconcile.ActionDone] != 6 || r == nil || r.Differences != 0 || r.InFlight != 4 || r.Keys != 4 {
					t.Fatalf("applied: %s\n%s", deeds(applied.Actions), r.Text())
				}
			}
			wantAudit := strings.Join([]string{
				"bert reconcile reissue /purchase/never/2/PurchaseChanged", "bert reconcile requeue unqueued-2",
				"bert reconcile retry dead-2", "bert reconcile void /purchase/orphan/2/PurchaseVoided",
			}, "\n")
			if got := p.audit(); got != wantAudit {
				t.Errorf("audit:\n%s\nwant:\n%s", got, wantAudit)
			}
			if got := count(t, p.d, "SELECT COUNT(*) FROM outbox_event"); got != events+2 {
				t.Errorf("%d events, want two more than %d", got, events)
			}
			p.send()
			if got := listed(p.compare(check)); got != "ORPHAN_EVENT ahead\nMISMATCH_WRITE edited\n" {
				t.Errorf("after the relay:\n%s", got)
			}
			expectStates(t, p.ledger, "MISMATCH_WRITE edited AWAITING_VERDICT", "MISSING_EVENT dead RESOLVED", "MISSING_EVENT never RESOLVED", "MISSING_EVENT unqueued RESOLVED",
				"ORPHAN_EVENT ahead AWAITING_VERDICT", "ORPHAN_EVENT orphan RESOLVED")
			if again := p.plan(check, reconcile.PlanRequest{}); len(again.Actions) != 0 {
				t.Errorf("what waits for a verdict is planned again: %s", deeds(again.Actions))
			}

			// The verdicts: the row of one is right, the event of the other.
			for key, accept := range map[string]string{"ahead": "row", "edited": "event"} {
				found, err := p.ledger.ListFindings(t.Context(), reconcile.FindingFilter{Key: key})
				if err != nil || len(found) != 1 {
					t.Fatal(found, err)
				}
				verdict := p.plan(check, reconcile.PlanRequest{Findings: []string{found[0].ID}, Accept: accept})
				if applied := p.apply(check, verdict); applied.Outcomes[reconcile.ActionDone] != 1 {
					t.Errorf("accept %s: %s", accept, deeds(applied.Actions))
				}
			}
			if n := count(t, p.d, "SELECT COUNT(*) FROM purchase WHERE id = 'edited' AND status = 'PAID' AND version = 2 OR id = 'ahead' AND status = 'OPEN' AND version = 4"); n != 2 {
				t.Errorf("%d of the two rows are as accepted", n)
			}
			p.send()
			if report := p.compare(check); report.Differences+report.InFlight+report.Unverified != 0 {
				t.Errorf("in the end:\n%s", report.Text())
			}
			if counted := count(t, p.d, "SELECT COUNT(*) FROM outbox_event WHERE event_id = '/purchase/ahead/4/PurchaseChanged'"); counted != 1 {
				t.Errorf("%d events tell of the accepted row", counted)
			}
		})
	}
}

// What has changed since the plan was made is left alone, whichever side of it.
func TestAChangedRowMakesItsActionStale(t *testing.T) {
	for _, dialect := range []reconcile.Dialect{reconcile.SQLite, reconcile.Postgres, reconcile.MySQL} {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			p, check := newDepot(t, dialect), purchasesCheck()
			for _, id := range []string{"column", "extra", "gone", "log", "healed", "same"} {
				p.row(id, 2)
				p.event(id, 1, "SENT")
			}
			p.event("orphan", 1, "SENT")
			p.compare(check)
			plan := p.plan(check, reconcile.PlanRequest{})
			if plan.Changes() != 7 {
				t.Fatalf("planned:\n%s", deeds(plan.Actions))
			}
			exec(t, p.d, "UPDATE purchase SET total = 11 WHERE id = 'column'", "UPDATE purchase SET buyer = 'another' WHERE id = 'extra'", "DELETE FROM purchase WHERE id = 'gone'")
			exec(t, p.d, "UPDATE purchase SET version = 4 WHERE id = 'log'")
			p.event("log", 3, "SENT")
			p.event("healed", 2, "SENT")
			p.row("orphan", 1)
			events := count(t, p.d, "SELECT COUNT(*) FROM outbox_event")
			applied := p.apply(check, plan)
			states := make(map[string]reconcile.ActionState)
			for _, a := range applied.Actions {
				states[a.Key] = a.State
			}
			for key, want := range map[string]reconcile.ActionState{
				"column": reconcile.ActionStale, "extra": reconcile.ActionStale, "gone": reconcile.ActionStale, "log": reconcile.ActionStale,
				"healed": reconcile.ActionHealed, "orphan": reconcile.ActionHealed, "same": reconcile.ActionDone,
			} {
				if states[key] != want {
					t.Errorf("%s is %s, want %s", key, states[key], want)
				}
			}
			if got := count(t, p.d, "SELECT COUNT(*) FROM outbox_event"); got != events+1 {
				t.Errorf("%d events were written, want one", got-events)
			}
			if got := p.audit(); got != "bert reconcile reissue /purchase/same/2/PurchasePaid" {
				t.Errorf("audit:\n%s", got)
			}
		})
	}
}

func TestManyChangesNeedASecondPerson(t *testing.T) {
	p, check := newDepot(t, reconcile.SQLite), purchasesCheck()
	check.Repair = reconcile.RepairSettings{ApproveAbove: new(2), Rate: 4}
	for i := range 3 {
		p.row(fmt.Sprint("r", i), 1)
	}
	p.compare(check)
	plan := p.plan(check, reconcile.PlanRequest{})
	apply := func() error {
		_, err := p.repairer(check).Apply(t.Context(), reconcile.ApplyRequest{ID: plan.ID, Hash: plan.Hash, By: "anna"})
		return err
	}
	if err := apply(); !errors.Is(err, reconcile.ErrNotApproved) {
		t.Fatalf("without approval: %v", err)
	}
	for _, by := range []string{"anna", " Anna "} {
		if _, err := p.repairer(check).Approve(t.Context(), plan.ID, plan.Hash, by); !errors.Is(err, reconcile.ErrSamePerson) {
			t.Errorf("approved by its planner as %q: %v", by, err)
		}
	}
	if _, err := p.repairer(check).Approve(t.Context(), plan.ID, "another", "bert"); !errors.Is(err, reconcile.ErrPlanChanged) {
		t.Errorf("approved by another hash: %v", err)
	}
	approved, err := p.repairer(check).Approve(t.Context(), plan.ID, plan.Hash, "bert")
	if err != nil || approved.ApprovedBy != "bert" || approved.ApprovedAt == nil {
		t.Fatal(approved, err)
	}

	// What was approved is what is done: not a plan that was changed in its table.
	exec(t, p.d, `UPDATE "Proof-action" SET body = replace(body, 'PurchasePaid', 'PurchaseFaked') WHERE seq = 2`)
	if err := apply(); !errors.Is(err, reconcile.ErrPlanChanged) {
		t.Fatalf("a plan that was changed: %v", err)
	}
	exec(t, p.d, `UPDATE "Proof-action" SET body = replace(body, 'PurchaseFaked', 'PurchasePaid') WHERE seq = 2`)
	p.clock.waited = nil
	if err := apply(); err != nil {
		t.Fatal(err)
	}
	paced := 0
	for _, d := range p.clock.waited {
		if d == 250*time.Millisecond {
			paced++
		}
	}
	if paced != 3 {
		t.Errorf("at four changes a second it rested %v", p.clock.waited)
	}
	found, err := p.ledger.FindPlan(t.Context(), plan.ID)
	if err != nil || found.State != reconcile.PlanApplied || found.AppliedBy != "anna" || found.ApprovedBy != "bert" || found.FinishedAt == nil || found.Actions[2].By != "anna" || found.Actions[2].At == nil {
		t.Errorf("on record: %+v, %v", found, err)
	}
	if _, err := p.repairer(check).Approve(t.Context(), plan.ID, plan.Hash, "carl"); err == nil {
		t.Error("a plan that was applied is approved")
	}
	check.Exemption++ // another check by now
	if err := apply(); err == nil || !strings.Contains(err.Error(), "the check has changed") {
		t.Errorf("under another check: %v", err)
	}
}

// An event that the check would not find equal to the row is not written.
func TestWhatCannotBeMadeOfARowIsLeftForAVerdict(t *testing.T) {
	p, check := newDepot(t, reconcile.SQLite), purchasesCheck()
	p.row("r", 1)
	p.compare(check)
	for name, change := range map[string]func(*reconcile.Check){
		"no map": func(c *reconcile.Check) { c.Reissue = nil },
		"no type": func(c *reconcile.Check) {
			c.Reissue.Type, c.Reissue.Types = "", map[string]string{"NEW": "PurchasePlaced"}
		},
		"a member that covers another": func(c *reconcile.Check) {
			c.Reissue.Data = map[string]string{"status": "buyer"}
		},
		"changes instead of states": func(c *reconcile.Check) { c.Events = "delta" },
	} {
		check := purchasesCheck()
		reissue := *check.Reissue
		check.Reissue = &reissue
		change(check)
		plan := p.plan(check, reconcile.PlanRequest{})
		if got := deeds(plan.Actions); got != "r await PLANNED" || plan.Actions[0].Why == "" {
			t.Errorf("%s: %s (%s)", name, got, plan.Actions[0].Why)
		}
	}
}
