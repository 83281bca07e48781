package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// world holds the three arms in memory. Time passes only while the engine
// waits; then the events of the script happen.
type world struct {
	t      *testing.T
	write  map[string]*Row
	log    map[string][]Event
	read   map[string]*Row
	fates  map[string]Consumed
	at     time.Time
	skew   time.Duration // of the database's clock
	script []step
	// afterSnapshot happens between the reading of W and L, and that of R.
	afterSnapshot func()
	fail          func(arm string, r Range) error
	asked         []string // ranges read from the read side
}

type step struct {
	at time.Duration // since testNow
	do func()
}

func newWorld(t *testing.T) *world {
	return &world{t: t, write: map[string]*Row{}, log: map[string][]Event{}, read: map[string]*Row{}, fates: map[string]Consumed{}, at: testNow}
}

func (w *world) Now() time.Time { return w.at }

func (w *world) Wait(ctx context.Context, d time.Duration) error {
	w.at = w.at.Add(d)
	for len(w.script) > 0 && !w.at.Before(testNow.Add(w.script[0].at)) {
		w.script[0].do()
		w.script = w.script[1:]
	}
	return ctx.Err()
}

func (w *world) now(context.Context) (time.Time, error) { return w.at.Add(w.skew), nil }

func (w *world) boundary(_ context.Context, from *Key, n int) (*Key, error) {
	all := map[string]bool{}
	for name := range w.write {
		all[name] = true
	}
	for name := range w.log {
		all[name] = true
	}
	for name := range w.read {
		all[name] = true
	}
	var keys []Key
	for name := range all {
		if key := textKey(w.t, name); from == nil || from.Compare(key) <= 0 {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, Key.Compare)
	if len(keys) <= n {
		return nil, w.failing("boundary", Range{From: from})
	}
	return &keys[n], nil
}

func (w *world) changed(_ context.Context, since time.Time, each func(Key) error) error {
	for name, row := range w.write {
		if !row.UpdatedAt.Before(since) {
			if err := each(textKey(w.t, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *world) keyOf(context.Context, string) (*Key, error) { return nil, nil }

func (w *world) failing(arm string, r Range) error {
	if w.fail == nil {
		return nil
	}
	return w.fail(arm, r)
}

func inRange[T interface{ *Row | []Event }](t *testing.T, items map[string]T, r Range, copied func(T) T) (found []Keyed[T]) {
	for name, item := range items {
		if key := textKey(t, name); r.Contains(key) {
			found = append(found, Keyed[T]{key, copied(item)})
		}
	}
	slices.SortFunc(found, func(a, b Keyed[T]) int { return a.Key.Compare(b.Key) })
	return found
}

func copyRow(r *Row) *Row { c := *r; return &c }

func (w *world) snapshot(ctx context.Context, r Range) ([]Keyed[*Row], []Keyed[[]Event], error) {
	rows := inRange(w.t, w.write, r, copyRow)
	events, err := w.events(ctx, r)
	if w.afterSnapshot != nil {
		w.afterSnapshot()
	}
	return rows, events, errors.Join(err, w.failing("snapshot", r))
}

func (w *world) events(_ context.Context, r Range) ([]Keyed[[]Event], error) {
	return inRange(w.t, w.log, r, slices.Clone[[]Event]), nil
}

func (w *world) readModel(_ context.Context, r Range) ([]Keyed[*Row], error) {
	w.asked = append(w.asked, r.String())
	return inRange(w.t, w.read, r, copyRow), w.failing("read", r)
}

func (w *world) consumed(_ context.Context, ids []string) (map[string]Consumed, error) {
	known := map[string]Consumed{}
	for _, id := range ids {
		if fate, ok := w.fates[id]; ok {
			known[id] = fate
		}
	}
	return known, nil
}

// put makes a key that is equal in all arms, at version n.
func (w *world) put(key string, n int64) {
	w.write[key], w.read[key] = row(n, "s"), row(n, "s")
	for v := int64(1); v <= n; v++ {
		e := event(v, "s", StateSent)
		e.ID = fmt.Sprintf("%s-%d", key, v)
		w.log[key] = append(w.log[key], e)
	}
}

func (w *world) run(change func(*Check)) *Report {
	w.t.Helper()
	report, err := w.engine(change).Run(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return report
}

func (w *world) engine(change func(*Check)) *Engine {
	w.t.Helper()
	check := Check{
		Name: "test", Key: []KeyPart{{Name: "id"}}, Compare: []Column{{Name: "status"}},
		Write: &Table{Table: "w", Version: "version"}, Log: &Log{Table: Table{Table: "l", Version: "version"}}, Read: &Table{Table: "r", Version: "version"},
		Exemption: 10 * time.Minute, Deadline: 5 * time.Minute, ChunkRows: 3,
	}
	if change != nil {
		change(&check)
	}
	complete, err := check.withDefaults()
	if err != nil {
		w.t.Fatal(err)
	}
	return newEngine(complete, w, &Config{Clock: w})
}

func listed(r *Report) []string {
	got := []string{}
	for _, f := range r.Findings {
		got = append(got, fmt.Sprintf("%s %s", f.Class, f.Key))
	}
	return got
}

func expect(t *testing.T, r *Report, want ...string) {
	t.Helper()
	if got := listed(r); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestEveryKeyIsComparedOnceWhateverTheChunks(t *testing.T) {
	for _, size := range []int{1, 2, 3, 7, 100} {
		w := newWorld(t)
		for _, key := range []string{"_a", "-b", "A", "a", "Z", "z", "1"} {
			w.put(key, 2)
		}
		w.log["a"] = w.log["a"][:1]
		w.read["Z"].Values = status("edited")
		delete(w.write, "z")
		report := w.run(func(c *Check) { c.ChunkRows = size })
		expect(t, report, "MISSING_EVENT a", "ORPHAN_EVENT z", "MISMATCH_READ Z")
		if report.Keys != 7 || !report.Coverage.Complete || report.Differences != 3 {
			t.Errorf("chunks of %d: %d keys, %d differences, %+v", size, report.Keys, report.Differences, report.Coverage)
		}
	}
}

func TestDeliveredDuringTheRunIsNoFinding(t *testing.T) {
	w := newWorld(t)
	w.put("a", 1)
	w.afterSnapshot = func() {
		w.afterSnapshot = nil
		w.write["a"], w.read["a"] = row(2, "t"), row(2, "t")
		w.log["a"] = append(w.log["a"], event(2, "t", StateSent))
		w.put("b", 1)
	}
	report := w.run(nil)
	expect(t, report)
	if report.Healed != 0 {
		t.Errorf("%d seemed to differ: the second reading of the log should have told", report.Healed)
	}
}

func TestWhatHealsIsCountedAndNotReported(t *testing.T) {
	w := newWorld(t)
	w.put("a", 2)
	w.put("b", 2)
	w.read["a"], w.read["b"] = row(1, "s"), row(1, "s")
	w.script = []step{{9 * time.Second, func() { w.read["a"] = row(2, "s") }}}
	report := w.run(nil)
	expect(t, report, "MISMATCH_READ b")
	if report.Healed != 1 {
		t.Errorf("healed %d, want 1", report.Healed)
	}
	if got := w.at.Sub(testNow); got != 10*time.Second {
		t.Errorf("took %s, want 10 s", got)
	}
}

func TestARecentEventHasTheConsumersDeadline(t *testing.T) {
	for _, heals := range []bool{true, false} {
		w := newWorld(t)
		w.put("a", 2)
		w.log["a"][1].CreatedAt = testNow.Add(-time.Minute)
		w.read["a"].Values = status("half done")
		if heals {
			w.script = []step{{3 * time.Minute, func() { w.read["a"].Values = status("s") }}}
			expect(t, w.run(nil))
			continue
		}
		expect(t, w.run(nil), "MISMATCH_READ a")
		if got := w.at.Sub(testNow); got != 4*time.Minute {
			t.Errorf("took %s, want the rest of the deadline, 4 m", got)
		}
	}
}

func TestADeadlineIsKeptWhileOthersAreAwaited(t *testing.T) {
	w := newWorld(t)
	w.put("a", 2)
	w.put("b", 2)
	w.log["a"][1].CreatedAt = testNow.Add(-time.Minute) // due after 4 m
	w.log["b"][1].CreatedAt = testNow.Add(-4 * time.Minute)
	w.read["a"].Values, w.read["b"].Values = status("half done"), status("half done")
	w.script = []step{
		{50 * time.Second, func() { w.read["b"].Values = status("s") }},
		{3 * time.Minute, func() { w.read["a"].Values = status("s") }},
	}
	expect(t, w.run(nil))
}

func TestWhatIsDueTogetherIsReadTogether(t *testing.T) {
	w := newWorld(t)
	var want []string
	for i := range 1000 {
		key := fmt.Sprintf("k%03d", i)
		w.put(key, 1)
		w.read[key].Values = status("edited")
		if i == 500 {
			w.fail = func(arm string, r Range) error { // it can be read at first, and no more
				if one := textKey(t, key); arm == "read" && r.Contains(one) && w.at.After(testNow) {
					return errors.New("broken page")
				}
				return nil
			}
			continue
		}
		want = append(want, "MISMATCH_READ "+key)
	}
	report := w.run(func(c *Check) { c.ChunkRows, c.Confirm = 400, []time.Duration{time.Second} })
	expect(t, report, append(want, "UNVERIFIED k500")...)
	if got := len(w.asked); got > 3+3+400 {
		t.Errorf("the read side was asked %d times", got)
	}
}

func TestHotKeyWithAStuckConsumer(t *testing.T) {
	w := newWorld(t)
	w.put("a", 1)
	w.log["a"][0].CreatedAt = testNow.Add(-10 * time.Minute)
	for v := int64(2); v <= 400; v++ {
		e := event(v, "s", StateSent)
		e.CreatedAt = testNow.Add(-time.Duration(401-v) * time.Second)
		w.log["a"] = append(w.log["a"], e)
		w.write["a"].Version = v
	}
	report := w.run(nil)
	expect(t, report, "MISMATCH_READ a")
	if got := w.at.Sub(testNow); got != 10*time.Second {
		t.Errorf("took %s, want 10 s: that it is late is proved", got)
	}

	w.at = testNow
	w.read["a"].Version = 300 // slow, but within its deadline
	expect(t, w.run(nil), "IN_FLIGHT a")
}

func TestTheConsumersWordIsProof(t *testing.T) {
	w := newWorld(t)
	for _, key := range []string{"dead", "retry"} {
		w.put(key, 2)
		w.read[key] = row(1, "s")
	}
	w.log["dead"][1].CreatedAt = testNow // within any deadline
	w.fates["dead-2"] = Consumed{Fate: FateDead, Error: "no such book"}
	w.fates["retry-2"] = Consumed{Fate: FateRetry}
	report := w.run(nil)
	expect(t, report, "MISMATCH_READ dead", "IN_FLIGHT retry")
	if !strings.Contains(report.Findings[0].Detail, "no such book") {
		t.Errorf("detail: %s", report.Findings[0].Detail)
	}
}

func TestAgesAreToldByTheDatabasesClock(t *testing.T) {
	w := newWorld(t)
	w.skew = -time.Hour // the machine's clock is an hour fast
	w.at = testNow.Add(time.Hour)
	w.put("a", 1)
	w.log["a"] = append(w.log["a"], recent(event(2, "t", StatePending)))
	w.write["a"] = row(2, "t")
	expect(t, w.run(nil), "IN_FLIGHT a")
}

func TestWhatCannotBeReadIsUnverified(t *testing.T) {
	w := newWorld(t)
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		w.put(key, 1)
	}
	delete(w.log, "a")
	delete(w.log, "e")
	w.fail = func(arm string, r Range) error {
		if c := textKey(t, "c"); arm == "read" && r.only == nil && r.Contains(c) {
			return errors.New("statement timed out")
		}
		return nil
	}
	report := w.run(func(c *Check) { c.ChunkRows = 2 })
	expect(t, report, "MISSING_EVENT a", "MISSING_EVENT e", "UNVERIFIED [c, e)")
	if report.Coverage.Complete || report.Coverage.Ranges != 3 || report.Keys != 3 || report.Unverified != 1 {
		t.Errorf("coverage %+v, %d keys, %d unverified", report.Coverage, report.Keys, report.Unverified)
	}
}

// circling is a database that sorts as no key does.
type circling struct{ *world }

func (c circling) boundary(context.Context, *Key, int) (*Key, error) {
	key := textKey(c.t, "m")
	return &key, nil
}

func TestADatabaseInAnotherOrderEndsTheRun(t *testing.T) {
	w := newWorld(t)
	w.put("a", 1)
	w.put("z", 1)
	e := w.engine(nil)
	e.arms = circling{w}
	report, err := e.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if report.Keys != 1 || report.Unverified != 1 || report.Coverage.Complete {
		t.Errorf("%d keys, %d unverified", report.Keys, report.Unverified)
	}
	expect(t, report, "UNVERIFIED [m, end)")
}

func TestARunThatIsStoppedHasNoReport(t *testing.T) {
	w := newWorld(t)
	w.put("a", 1)
	w.log["a"] = nil
	ctx, cancel := context.WithCancel(t.Context())
	w.script = []step{{time.Second, cancel}}
	if report, err := w.engine(nil).Run(ctx); !errors.Is(err, context.Canceled) || report != nil {
		t.Errorf("got %v, %v", report, err)
	}
}

func TestFindingsAreBoundedAndAllCounted(t *testing.T) {
	w := newWorld(t)
	for i := range 30 {
		w.put(fmt.Sprintf("k%02d", i), 1)
		delete(w.log, fmt.Sprintf("k%02d", i))
	}
	report := w.run(func(c *Check) { c.MaxFindings = 10 })
	if len(report.Findings) != 10 || report.LeftOut != 20 || report.Differences != 30 {
		t.Errorf("%d listed, %d left out, %d differences", len(report.Findings), report.LeftOut, report.Differences)
	}
}

func TestCheckIsRefusedWithAllThatIsWrong(t *testing.T) {
	_, err := New(Check{
		Name: "c", Key: []KeyPart{{Name: "id", Type: "float"}}, Write: &Table{Database: "a", Table: "w", Version: "v"},
		Log: &Log{Table: Table{Database: "b", Table: "l"}, Sent: []string{"X"}, Dead: []string{"X"}}, Density: "some",
	}, nil, nil)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{`the type "float"`, "log: version is missing", "split: true", `"X" stands for two states`, `density: "some"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}

// TestSlowDeliveryIsNoFinding has ten events a second for five minutes, each
// applied after two seconds, and compares once a second.
func TestSlowDeliveryIsNoFinding(t *testing.T) {
	w := newWorld(t)
	const keys, events = 25, 3000
	for i := range events {
		key, version, at := fmt.Sprintf("k%d", i%keys), int64(i/keys+1), time.Duration(i)*100*time.Millisecond
		w.script = append(w.script, step{at, func() {
			e := event(version, fmt.Sprint(i), StatePending)
			e.ID, e.CreatedAt = fmt.Sprintf("%s-%d", key, version), w.at
			w.write[key] = row(version, fmt.Sprint(i))
			w.log[key] = append(w.log[key], e)
		}}, step{at + time.Second, func() { w.log[key][version-1].State = StateSent }},
			step{at + 2*time.Second, func() { w.read[key] = row(version, fmt.Sprint(i)) }})
	}
	slices.SortStableFunc(w.script, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	inFlight := 0
	for second := range 300 {
		report := w.run(func(c *Check) { c.ChunkRows, c.Exemption, c.Deadline = 7, 5*time.Second, 5*time.Second })
		if report.Differences+report.Unverified+report.Healed > 0 {
			t.Fatalf("second %d:\n%s", second, report.Text())
		}
		inFlight += report.InFlight
		if err := w.Wait(t.Context(), time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if inFlight < 300 {
		t.Errorf("only %d were ever on their way: there was nothing to be mistaken about", inFlight)
	}
	if got := w.at.Sub(testNow); got != 300*time.Second {
		t.Errorf("the runs took %s of their own", got-300*time.Second)
	}
}

func TestARunRestsAsItsDutyAsks(t *testing.T) {
	w := newWorld(t)
	for i := range 9 {
		w.put(fmt.Sprintf("k%d", i), 1)
	}
	w.afterSnapshot = func() { w.at = w.at.Add(time.Second) }
	w.run(func(c *Check) { c.Duty = 0.25 })
	if got := w.at.Sub(testNow); got != 3*time.Second+2*3*time.Second {
		t.Errorf("three ranges of a second each took %s, want 9 s: three seconds of rest between two", got)
	}
}
