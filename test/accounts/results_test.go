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
)

// eachKept runs a test over three pairs: the fourth dialect is a relative of one
// of them, and has its turn in TestAFindingIsOpenForAsLongAsItIsSeen.
func eachKept(t *testing.T, f func(t *testing.T, write, read reconcile.Database)) {
	for _, pair := range pairs[:3] {
		t.Run(fmt.Sprintf("%s and %s", pair[0], pair[1]), func(t *testing.T) {
			f(t, open(t, pair[0]), open(t, pair[1]))
		})
	}
}

func newLedger(t *testing.T, d reconcile.Database) *reconcile.Ledger {
	t.Helper()
	ledger, err := reconcile.NewLedger(d, &reconcile.LedgerConfig{Prefix: "Proof-"})
	if err != nil {
		t.Fatal(err)
	}
	if err := ledger.Ready(t.Context()); err == nil {
		t.Fatal("tables that are not there are ready")
	}
	for range 2 {
		if err := ledger.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := ledger.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return ledger
}

func runner(t *testing.T, check *reconcile.Check, write, read reconcile.Database, results reconcile.Results, config *reconcile.RunnerConfig) *reconcile.Runner {
	t.Helper()
	return reconcile.NewRunner(engine(t, check, write, read), results, config)
}

// kept runs a check and keeps its results.
func kept(t *testing.T, check *reconcile.Check, write, read reconcile.Database, results reconcile.Results, scope reconcile.Scope) *reconcile.Report {
	t.Helper()
	report, err := runner(t, check, write, read, results, nil).Run(t.Context(), scope)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

var full, window, weekly = reconcile.Scope{Mode: reconcile.ModeFull}, reconcile.Scope{Mode: reconcile.ModeWindow}, reconcile.Scope{Mode: reconcile.ModeWeekly}

// states lists the findings on record.
func states(t *testing.T, ledger *reconcile.Ledger) string {
	t.Helper()
	found, err := ledger.ListFindings(t.Context(), reconcile.FindingFilter{})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range found {
		lines = append(lines, fmt.Sprintf("%s %s %s", f.Class, f.Key, f.State))
	}
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}

func expectStates(t *testing.T, ledger *reconcile.Ledger, want ...string) {
	t.Helper()
	if got := states(t, ledger); got != strings.Join(want, ", ") {
		t.Errorf("on record: %s\nwant: %s", got, strings.Join(want, ", "))
	}
}

func TestAFindingIsOpenForAsLongAsItIsSeen(t *testing.T) {
	eachPair(t, func(t *testing.T, write, read reconcile.Database) {
		o := newOrders(t, write, read)
		ledger := newLedger(t, write)
		o.put("x", 2)
		o.put("old", 2)
		exec(t, write, "UPDATE {q}log{q} SET state = 'DEAD' WHERE event_id = 'x-2'",
			"UPDATE {q}Sales-EU Order{q} SET status = 'VOID', updated_at = '2001-01-01 00:00:00' WHERE {q}order{q} = 'old'",
			"UPDATE {q}log{q} SET at = '2001-01-01 00:00:00' WHERE {q}order{q} = 'old'")
		exec(t, read, "DELETE FROM {q}read{q} WHERE id = 'a'")
		report := kept(t, ordersCheck(), write, read, ledger, window)
		if report.Keys != 10 || report.RunID == "" || report.Mode != reconcile.ModeWindow {
			t.Errorf("%d keys, run %q, mode %s", report.Keys, report.RunID, report.Mode)
		}
		expectStates(t, ledger, "MISMATCH_READ a OPEN", "MISSING_EVENT x OPEN")
		kept(t, ordersCheck(), write, read, ledger, full)
		expectStates(t, ledger, "MISMATCH_READ a OPEN", "MISMATCH_WRITE old OPEN", "MISSING_EVENT x OPEN")
		found, err := ledger.ListFindings(t.Context(), reconcile.FindingFilter{Key: "x"})
		if err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}
		x := found[0]
		if x.Seen != 2 || x.FirstRun == x.LastRun || x.FirstSeen.After(x.LastSeen) || x.FirstSeen.IsZero() || x.Causes[0].Code != reconcile.Dead || !strings.Contains(string(x.Sample), `"x-2"`) {
			t.Errorf("on record: %+v", x)
		}

		// A window looks again at what is open, whatever the window; what somebody
		// ignores stays so, and a finding that is mended is resolved.
		ignored, err := ledger.Decide(t.Context(), x.ID, reconcile.Decision{State: reconcile.FindingIgnored, By: "anna", Reason: "known"})
		if err != nil || ignored.State != reconcile.FindingIgnored || ignored.By != "anna" || ignored.Reason != "known" {
			t.Fatal(ignored, err)
		}
		exec(t, write, "UPDATE {q}Sales-EU Order{q} SET status = 'PAID' WHERE {q}order{q} = 'old'")
		report = kept(t, ordersCheck(), write, read, ledger, window)
		if report.Differences != 2 || report.Ignored != 1 {
			t.Errorf("%d differences, %d ignored", report.Differences, report.Ignored)
		}
		expectStates(t, ledger, "MISMATCH_READ a OPEN", "MISMATCH_WRITE old RESOLVED", "MISSING_EVENT x IGNORED")
		standing, err := ledger.Standing(t.Context(), "orders")
		if err != nil || standing.Open[reconcile.MissingEvent] != 0 || standing.Open[reconcile.MismatchRead] != 1 || standing.Ignored != 1 || standing.OpenSince[reconcile.MismatchRead].IsZero() {
			t.Errorf("standing %+v, %v", standing, err)
		}

		// One that comes back is open again, and new.
		exec(t, write, "UPDATE {q}log{q} SET state = 'SENT' WHERE event_id = 'x-2'")
		kept(t, ordersCheck(), write, read, ledger, reconcile.Scope{Mode: reconcile.ModeKey, Keys: [][]string{{"x"}}})
		expectStates(t, ledger, "MISMATCH_READ a OPEN", "MISMATCH_WRITE old RESOLVED", "MISSING_EVENT x RESOLVED")
		if _, err := ledger.Decide(t.Context(), x.ID, reconcile.Decision{State: reconcile.FindingIgnored, By: "anna", Reason: "late"}); !errors.Is(err, reconcile.ErrResolved) {
			t.Errorf("a decision about what is resolved: %v", err)
		}
		exec(t, write, "UPDATE {q}log{q} SET state = 'DEAD' WHERE event_id = 'x-2'")
		report = kept(t, ordersCheck(), write, read, ledger, reconcile.Scope{Mode: reconcile.ModeEvent, Events: []string{"x-1"}})
		if got := listed(report); got != "MISSING_EVENT x\n" || report.Keys != 1 {
			t.Errorf("by event: %s", got)
		}
		again, err := ledger.FindFinding(t.Context(), x.ID)
		if err != nil || again.State != reconcile.FindingOpen || again.Seen != 1 || !again.FirstSeen.After(x.FirstSeen) || again.ResolvedAt != nil {
			t.Errorf("came back: %+v, %v", again, err)
		}

		// Ignored for a time, it opens by itself.
		if _, err := ledger.Decide(t.Context(), x.ID, reconcile.Decision{State: reconcile.FindingIgnored, Until: time.Now().Add(-time.Hour), By: "anna", Reason: "soon"}); err != nil {
			t.Fatal(err)
		}
		report = kept(t, ordersCheck(), write, read, ledger, window)
		expectStates(t, ledger, "MISMATCH_READ a OPEN", "MISMATCH_WRITE old RESOLVED", "MISSING_EVENT x OPEN")
		if report.Ignored != 0 {
			t.Errorf("%d ignored, whose time is over", report.Ignored)
		}
		runs, err := ledger.Runs(t.Context(), "orders", 3)
		if err != nil || len(runs) != 3 || runs[0].ID != report.RunID || runs[0].State != reconcile.RunDone || runs[0].Counts[reconcile.MissingEvent] != 1 || !runs[0].Complete || runs[0].Since == nil {
			t.Errorf("runs %+v, %v", runs, err)
		}
		if text, err := ledger.RunReport(t.Context(), report.RunID); err != nil || !strings.Contains(string(text), `"differences":2`) {
			t.Errorf("report on record: %s, %v", text, err)
		}
		if err := ledger.Prune(t.Context()); err != nil {
			t.Fatal(err)
		}
		if runs, err := ledger.Runs(t.Context(), "", 0); err != nil || len(runs) != 6 {
			t.Errorf("%d runs after pruning, %v: none is old", len(runs), err)
		}
	})
}

func TestOneRunOfACheckAtATime(t *testing.T) {
	eachKept(t, func(t *testing.T, write, read reconcile.Database) {
		newOrders(t, write, read)
		ledger := newLedger(t, write)
		ctx := t.Context()
		lease, err := ledger.Acquire(ctx, "orders", "first", time.Minute)
		if err != nil || lease.Fence < 1 {
			t.Fatal(lease, err)
		}
		if _, err := runner(t, ordersCheck(), write, read, ledger, nil).Run(ctx, full); !errors.Is(err, reconcile.ErrRunning) || !strings.Contains(err.Error(), "first") {
			t.Fatalf("beside another run: %v", err)
		}
		if _, err := ledger.Acquire(ctx, "another check", "first", time.Minute); err != nil {
			t.Error(err)
		}
		if err := ledger.Renew(ctx, lease); err != nil {
			t.Error(err)
		}
		if err := ledger.Release(ctx, lease); err != nil {
			t.Fatal(err)
		}
		if err := ledger.Renew(ctx, lease); !errors.Is(err, reconcile.ErrLeaseLost) {
			t.Errorf("renewed after the release: %v", err)
		}

		// A run that was taken for dead writes nothing any more.
		late, err := ledger.Acquire(ctx, "orders", "late", time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		var next reconcile.Lease
		wait(t, "the lease to end", func() bool {
			next, err = ledger.Acquire(ctx, "orders", "next", time.Minute)
			return err == nil
		})
		if next.Fence <= late.Fence {
			t.Errorf("fence %d after %d", next.Fence, late.Fence)
		}
		outcome := &reconcile.Outcome{
			Run:   reconcile.RunRecord{ID: "r", Check: "orders", State: reconcile.RunDone},
			Found: []reconcile.FindingRecord{{ID: "F-1", Check: "orders", Class: reconcile.MissingEvent, Key: "k", Causes: []reconcile.Cause{}, Sample: []byte("{}"), LastSeen: time.Now()}},
		}
		if err := ledger.Record(ctx, late, outcome); !errors.Is(err, reconcile.ErrLeaseLost) {
			t.Errorf("a stale write: %v", err)
		}
		if _, err := ledger.Begin(ctx, late, &reconcile.RunRecord{ID: "r2", Check: "orders"}); !errors.Is(err, reconcile.ErrLeaseLost) {
			t.Errorf("a stale start: %v", err)
		}
		expectStates(t, ledger)
		if err := ledger.Record(ctx, next, outcome); err != nil {
			t.Error(err)
		}
		expectStates(t, ledger, "MISSING_EVENT k OPEN")
	})
}

func wait(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(90 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("waited too long for %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// stopping ends a run after some stretches are on record.
type stopping struct {
	reconcile.Results
	left int
	stop context.CancelFunc
}

func (s *stopping) Record(ctx context.Context, lease reconcile.Lease, o *reconcile.Outcome) error {
	err := s.Results.Record(ctx, lease, o)
	if s.left--; s.left == 0 {
		s.stop()
	}
	return err
}

func TestAWeeklyRunGoesOnBehindWhatIsRecorded(t *testing.T) {
	eachKept(t, func(t *testing.T, write, read reconcile.Database) {
		o := newOrders(t, write, read)
		ledger := newLedger(t, write)
		exec(t, read, "UPDATE {q}read{q} SET status = 'VOID' WHERE id IN ('-b', 'z')")
		stretches := &reconcile.RunnerConfig{StretchKeys: 3}
		check := ordersCheck()
		want, err := engine(t, check, write, read).Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		if report, err := runner(t, check, write, read, &stopping{ledger, 1, stop}, stretches).Run(ctx, weekly); !errors.Is(err, context.Canceled) {
			t.Fatalf("stopped: %v, %v", report, err)
		}
		expectStates(t, ledger, "MISMATCH_READ -b OPEN")
		standing, err := ledger.Standing(t.Context(), "orders")
		if err != nil || standing.Sweeping == nil || standing.Sweeping.Keys != 3 || len(standing.Coverage) != 0 || standing.LastSweep != nil {
			t.Fatalf("standing %+v, %v", standing, err)
		}
		kept(t, check, write, read, ledger, window) // in between
		report, err := runner(t, check, write, read, ledger, stretches).Run(t.Context(), weekly)
		if err != nil || report.RunID != standing.Sweeping.ID || listed(report) != listed(want) || report.Keys != want.Keys || report.Rows != want.Rows || !report.Coverage.Complete {
			t.Errorf("%v:\n%s\nwant:\n%s", err, report.Text(), want.Text())
		}
		standing, err = ledger.Standing(t.Context(), "orders")
		if err != nil || standing.Sweeping != nil || standing.LastSweep == nil || len(standing.Coverage) != 2 {
			t.Errorf("standing %+v, %v", standing, err)
		}

		// A check that compares something else starts at the first key again.
		ctx, stop = context.WithCancel(t.Context())
		if _, err := runner(t, check, write, read, &stopping{ledger, 1, stop}, stretches).Run(ctx, weekly); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		o.put("zz", 1)
		other := ordersCheck()
		other.Compare = other.Compare[:1]
		report, err = runner(t, other, write, read, ledger, stretches).Run(t.Context(), weekly)
		if err != nil || report.Keys != want.Keys+1 {
			t.Errorf("another definition: %d keys, %v, want %d", report.Keys, err, want.Keys+1)
		}
		runs, err := ledger.Runs(t.Context(), "orders", 2)
		if err != nil || len(runs) != 2 || runs[1].State != reconcile.RunInterrupted || runs[1].Error == "" {
			t.Errorf("runs %+v, %v", runs, err)
		}
	})
}

func TestCoverageEndsAtWhatWasNotRead(t *testing.T) {
	write, read := open(t, reconcile.SQLite), open(t, reconcile.SQLite)
	o := newOrders(t, write, read)
	ledger := newLedger(t, write)
	covered := func() map[reconcile.Mode]time.Time {
		t.Helper()
		standing, err := ledger.Standing(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		until := make(map[reconcile.Mode]time.Time)
		for _, c := range standing.Coverage {
			until[c.Kind] = c.Until
		}
		return until
	}
	kept(t, ordersCheck(), write, read, ledger, window)
	first := covered()
	if first[reconcile.ModeWindow].IsZero() || !first[reconcile.ModeFull].IsZero() {
		t.Fatalf("covered %v", first)
	}
	exec(t, read, "UPDATE {q}read{q} SET version = 'x' WHERE id = 'z'")
	for _, scope := range []reconcile.Scope{window, full, weekly} {
		if report := kept(t, ordersCheck(), write, read, ledger, scope); report.Unverified == 0 || report.Coverage.Complete {
			t.Errorf("%s: %+v", scope.Mode, report.Coverage)
		}
	}
	if got := covered(); got[reconcile.ModeWindow] != first[reconcile.ModeWindow] || len(got) != 1 {
		t.Errorf("covered %v after runs that could not read all, want %v", got, first)
	}

	// What is not read is not resolved either.
	exec(t, read, "UPDATE {q}read{q} SET version = 2 WHERE id = 'z'", "UPDATE {q}read{q} SET status = 'VOID' WHERE id = 'z'")
	kept(t, ordersCheck(), write, read, ledger, full)
	expectStates(t, ledger, "MISMATCH_READ z OPEN")
	exec(t, read, "UPDATE {q}read{q} SET version = 'x' WHERE id = 'z'")
	kept(t, ordersCheck(), write, read, ledger, full)
	kept(t, ordersCheck(), write, read, ledger, window)
	expectStates(t, ledger, "MISMATCH_READ z OPEN")
	exec(t, read, "UPDATE {q}read{q} SET version = 2, status = 'PAID' WHERE id = 'z'")
	kept(t, ordersCheck(), write, read, ledger, window)
	expectStates(t, ledger, "MISMATCH_READ z RESOLVED")
	if got := covered(); !got[reconcile.ModeWindow].After(first[reconcile.ModeWindow]) {
		t.Errorf("covered %v, no later than %v", got, first)
	}

	// A window reaches back to where the one before it ended.
	o.put("gap", 2)
	long := time.Now().AddDate(0, 0, -20).UTC().Format("2006-01-02 15:04:05")
	exec(t, write, "UPDATE {q}Sales-EU Order{q} SET status = 'VOID', updated_at = '"+long+"' WHERE {q}order{q} = 'gap'", "UPDATE {q}log{q} SET at = '"+long+"' WHERE {q}order{q} = 'gap'")
	kept(t, ordersCheck(), write, read, ledger, window)
	expectStates(t, ledger, "MISMATCH_READ z RESOLVED")
	exec(t, write, "UPDATE {q}Proof-coverage{q} SET covered_until = '"+time.Now().AddDate(0, 0, -30).UTC().Format("2006-01-02T15:04:05.000Z")+"' WHERE kind = 'window'")
	kept(t, ordersCheck(), write, read, ledger, window)
	expectStates(t, ledger, "MISMATCH_READ z RESOLVED", "MISMATCH_WRITE gap OPEN")
	exec(t, write, "UPDATE {q}Sales-EU Order{q} SET status = 'PAID' WHERE {q}order{q} = 'gap'")
	kept(t, ordersCheck(), write, read, ledger, window)

	// In flight is no proof that it is well.
	exec(t, write, "UPDATE {q}log{q} SET state = 'DEAD' WHERE event_id = 'z-2'")
	kept(t, ordersCheck(), write, read, ledger, window)
	exec(t, write, fmt.Sprintf("UPDATE {q}log{q} SET state = 'PENDING', at = %s WHERE event_id = 'z-2'", o.text(write, time.Now())))
	if report := kept(t, ordersCheck(), write, read, ledger, window); report.InFlight != 1 {
		t.Errorf("%s", report.Text())
	}
	expectStates(t, ledger, "MISMATCH_READ z RESOLVED", "MISMATCH_WRITE gap RESOLVED", "MISSING_EVENT z OPEN")
}

// A read model that stays where it is while its log forgets what it lacks.
func TestBehindIsRememberedWhereTheLogForgets(t *testing.T) {
	eachKept(t, func(t *testing.T, write, read reconcile.Database) {
		o := newOrders(t, write, read)
		ledger := newLedger(t, write)
		check := ordersCheck()
		check.Deadline = time.Second
		var report *reconcile.Report
		version := 2
		tick := func(of string) {
			version++
			exec(t, write, fmt.Sprintf("DELETE FROM {q}log{q} WHERE {q}order{q} = '%s'", of))
			o.event(of, version, "changed", "SENT", time.Now())
			exec(t, write, fmt.Sprintf("UPDATE {q}Sales-EU Order{q} SET version = %d WHERE {q}order{q} = '%s'", version, of))
			report = kept(t, check, write, read, ledger, window)
		}
		tick("a")
		if got := listed(report); got != "IN_FLIGHT a\n" {
			t.Fatalf("at first:\n%s", report.Text())
		}
		wait(t, "the deadline of what is forgotten", func() bool {
			tick("a")
			return listed(report) == "MISMATCH_READ a\n"
		})
		// One that moves is behind anew each time.
		exec(t, read, fmt.Sprintf("UPDATE {q}read{q} SET version = %d WHERE id = 'a'", version))
		tick("a")
		if got := listed(report); got != "IN_FLIGHT a\n" {
			t.Errorf("after it moved:\n%s", report.Text())
		}
	})
}
