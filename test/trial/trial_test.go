package trial

import (
	"context"
	"flag"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/waybillhq/waybill/reconcile"
	"github.com/waybillhq/waybill/store/postgres"
)

var (
	numberOf = flag.Int("trial.faults", 306, "how much is broken")
	seedOf   = flag.Uint64("trial.seed", 0, "repeats a choice of faults; 0 for another one each time")
	quietOf  = flag.Int("trial.quiet", 1, "how many runs go without a fault")
)

func seed(t *testing.T) uint64 {
	n := *seedOf
	if n == 0 {
		n = rand.Uint64()
	}
	t.Logf("-trial.seed=%d", n)
	return n
}

func purchasesCheck() *reconcile.Check {
	return &reconcile.Check{
		Name: "purchases", Key: []reconcile.KeyPart{{Name: "tenant"}, {Name: "id"}}, Compare: []reconcile.Column{{Name: "status"}, {Name: "total", As: reconcile.KindNumber}},
		Write:    &reconcile.Table{Database: "shop", Table: "purchase", Version: "version", UpdatedAt: "updated_at"},
		Log:      &reconcile.Log{Table: reconcile.Table{Database: "shop"}, Outbox: &reconcile.Outbox{AggregateType: "purchase"}, Deletes: []string{removed}},
		Read:     &reconcile.Table{Database: "search", Table: "purchase_view", Version: "version", EventID: "event_id", UpdatedAt: "updated_at"},
		Consumer: &reconcile.Consumer{Database: "search"},
		// A killed consumer is missed for two seconds, a killed relay for as long; the
		// machine may do other work.
		Exemption: 30 * time.Second, Deadline: 30 * time.Second, Confirm: []time.Duration{500 * time.Millisecond, 1500 * time.Millisecond},
		Window: 15 * time.Second, ChunkRows: 500,
	}
}

func (w *town) runner(dense bool) *reconcile.Runner {
	check := purchasesCheck()
	check.Consumer.Group = w.topic
	if dense {
		check.Name, check.Density = "every version", "every_version"
	}
	engine, err := reconcile.New(*check, reconcile.Databases{"shop": {DB: w.write, Dialect: reconcile.Postgres, Texts: postgres.ReadTexts}, "search": {DB: w.read, Dialect: reconcile.MySQL}}, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return reconcile.NewRunner(engine, w.ledger, nil)
}

// look runs the check, and demands that all of it could be read.
func (w *town) look(r *reconcile.Runner, mode reconcile.Mode, dense bool) *reconcile.Report {
	w.t.Helper()
	report, err := r.Run(w.t.Context(), reconcile.Scope{Mode: mode})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, line := range w.truth.report(report, dense) {
		w.t.Errorf("%s: %s", mode, line)
	}
	if !report.Coverage.Complete {
		w.t.Errorf("%s: not all was compared: %+v", mode, report.Coverage.Failed)
	}
	return report
}

// watch runs the check again and again, mostly over what changed lately.
func (w *town) watch(ctx context.Context) (wait func() (runs int)) {
	runner, runs := w.runner(false), 0
	var running sync.WaitGroup
	running.Go(func() {
		for ; ctx.Err() == nil; runs++ {
			mode := reconcile.ModeWindow
			if runs%2 == 1 {
				mode = reconcile.ModeFull
			}
			w.look(runner, mode, false)
		}
	})
	return func() int {
		running.Wait()
		return runs
	}
}

// TestEachFaultIsFoundAndNothingElse plants faults at random moments of a busy
// day, and compares what was reported with what was done.
func TestEachFaultIsFoundAndNothingElse(t *testing.T) {
	if testing.Short() {
		t.Skip("needs databases and Kafka for more than a minute")
	}
	began := time.Now()
	w := newTown(t, seed(t), max(1200, 3**numberOf))
	busy, calm := context.WithCancel(t.Context())
	defer calm()
	loaded := w.load(busy, 4)
	peace := w.chaos(busy, 3*time.Second)
	watched := w.watch(busy)
	var late sync.WaitGroup
	late.Go(func() { // a whole half minute, from the first moment to the last
		p, err := (&planter{town: w}).victim(&faults[0])
		if err == nil {
			w.truth.note(&fault{name: "transaction of 30 s"}, p.name())
			err = w.dawdle(t.Context(), p, 30*time.Second)
			p.mu.Unlock()
		}
		if err != nil {
			t.Errorf("a transaction of 30 s: %v", err)
		}
	})
	w.plant(t.Context(), *numberOf, 32*time.Second)
	late.Wait()
	calm()
	loaded()
	peace()
	runs := watched()
	w.drained(5 * time.Minute)
	w.look(w.runner(false), reconcile.ModeFull, false)
	w.look(w.runner(true), reconcile.ModeFull, true)

	s := w.truth.matrix()
	t.Logf("%d faults beside %d changes and %d kills, %d runs of the check, %.0f s\n\n%s\nrecall %.4f, precision %.4f",
		s.faults, w.changes, w.kills(), runs+2, time.Since(began).Seconds(), s.text, s.recall(), s.precision())
	for _, line := range w.truth.missed() {
		t.Errorf("not found: %s", line)
	}
	if s.faults < *numberOf || s.recall() != 1 || s.precision() != 1 || w.kills() == 0 {
		t.Errorf("%d faults, %d kills, recall %g, precision %g: want %d, some, 1 and 1", s.faults, w.kills(), s.recall(), s.precision(), *numberOf)
	}
}

// TestABusyDayHasNoFinding kills relays and consumers, and breaks nothing.
func TestABusyDayHasNoFinding(t *testing.T) {
	if testing.Short() {
		t.Skip("needs databases and Kafka for half a minute")
	}
	for range *quietOf {
		t.Run("run", busyDay)
	}
}

func busyDay(t *testing.T) {
	n := seed(t)
	w := newTown(t, n, 1200)
	busy, calm := context.WithCancel(t.Context()) // a deadline would be one for each statement, too
	defer calm()
	defer time.AfterFunc(20*time.Second, calm).Stop()
	loaded := w.load(busy, 4)
	peace := w.chaos(busy, 2*time.Second)
	runs := w.watch(busy)()
	loaded()
	peace()
	w.drained(5 * time.Minute)
	last := w.look(w.runner(false), reconcile.ModeFull, false)
	dense := w.look(w.runner(true), reconcile.ModeFull, true)
	t.Logf("seed %20d: %5d changes, %2d kills, %2d runs of the check: %d findings; at the end %d keys, %d differences, %d with every version, %d in flight",
		n, w.changes, w.kills(), runs+2, len(w.truth.strange), last.Keys, last.Differences, dense.Differences, last.InFlight)
	if last.Differences+dense.Differences+last.InFlight+last.Unverified != 0 || w.changes < 200 || w.kills() == 0 {
		t.Errorf("not as it should be:\n%s", last.Text())
	}
}
