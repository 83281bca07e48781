package reconcile

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// AlertRule says when somebody is to be told.
type AlertRule struct {
	// At is the number of open findings from which on it matters. Default 1.
	At int `yaml:"at"`
	// Digest makes one message of what comes within this time. Default: none, each
	// run with new findings sends one.
	Digest time.Duration `yaml:"digest"`
	// Repeat is when to tell again of what has not changed. Default 24 h.
	Repeat time.Duration `yaml:"repeat"`
	Off    bool          `yaml:"off"`
}

// The alerts that are not about a class of findings.
const (
	AlertOverdue = "run_overdue"      // no run has ended for three intervals
	AlertStalled = "coverage_stalled" // runs end, and do not cover what they should
)

// defaultAlerts: what was lost or differs is told at the first one; events
// without a row, which deletes by hand make many of, once a day.
func defaultAlerts() map[string]AlertRule {
	const day = 24 * time.Hour
	return map[string]AlertRule{
		string(MissingEvent):  {At: 1, Repeat: day},
		string(OrphanEvent):   {At: 1, Repeat: day, Digest: day},
		string(MismatchWrite): {At: 1, Repeat: day},
		string(MismatchRead):  {At: 1, Repeat: day},
		AlertOverdue:          {At: 1, Repeat: day},
		AlertStalled:          {At: 1, Repeat: day},
	}
}

func (r AlertRule) withDefaults(usual AlertRule) AlertRule {
	if r.At == 0 {
		r.At = max(usual.At, 1)
	}
	if r.Digest == 0 {
		r.Digest = usual.Digest
	}
	if r.Repeat == 0 {
		r.Repeat = usual.Repeat
	}
	return r
}

// Alert is a message to somebody. Its JSON is stable: fields may be added.
type Alert struct {
	Check  string    `json:"check"`
	Name   string    `json:"alert"`  // a class, run_overdue or coverage_stalled
	Firing bool      `json:"firing"` // false: it is over
	Count  int       `json:"count"`  // open findings of the class; else 1 while it fires
	New    int       `json:"new"`    // of them since the last message
	Since  time.Time `json:"since,omitzero"`
	At     time.Time `json:"at"`
	Text   string    `json:"text"`
	// Samples are some of the findings, the newest first.
	Samples []AlertSample `json:"samples,omitempty"`
}

// AlertSample is a finding in an alert. It has no values of the user's columns
// but the key; the detail names those that differ.
type AlertSample struct {
	ID     string `json:"id"`
	Key    string `json:"key"`
	Detail string `json:"detail"`
}

// String says it in one line.
func (a *Alert) String() string {
	state := "firing"
	if !a.Firing {
		state = "over"
	}
	return fmt.Sprintf("%s %s %s: %s", a.Check, a.Name, state, a.Text)
}

// Notifier tells somebody of an alert. An error means that it was not told, and
// that it is to be tried again later; it may then be told twice.
type Notifier interface {
	Notify(ctx context.Context, alert *Alert) error
}

// Condition is whether an alert ought to be firing.
type Condition struct {
	Name   string    `json:"alert"`
	Firing bool      `json:"firing"`
	Count  int       `json:"count"`
	Since  time.Time `json:"since,omitzero"`
	Text   string    `json:"text"`
}

// Conditions returns what a check's standing means for each of its alerts, by
// name. Only what was confirmed and is open counts.
func (c *Check) Conditions(s *Standing) []Condition {
	all := make([]Condition, 0, len(c.Alerts))
	for _, name := range slices.Sorted(maps.Keys(c.Alerts)) {
		rule := c.Alerts[name]
		if rule.Off {
			continue
		}
		switch name {
		case AlertOverdue:
			all = append(all, c.overdue(s))
		case AlertStalled:
			all = append(all, c.stalled(s))
		default:
			class := Class(name)
			n := s.Open[class]
			all = append(all, Condition{Name: name, Firing: n >= rule.At, Count: n, Since: s.OpenSince[class], Text: counted(n, class)})
		}
	}
	return all
}

func counted(n int, class Class) string {
	if n == 1 {
		return "1 open finding of " + string(class)
	}
	return fmt.Sprintf("%d open findings of %s", n, class)
}

// overdue judges by the last run of recent changes or of all that came to its
// end; where none did, by the first that was begun.
func (c *Check) overdue(s *Standing) Condition {
	found := Condition{Name: AlertOverdue}
	limit := c.overdueAfter()
	if !c.windowed() {
		limit = c.SweepEvery + c.SweepEvery/2
	}
	var last time.Time
	for _, run := range []*RunRecord{s.LastDone, s.LastSweep} {
		if run != nil && run.FinishedAt != nil && run.FinishedAt.After(last) {
			last = *run.FinishedAt
		}
	}
	switch {
	case !last.IsZero():
		found.Since, found.Text = last, "the last run ended "+moment(last)
	case s.FirstRun != nil:
		found.Since, found.Text = *s.FirstRun, "no run has ended since the first began "+moment(*s.FirstRun)
	default:
		found.Text = "it has never run"
		return found
	}
	if age := s.Now.Sub(found.Since); age > limit {
		found.Firing, found.Count = true, 1
		found.Text += fmt.Sprintf(", longer ago than %s", limit)
		if s.LastRun != nil && s.LastRun.State == RunFailed {
			found.Text += "; the last one failed: " + s.LastRun.Error
		}
	}
	return found
}

// stalled judges by how far back the last change lies that is known to have
// been compared.
func (c *Check) stalled(s *Standing) Condition {
	found := Condition{Name: AlertStalled}
	var told []string
	for _, kind := range []struct {
		mode  Mode
		what  string
		limit time.Duration
	}{
		{ModeWindow, "recent changes", max(c.Tolerance, c.overdueAfter())},
		{ModeFull, "all keys", c.SweepEvery + c.SweepEvery/2},
	} {
		until, why := time.Time{}, "were never covered"
		if s.FirstRun != nil {
			until = *s.FirstRun
		}
		for _, covered := range s.Coverage {
			if covered.Kind == kind.mode && covered.Definition == c.Definition() {
				until, why = covered.Until, "are covered until "+moment(covered.Until)
			}
		}
		if kind.mode == ModeWindow && !c.windowed() || until.IsZero() || s.Now.Sub(until) <= kind.limit {
			continue
		}
		if found.Since.IsZero() || until.Before(found.Since) {
			found.Since = until
		}
		told = append(told, kind.what+" "+why)
	}
	found.Text = "coverage advances"
	if len(told) > 0 {
		found.Firing, found.Count, found.Text = true, 1, strings.Join(told, "; ")
	}
	return found
}
