package accounts

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/waybillhq/waybill/reconcile"
)

// heard notes the alerts of all processes.
type heard struct {
	mu     sync.Mutex
	alerts []string
}

func (h *heard) Notify(_ context.Context, alert *reconcile.Alert) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.alerts = append(h.alerts, fmt.Sprintf("%s firing=%t", alert.Name, alert.Firing))
	return nil
}

func (h *heard) list() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.alerts)
}

// Two processes watch one check: one of them runs it at a time, and each alert
// is told once.
func TestTwoWatchersAreAsOne(t *testing.T) {
	eachKept(t, func(t *testing.T, write, read reconcile.Database) {
		newOrders(t, write, read)
		ledger := newLedger(t, write)
		exec(t, write, "UPDATE {q}log{q} SET state = 'DEAD' WHERE event_id = 'a-2'")
		check := ordersCheck()
		check.Schedule = reconcile.Schedule{Tolerance: time.Hour, Every: 50 * time.Millisecond, Alerts: map[string]reconcile.AlertRule{reconcile.AlertOverdue: {Off: true}}}
		told := &heard{}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var both sync.WaitGroup
		for _, owner := range []string{"one", "two"} {
			e := engine(t, check, write, read)
			alerter := reconcile.NewAlerter(e.Check(), ledger, map[string]reconcile.Notifier{"all": told}, nil)
			config := &reconcile.RunnerConfig{Owner: owner}
			watcher := reconcile.NewWatcher(reconcile.NewRunner(e, ledger, config), ledger, alerter, reconcile.WatchEvents{
				Failed: func(what string, err error) { t.Errorf("%s: %s: %v", owner, what, err) },
			})
			both.Go(func() {
				if err := watcher.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		finished := func() (runs []reconcile.RunRecord) {
			t.Helper()
			all, err := ledger.Runs(t.Context(), "orders", 0)
			if err != nil {
				t.Fatal(err)
			}
			return slices.DeleteFunc(all, func(r reconcile.RunRecord) bool { return r.State != reconcile.RunDone })
		}
		wait(t, "four runs, one of them of all keys", func() bool {
			runs := finished()
			return len(runs) >= 4 && slices.ContainsFunc(runs, func(r reconcile.RunRecord) bool { return r.Mode == reconcile.ModeWeekly })
		})
		wait(t, "the alert", func() bool { return len(told.list()) > 0 })
		exec(t, write, "UPDATE {q}log{q} SET state = 'SENT' WHERE event_id = 'a-2'")
		wait(t, "the end of the alert", func() bool { return len(told.list()) > 1 })
		stop()
		both.Wait()
		if got := told.list(); !slices.Equal(got, []string{"MISSING_EVENT firing=true", "MISSING_EVENT firing=false"}) {
			t.Errorf("told %v", got)
		}
		runs := finished()
		slices.SortFunc(runs, func(a, b reconcile.RunRecord) int { return a.StartedAt.Compare(b.StartedAt) })
		for i := 1; i < len(runs); i++ {
			if runs[i].StartedAt.Add(2 * time.Millisecond).Before(*runs[i-1].FinishedAt) { // SQLite rounds
				t.Errorf("run %s of %s began before that of %s ended: %s, %s", runs[i].ID, runs[i].Owner, runs[i-1].Owner, runs[i].StartedAt, runs[i-1].FinishedAt)
			}
		}
	})
}
