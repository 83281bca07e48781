package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// pigeonhole is a place of results in memory, as far as alerts ask for them.
type pigeonhole struct {
	standing Standing
	found    []FindingRecord
	told     map[string]Told
	claimed  map[string]bool // by somebody else
}

func (p *pigeonhole) Standing(context.Context, string) (*Standing, error) {
	s := p.standing
	s.Open, s.OpenSince, s.NewestOpen = make(map[Class]int), make(map[Class]time.Time), make(map[Class]time.Time)
	for i := range p.found {
		f := &p.found[i]
		s.Open[f.Class]++
		if s.OpenSince[f.Class].IsZero() || f.FirstSeen.Before(s.OpenSince[f.Class]) {
			s.OpenSince[f.Class] = f.FirstSeen
		}
		if f.FirstSeen.After(s.NewestOpen[f.Class]) {
			s.NewestOpen[f.Class] = f.FirstSeen
		}
	}
	return &s, nil
}

func (p *pigeonhole) Runs(context.Context, string, int) ([]RunRecord, error) { return nil, nil }

func (p *pigeonhole) ListFindings(_ context.Context, filter FindingFilter) (found []FindingRecord, err error) {
	for i := range p.found {
		if p.found[i].Class == filter.Class {
			found = append(found, p.found[i])
		}
	}
	slices.SortFunc(found, func(a, b FindingRecord) int { return b.FirstSeen.Compare(a.FirstSeen) })
	return found, nil
}

func (p *pigeonhole) FindFinding(context.Context, string) (*FindingRecord, error) {
	return nil, ErrNoFinding
}

func (p *pigeonhole) Decide(context.Context, string, Decision) (*FindingRecord, error) {
	return nil, ErrNoFinding
}

func (p *pigeonhole) Told(context.Context, string) (map[string]Told, error) { return p.told, nil }

func (p *pigeonhole) Claim(_ context.Context, _, name string, before Told, _ time.Duration) (bool, error) {
	return !p.claimed[name] && p.told[name] == before, nil
}

func (p *pigeonhole) Settle(_ context.Context, _, name string, told Told) error {
	if told.Since.IsZero() {
		return errors.New("since is missing")
	}
	p.told[name] = told
	return nil
}

// hearer notes what it is told.
type hearer struct {
	heard []Alert
	deaf  bool
}

func (h *hearer) Notify(_ context.Context, alert *Alert) error {
	if h.deaf {
		return errors.New("nobody answers")
	}
	h.heard = append(h.heard, *alert)
	return nil
}

func (h *hearer) take() string {
	var texts []string
	for i := range h.heard {
		a := &h.heard[i]
		texts = append(texts, fmt.Sprintf("%s firing=%t %d/%d", a.Name, a.Firing, a.New, a.Count))
	}
	h.heard = nil
	return strings.Join(texts, ", ")
}

func alertWorld(t *testing.T, change func(*Check)) (*pigeonhole, *hearer, *Alerter) {
	t.Helper()
	check := Check{
		Name: "orders", Key: []KeyPart{{Name: "id"}}, Write: &Table{Table: "w", Version: "v", UpdatedAt: "u"},
		Log: &Log{Table: Table{Table: "l", Version: "v"}}, Schedule: Schedule{Tolerance: time.Hour},
	}
	if change != nil {
		change(&check)
	}
	complete, err := check.Complete()
	if err != nil {
		t.Fatal(err)
	}
	p := &pigeonhole{told: make(map[string]Told), claimed: make(map[string]bool)}
	p.standing = Standing{Check: "orders", Now: testNow, FirstRun: new(testNow)}
	h := &hearer{}
	return p, h, NewAlerter(complete, p, map[string]Notifier{"here": h}, func(text string) string { return strings.ReplaceAll(text, "hunter2", "*****") })
}

func (p *pigeonhole) find(class Class, at time.Time) {
	p.found = append(p.found, FindingRecord{ID: fmt.Sprint("F-", len(p.found)), Class: class, Key: "k", State: FindingOpen, Detail: "hunter22 " + strings.Repeat("é", 300), FirstSeen: at})
}

