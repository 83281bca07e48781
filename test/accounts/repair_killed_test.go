package accounts

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/waybillhq/waybill/reconcile"
)

// Killed at any step, a plan is finished by applying it again: each event is
// there once, and so is each entry of the audit.
func TestAPlanThatIsKilledIsAppliedAgain(t *testing.T) {
	each := func(names ...string) (points []string) {
		for _, name := range names {
			for n := 1; n <= 4; n++ {
				points = append(points, fmt.Sprintf("reconcile.apply.%s:%d", name, n))
			}
		}
		return points
	}
	some := []string{"reconcile.apply.started:2", "reconcile.apply.commit:1", "reconcile.apply.done:1", "reconcile.apply.done:3", "reconcile.apply.marked:2"}
	for dialect, points := range map[reconcile.Dialect][]string{
		reconcile.SQLite: slices.Concat([]string{"reconcile.apply.begun", "reconcile.apply.commit:1", "reconcile.apply.commit:2", "reconcile.apply.recheck", "reconcile.apply.rechecked"},
			each("started", "done", "marked")),
		reconcile.Postgres: some,
		reconcile.MySQL:    some,
	} {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			p, check := newDepot(t, dialect), purchasesCheck()
			where := address(t, p.d)
			for _, point := range points {
				exec(t, p.d, "DELETE FROM purchase", "DELETE FROM outbox_pending", "DELETE FROM outbox_receipt", "DELETE FROM outbox_event", "DELETE FROM waybill_audit")
				for _, id := range []string{"dead", "never", "unqueued"} {
					p.row(id, 2)
					p.event(id, 1, "SENT")
				}
				p.event("dead", 2, "DEAD")
				p.event("unqueued", 2, "UNQUEUED")
				p.event("orphan", 1, "SENT")
				p.compare(check)
				plan := p.plan(check, reconcile.PlanRequest{})
				if len(plan.Actions) != 4 {
					t.Fatalf("planned:\n%s", deeds(plan.Actions))
				}

				child := (&task{Dialect: dialect, Address: where, Plan: plan.ID, Hash: plan.Hash}).start(t, point)
				child.reached()
				child.signal(syscall.SIGKILL)
				<-child.done
				if _, err := p.repairer(check).Apply(t.Context(), reconcile.ApplyRequest{ID: plan.ID, Hash: plan.Hash, By: "bert"}); !errors.Is(err, reconcile.ErrRunning) {
					t.Errorf("%s: while the lease of the dead lives: %v", point, err)
				}
				exec(t, p.d, "UPDATE {q}Proof-lease{q} SET expires_at = '2001-01-01 00:00:00'")
				applied := p.apply(check, plan)
				if applied.Outcomes[reconcile.ActionDone] != 4 {
					t.Errorf("killed at %s and applied again:\n%s", point, deeds(applied.Actions))
				}
				want := strings.Join([]string{
					"bert reconcile reissue /purchase/never/2/PurchasePaid", "bert reconcile requeue unqueued-2",
					"bert reconcile retry dead-2", "bert reconcile void /purchase/orphan/2/PurchaseVoided",
				}, "\n")
				if got := p.audit(); got != want {
					t.Errorf("killed at %s and applied again, the audit has:\n%s\nwant:\n%s", point, got, want)
				}
				if events, queued := count(t, p.d, "SELECT COUNT(*) FROM outbox_event"), count(t, p.d, "SELECT COUNT(*) FROM outbox_pending WHERE status = 'PENDING'"); events != 8 || queued != 4 {
					t.Errorf("killed at %s and applied again: %d events, %d queued, want 8 and 4", point, events, queued)
				}
				found, err := p.ledger.FindPlan(t.Context(), plan.ID)
				if err != nil || found.State != reconcile.PlanApplied || found.FinishedAt == nil {
					t.Errorf("killed at %s and applied again: the plan is %+v, %v", point, found, err)
				}
				p.send()
				if report := p.compare(check); report.Differences+report.InFlight != 0 {
					t.Errorf("killed at %s, applied again and sent:\n%s", point, report.Text())
				}
			}
		})
	}
}
