package reconcile

import (
	"fmt"
	"time"
)

// Schedule says when a check runs by itself, and who must hear of what. One
// figure decides: the tolerance. The rest follows from it where it is not given.
type Schedule struct {
	// Tolerance is how late a difference may be noticed. Default 1 h.
	Tolerance time.Duration `yaml:"tolerance"`
	// Every is the time from one run of recent changes to the next. Default: a
	// twelfth of Tolerance, at least 10 s.
	Every time.Duration `yaml:"every"`
	// SweepEvery is the time from one comparison of all keys to the next. Default
	// 7 days.
	SweepEvery time.Duration `yaml:"sweep_every"`
	// Alerts are by class, or by run_overdue and coverage_stalled.
	Alerts map[string]AlertRule `yaml:"alerts"`
}

func (s Schedule) withDefaults() Schedule {
	if s.Tolerance == 0 {
		s.Tolerance = time.Hour
	}
	if s.Every == 0 {
		s.Every = max(s.Tolerance/12, 10*time.Second)
	}
	if s.SweepEvery == 0 {
		s.SweepEvery = 7 * 24 * time.Hour
	}
	rules := defaultAlerts()
	for name, rule := range s.Alerts {
		rules[name] = rule.withDefaults(rules[name])
	}
	s.Alerts = rules
	return s
}

func (s *Schedule) validate(refuse func(format string, args ...interface{})) {
	for name, d := range map[string]time.Duration{"tolerance": s.Tolerance, "every": s.Every, "sweep_every": s.SweepEvery} {
		if d < 0 {
			refuse("%s: %s is negative", name, d)
		}
	}
	known := defaultAlerts()
	for name, rule := range s.Alerts {
		if _, ok := known[name]; !ok {
			refuse("alerts: there is no alert %q", name)
		}
		if rule.At < 0 || rule.Digest < 0 || rule.Repeat < 0 {
			refuse("alerts: %s: at, digest and repeat must not be negative", name)
		}
	}
}

// overdueAfter is the age of the last run at which something is wrong: one may
// take as long as the rest until the next one, and one more may fail.
func (s *Schedule) overdueAfter() time.Duration { return 3 * s.Every }

// Due says in which modes a check is to be run now, the most urgent first. A
// sweep is done in stretches between runs of recent changes.
func (c *Check) Due(s *Standing) (due []Mode) {
	every := c.Schedule.Every
	if c.windowed() && (s.LastDone == nil || s.Now.Sub(s.LastDone.StartedAt) >= every) && !lately(s.LastRun, s.Now, every) {
		due = append(due, ModeWindow)
	}
	definition := c.Definition()
	sweeping := s.Sweeping != nil && s.Sweeping.Definition == definition
	if sweeping || s.LastSweep == nil || s.LastSweep.Definition != definition || s.Now.Sub(s.LastSweep.StartedAt) >= c.Schedule.SweepEvery {
		due = append(due, ModeWeekly)
	}
	return due
}

// lately reports whether a run has just failed: the next one is not due at once.
func lately(run *RunRecord, now time.Time, every time.Duration) bool {
	return run != nil && run.State == RunFailed && now.Sub(run.StartedAt) < every
}

// windowed reports whether an arm says when its rows changed.
func (c *Check) windowed() bool {
	return c.Write != nil && c.Write.UpdatedAt != "" || c.Log != nil && c.Log.CreatedAt != "" || c.Read != nil && c.Read.UpdatedAt != ""
}

// Misfits says in sentences which of a check's times do not go together.
func (c *Check) Misfits() []string {
	var found []string
	say := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	confirm := time.Duration(0)
	if n := len(c.Confirm); n > 0 {
		confirm = c.Confirm[n-1]
	}
	s := &c.Schedule
	if notice := c.Exemption + s.Every + confirm; c.Log != nil && c.Write != nil && notice > s.Tolerance {
		say("an event that is stuck is noticed after exemption + every + confirm = %s, later than the tolerance of %s", notice, s.Tolerance)
	}
	if notice := c.Deadline + s.Every + confirm; c.Read != nil && notice > s.Tolerance {
		say("a read model that lags is noticed after deadline + every + confirm = %s, later than the tolerance of %s", notice, s.Tolerance)
	}
	if c.Window < 2*s.Every {
		say("window is %s: it must reach over two runs, every %s", c.Window, s.Every)
	}
	if c.Exemption >= c.Window {
		say("an event may be pending for %s, and has left the window of %s by then", c.Exemption, c.Window)
	}
	if c.LogRetention > 0 && c.LogRetention < c.Window {
		say("the log keeps events for %s, and the window reaches back %s: what lies between is UNVERIFIED", c.LogRetention, c.Window)
	}
	if c.LogRetention > 0 && c.LogRetention < s.SweepEvery {
		say("the log keeps events for %s, and all keys are compared only every %s", c.LogRetention, s.SweepEvery)
	}
	if !c.windowed() {
		say("no arm says when its rows changed, so recent changes are seen only when all keys are compared, every %s: name updated_at", s.SweepEvery)
	}
	return found
}
