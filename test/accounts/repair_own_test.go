package accounts

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/reconcile"
	"github.com/waybillhq/waybill/store"
)

// book appends events to a log that an application has made for itself.
type book struct{}

func (book) Append(ctx context.Context, tx store.SQLTx, events []waybill.Event) ([]error, error) {
	for _, e := range events {
		if _, err := tx.ExecContext(ctx, "INSERT INTO book (event_id, purchase, kind, version, state, body, at) VALUES (?, ?, ?, ?, 'PENDING', ?, CURRENT_TIMESTAMP)",
			e.ID, e.AggregateID, e.Type, e.AggregateVersion, string(e.Data)); err != nil {
			return nil, err
		}
	}
	return make([]error, len(events)), nil
}

func (book) Existing(context.Context, store.SQLTx, []string) ([]waybill.Event, error) {
	return nil, errors.New("nobody asks")
}

// wordy makes events that no map of columns can make.
type wordy struct{ asked []string }

func (w *wordy) Reissue(_ context.Context, row *reconcile.ReissueRow) (waybill.Event, error) {
	w.asked = append(w.asked, strings.Join(row.Key, "/")+" "+row.Columns["status"].String())
	if row.Key[0] == "odd" {
		return waybill.Event{}, errors.New("there is no word for it")
	}
	return waybill.Event{Type: "PurchaseTold", Topic: "purchases", Data: []byte(`{"status":"PAID","sum":{"total":"10.5","in words":"ten and a half"}}`)}, nil
}

// A log of one's own, with an appender of one's own and events made in Go.
func TestALogOfYourOwnIsMendedByYourOwnCode(t *testing.T) {
	p := newDepot(t, reconcile.SQLite)
	exec(t, p.d, "CREATE TABLE book (event_id TEXT PRIMARY KEY, purchase TEXT NOT NULL, kind TEXT NOT NULL, version INTEGER NOT NULL, state TEXT NOT NULL, body TEXT NOT NULL, at TEXT NOT NULL)")
	check := purchasesCheck()
	check.Log = &reconcile.Log{
		Table: reconcile.Table{Database: "write", Table: "book", Key: []string{"purchase"}, Version: "version", EventID: "event_id"},
		State: "state", CreatedAt: "at", Type: "kind", Payload: "body",
	}
	check.Reissue = &reconcile.ReissueMap{AggregateType: "purchase", Type: "PurchaseChanged", Topic: "purchases"}
	p.row("plain", 1)
	p.row("odd", 1)
	exec(t, p.d, "INSERT INTO book VALUES ('x', 'nobody', 'PurchasePaid', 1, 'SENT', '{}', '2026-01-01T00:00:00Z')", "INSERT INTO book VALUES ('y', 'dead', 'PurchasePaid', 1, 'DEAD', '{}', '2026-01-01T00:00:00Z')")
	p.row("dead", 1)
	p.compare(check)

	words := &wordy{}
	repairer := func() *reconcile.Repairer {
		r, err := reconcile.NewRepairer(p.engine(check), p.ledger, &reconcile.RepairConfig{Appender: book{}, Reissuer: words})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	plan, err := repairer().Plan(t.Context(), reconcile.PlanRequest{By: "anna", Reason: "the old program"})
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		"dead await PLANNED", "nobody void PLANNED /purchase/nobody/2/PurchaseVoided {\"voided\":\"x\"}", "odd await PLANNED",
		`plain reissue PLANNED /purchase/plain/1/PurchaseTold {"status":"PAID","sum":{"total":"10.5","in words":"ten and a half"}}`,
	}, "\n")
	if got := deeds(plan.Actions); got != want || len(words.asked) != 2 || words.asked[0] != `odd "PAID"` && words.asked[1] != `odd "PAID"` {
		t.Fatalf("planned:\n%s\nwant:\n%s\nasked %q", got, want, words.asked)
	}
	for range 2 {
		applied, err := repairer().Apply(t.Context(), reconcile.ApplyRequest{ID: plan.ID, Hash: plan.Hash, By: "bert"})
		if err != nil || applied.Outcomes[reconcile.ActionDone] != 4 {
			t.Fatalf("applied: %+v, %v", applied, err)
		}
	}
	exec(t, p.d, "UPDATE book SET state = 'SENT'")
	// What was left for a verdict is what the log's own state now says.
	if got := listed(p.compare(check)); got != "MISSING_EVENT odd\nMISMATCH_WRITE dead\n" {
		t.Errorf("afterwards:\n%s", got)
	}
	if n := count(t, p.d, "SELECT COUNT(*) FROM book"); n != 4 {
		t.Errorf("%d events, want 4", n)
	}
}

// An application's trigger that turns the version once more would leave a new
// difference in the place of the old one: nothing is changed then.
func TestAnActionThatWouldNotHelpChangesNothing(t *testing.T) {
	p, check := newDepot(t, reconcile.SQLite), purchasesCheck()
	p.row("r", 2)
	p.event("r", 3, "SENT")
	exec(t, p.d, "CREATE TRIGGER again AFTER UPDATE OF version ON purchase WHEN new.version = 4 BEGIN UPDATE purchase SET version = 2 WHERE id = new.id; END")
	p.compare(check)
	applied := p.apply(check, p.plan(check, reconcile.PlanRequest{Accept: "row"}))
	if got := applied.Actions[0]; got.Deed != reconcile.DeedAcceptRow || got.State != reconcile.ActionFailed || !strings.HasPrefix(got.Note, "it would not help: ") {
		t.Errorf("applied: %+v", got)
	}
	if n := count(t, p.d, "SELECT COUNT(*) FROM outbox_event") + count(t, p.d, "SELECT COUNT(*) FROM waybill_audit") + count(t, p.d, "SELECT version FROM purchase"); n != 3 {
		t.Errorf("events, entries and version are %d in all, want 1, 0 and 2", n)
	}
}