// What another process finds between the two looks of one, at the clock and at the
// findings, is told of once.
func TestAFindingYoungerThanTheClockIsToldOnce(t *testing.T) {
	p, h, a := alertWorld(t, func(c *Check) { c.Alerts = map[string]AlertRule{AlertStalled: {Off: true}, AlertOverdue: {Off: true}} })
	p.find(MissingEvent, p.standing.Now.Add(3*time.Millisecond))
	for _, want := range []string{"MISSING_EVENT firing=true 1/1", "", ""} {
		if err := a.Tell(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := h.take(); got != want {
			t.Errorf("told %q, want %q", got, want)
		}
		p.standing.Now = p.standing.Now.Add(2 * time.Millisecond)
	}
	p.find(MissingEvent, p.standing.Now)
	if err := a.Tell(t.Context()); err != nil || h.take() != "MISSING_EVENT firing=true 1/2" {
		t.Errorf("what was found later was not told: %v", err)
	}
}

func TestAnAlertIsToldOnceAndAgainForWhatIsNew(t *testing.T) {
	p, h, a := alertWorld(t, func(c *Check) { c.Alerts = map[string]AlertRule{AlertStalled: {Off: true}, AlertOverdue: {Off: true}} })
	after := func(d time.Duration, want string) {
		t.Helper()
		p.standing.Now = p.standing.Now.Add(d)
		if err := a.Tell(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := h.take(); got != want {
			t.Errorf("after %s told %q, want %q", d, got, want)
		}
	}
	after(0, "")
	p.find(MissingEvent, p.standing.Now)
	after(time.Minute, "MISSING_EVENT firing=true 1/1")
	after(time.Minute, "")
	p.find(MissingEvent, p.standing.Now.Add(time.Second))
	after(time.Minute, "MISSING_EVENT firing=true 1/2")
	after(23*time.Hour, "")
	after(2*time.Hour, "MISSING_EVENT firing=true 0/2")
	p.found = nil
	after(time.Minute, "MISSING_EVENT firing=false 0/0")
	after(48*time.Hour, "")
	p.find(MissingEvent, p.standing.Now)
	after(time.Minute, "MISSING_EVENT firing=true 1/1")

	// Orphans come as a digest: one message a day, however many there are.
	p.found = nil
	after(time.Minute, "MISSING_EVENT firing=false 0/0")
	p.find(OrphanEvent, p.standing.Now)
	after(time.Minute, "ORPHAN_EVENT firing=true 1/1")
	for range 3 {
		p.find(OrphanEvent, p.standing.Now.Add(time.Second))
		after(time.Hour, "")
	}
	after(22*time.Hour, "ORPHAN_EVENT firing=true 3/4")
}

func TestAnAlertHasItsThresholdAndMayBeOff(t *testing.T) {
	p, h, a := alertWorld(t, func(c *Check) {
		c.Alerts = map[string]AlertRule{"MISMATCH_READ": {At: 3}, "MISSING_EVENT": {Off: true}, AlertStalled: {Off: true}}
	})
	for range 3 {
		if got := h.take(); got != "" {
			t.Errorf("told %q before the threshold", got)
		}
		p.find(MismatchRead, testNow)
		p.find(MissingEvent, testNow)
		if err := a.Tell(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(h.heard) != 1 || h.heard[0].Name != "MISMATCH_READ" || h.heard[0].Count != 3 {
		t.Fatalf("heard %+v", h.heard)
	}
	sample := h.heard[0].Samples[0].Detail
	if len(h.heard[0].Samples) != 3 || strings.Contains(sample, "hunter2") || len(sample) > sampleBytes+3 || strings.ContainsRune(sample, '�') {
		t.Errorf("samples %+v", h.heard[0].Samples)
	}
}

func TestAnAlertThatWasNotHeardIsToldAgain(t *testing.T) {
	p, h, a := alertWorld(t, nil)
	p.find(MissingEvent, testNow)
	h.deaf = true
	if err := a.Tell(t.Context()); err == nil || !strings.Contains(err.Error(), "nobody answers") {
		t.Errorf("nobody heard it, and the error is %v", err)
	}
	h.deaf = false
	p.claimed["here/MISSING_EVENT"] = true
	if err := a.Tell(t.Context()); err != nil || h.take() != "" {
		t.Errorf("told beside another process: %v", err)
	}
	p.claimed = nil
	if err := a.Tell(t.Context()); err != nil || h.take() != "MISSING_EVENT firing=true 1/1" {
		t.Errorf("not told again: %v", err)
	}
}

func TestRunsThatDoNotEndAndCoverageThatStallsAreAlerts(t *testing.T) {
	_, _, a := alertWorld(t, nil)
	firing := func(s *Standing) string {
		var names []string
		for _, c := range a.check.Conditions(s) {
			if c.Firing {
				names = append(names, c.Name+": "+c.Text)
			}
		}
		return strings.Join(names, "; ")
	}
	at := func(d time.Duration) *time.Time { return new(testNow.Add(-d)) }
	covered := func(window, full time.Duration) []CoverageRecord {
		definition := a.check.Definition()
		return []CoverageRecord{{Kind: ModeWindow, Definition: definition, Until: *at(window)}, {Kind: ModeFull, Definition: definition, Until: *at(full)}}
	}
	done := func(d time.Duration) *RunRecord {
		return &RunRecord{State: RunDone, StartedAt: *at(d), FinishedAt: at(d)}
	}
	day := 24 * time.Hour
	for _, c := range []struct {
		name string
		s    Standing
		want string // begins so
	}{
		{"never begun", Standing{}, ""},
		{"well", Standing{FirstRun: at(day), LastDone: done(time.Minute), Coverage: covered(time.Minute, day)}, ""},
		{"one run failed", Standing{FirstRun: at(day), LastDone: done(14 * time.Minute), Coverage: covered(14*time.Minute, day)}, ""},
		{"three did", Standing{FirstRun: at(day), LastDone: done(16 * time.Minute), Coverage: covered(16*time.Minute, day), LastRun: &RunRecord{State: RunFailed, Error: "timeout"}}, "run_overdue: the last run ended 2026-03-01T11:44:00Z, longer ago than 15m0s; the last one failed: timeout"},
		{"none ever ended", Standing{FirstRun: at(20 * time.Minute)}, "run_overdue: no run has ended since"},
		{"runs end and cover nothing", Standing{FirstRun: at(day), LastDone: done(time.Minute), Coverage: covered(2*time.Hour, day)}, "coverage_stalled: recent changes are covered until 2026-03-01T10:00:00Z"},
		{"another definition", Standing{FirstRun: at(2 * time.Hour), LastDone: done(time.Minute), Coverage: []CoverageRecord{{Kind: ModeWindow, Definition: "x", Until: *at(time.Minute)}, covered(0, 0)[1]}}, "coverage_stalled: recent changes were never covered"},
		{"never all keys", Standing{FirstRun: at(11 * day), LastDone: done(time.Minute), Coverage: covered(time.Minute, 0)[:1]}, "coverage_stalled: all keys were never covered"},
		{"all keys long ago", Standing{FirstRun: at(20 * day), LastDone: done(time.Minute), Coverage: covered(time.Minute, 11*day)}, "coverage_stalled: all keys are covered until"},
	} {
		c.s.Now = testNow
		if got := firing(&c.s); !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestWhatIsDue(t *testing.T) {
	_, _, a := alertWorld(t, nil)
	check := a.check
	started := func(d time.Duration, state RunState) *RunRecord {
		return &RunRecord{State: state, StartedAt: testNow.Add(-d), Definition: check.Definition()}
	}
	day := 24 * time.Hour
	other := started(time.Hour, RunDone)
	other.Definition = "other"
	for _, c := range []struct {
		name string
		s    Standing
		want string
	}{
		{"at first", Standing{}, "window weekly"},
		{"then all keys", Standing{LastDone: started(0, RunDone)}, "weekly"},
		{"nothing", Standing{LastDone: started(time.Minute, RunDone), LastSweep: started(day, RunDone)}, ""},
		{"the next window", Standing{LastDone: started(5*time.Minute, RunDone), LastSweep: started(day, RunDone)}, "window"},
		{"which has failed just now", Standing{LastDone: started(5*time.Minute, RunDone), LastSweep: started(day, RunDone), LastRun: started(time.Minute, RunFailed)}, ""},
		{"which has failed a while ago", Standing{LastDone: started(15*time.Minute, RunDone), LastSweep: started(day, RunDone), LastRun: started(5*time.Minute, RunFailed)}, "window"},
		{"a sweep to go on with", Standing{LastDone: started(time.Minute, RunDone), LastSweep: started(day, RunDone), Sweeping: started(time.Hour, RunRunning)}, "weekly"},
		{"a window before that", Standing{LastDone: started(5*time.Minute, RunDone), Sweeping: started(time.Hour, RunRunning)}, "window weekly"},
		{"the next week", Standing{LastDone: started(time.Minute, RunDone), LastSweep: started(7*day, RunDone)}, "weekly"},
		{"another definition", Standing{LastDone: started(time.Minute, RunDone), LastSweep: other}, "weekly"},
	} {
		c.s.Now = testNow
		if got := strings.Trim(fmt.Sprint(check.Due(&c.s)), "[]"); got != c.want {
			t.Errorf("%s: %q is due, want %q", c.name, got, c.want)
		}
	}
	timeless := *check
	timeless.Write = &Table{Table: "w", Version: "v"}
	if got := timeless.Due(&Standing{Now: testNow}); !slices.Equal(got, []Mode{ModeWeekly}) {
		t.Errorf("where no arm has a time %q is due", got)
	}
}

func TestTimesThatDoNotGoTogetherAreNamed(t *testing.T) {
	for _, c := range []struct {
		change func(*Check)
		want   string
	}{
		{nil, ""},
		{func(c *Check) { c.Exemption = time.Hour }, "an event that is stuck is noticed after"},
		{func(c *Check) { c.Deadline = time.Hour; c.Read = &Table{Table: "r", Version: "v"} }, "a read model that lags is noticed after"},
		{func(c *Check) { c.Every = 30 * time.Minute; c.Window = 40 * time.Minute }, "it must reach over two runs"},
		{func(c *Check) { c.LogRetention = 24 * time.Hour }, "what lies between is UNVERIFIED"},
		{func(c *Check) { c.Write.UpdatedAt = "" }, "no arm says when its rows changed"},
	} {
		_, _, a := alertWorld(t, c.change)
		got := strings.Join(a.check.Misfits(), "; ")
		if !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestADefinitionIsWhatIsComparedAndNoMore(t *testing.T) {
	_, _, a := alertWorld(t, nil)
	same := func(c *Check) string { return c.Definition() }
	before := same(a.check)
	for name, change := range map[string]func(*Check){
		"name": func(c *Check) { c.Name = "x" }, "pace": func(c *Check) { c.ChunkRows, c.Duty, c.Every, c.Window = 7, 0.5, time.Minute, time.Hour },
		"alerts": func(c *Check) { c.Alerts = map[string]AlertRule{"MISSING_EVENT": {At: 9}} },
	} {
		changed := *a.check
		if change(&changed); same(&changed) != before {
			t.Errorf("%s is part of the definition", name)
		}
	}
	for name, change := range map[string]func(*Check){
		"column":    func(c *Check) { c.Compare = []Column{{Name: "status"}} },
		"table":     func(c *Check) { table := *c.Write; table.Table = "other"; c.Write = &table },
		"where":     func(c *Check) { table := *c.Write; table.Where = map[string]string{"a": "b"}; c.Write = &table },
		"density":   func(c *Check) { c.Density = "every_version" },
		"exemption": func(c *Check) { c.Exemption = time.Second },
	} {
		changed := *a.check
		if change(&changed); same(&changed) == before {
			t.Errorf("%s is no part of the definition", name)
		}
	}
}
