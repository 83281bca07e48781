package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// AlertBook remembers what was told, so that a restart, or a second process,
// does not tell it again. Names are those of an alert at a target.
type AlertBook interface {
	// Told returns what was told of a check, by name.
	Told(ctx context.Context, check string) (map[string]Told, error)
	// Claim gives the right to tell, for a time; false: somebody else has it, or
	// has told it since before was read.
	Claim(ctx context.Context, check, name string, before Told, d time.Duration) (bool, error)
	// Settle ends a claim by what was told.
	Settle(ctx context.Context, check, name string, told Told) error
}

// Told is what was last said of an alert.
type Told struct {
	Firing bool
	Since  time.Time
	At     time.Time // zero: nothing yet
}

// Records is all that a [Ledger] knows, for those who tell of it.
type Records interface {
	Findings
	History
	AlertBook
}

// Alerter tells targets of the alerts of one check.
type Alerter struct {
	check   *Check
	records Records
	targets map[string]Notifier
	redact  func(string) string
}

// NewAlerter makes an alerter. The targets' names must stay the same over
// restarts. redact takes out of a text what nobody may see; it may be nil.
func NewAlerter(check *Check, records Records, targets map[string]Notifier, redact func(string) string) *Alerter {
	if redact == nil {
		redact = func(text string) string { return text }
	}
	return &Alerter{check: check, records: records, targets: targets, redact: redact}
}

// A claim outlives all attempts of a target; then another process may try.
const claim = time.Minute

// samples is how many findings an alert shows, and sampleBytes how long each
// text may be.
const (
	samples     = 5
	sampleBytes = 300
)

// Tell tells each target what it has not been told. What could not be told is
// told the next time; the error names it.
func (a *Alerter) Tell(ctx context.Context) error {
	if len(a.targets) == 0 {
		return nil
	}
	standing, err := a.records.Standing(ctx, a.check.Name)
	if err != nil {
		return err
	}
	told, err := a.records.Told(ctx, a.check.Name)
	if err != nil {
		return err
	}
	var failed []error
	for _, condition := range a.check.Conditions(standing) {
		for _, target := range slices.Sorted(maps.Keys(a.targets)) {
			name := target + "/" + condition.Name
			before := told[name]
			if !a.due(&condition, before, standing) {
				continue
			}
			if err := a.tell(ctx, target, name, &condition, before, toldUpTo(&condition, standing)); err != nil {
				failed = append(failed, fmt.Errorf("alert %s: %w", name, err))
			}
		}
	}
	return errors.Join(failed...)
}

// due reports whether a target must hear of a condition.
func (a *Alerter) due(c *Condition, before Told, s *Standing) bool {
	rule := a.check.Alerts[c.Name]
	age := s.Now.Sub(before.At)
	switch {
	case !c.Firing:
		return before.Firing
	case before.At.IsZero():
		return true
	case age < rule.Digest:
		return false
	case !before.Firing:
		return true
	}
	return age >= rule.Repeat || s.NewestOpen[Class(c.Name)].After(before.At)
}

// toldUpTo returns up to when what is told of a condition holds. The time was read
// before the findings were: one of them may be younger, and is told of all the same.
func toldUpTo(c *Condition, s *Standing) time.Time {
	if newest := s.NewestOpen[Class(c.Name)]; newest.After(s.Now) {
		return newest
	}
	return s.Now
}

func (a *Alerter) tell(ctx context.Context, target, name string, c *Condition, before Told, now time.Time) error {
	mine, err := a.records.Claim(ctx, a.check.Name, name, before, claim)
	if err != nil || !mine {
		return err
	}
	alert := &Alert{Check: a.check.Name, Name: c.Name, Firing: c.Firing, Count: c.Count, Since: c.Since, At: now, Text: a.text(c.Text)}
	if class := Class(c.Name); slices.Contains(Classes, class) {
		if err := a.sample(ctx, alert, class, before); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, claim)
	defer cancel()
	if err := a.targets[target].Notify(ctx, alert); err != nil {
		return err
	}
	since := c.Since
	if since.IsZero() { // it is over
		since = now
	}
	return a.records.Settle(ctx, a.check.Name, name, Told{Firing: c.Firing, Since: since, At: now})
}

func (a *Alerter) sample(ctx context.Context, alert *Alert, class Class, before Told) error {
	const most = 1000 // beyond it the count says enough
	found, err := a.records.ListFindings(ctx, FindingFilter{Check: a.check.Name, Class: class, States: []FindingState{FindingOpen}, Limit: most})
	if err != nil {
		return err
	}
	for i := range found {
		f := &found[i]
		if f.FirstSeen.After(before.At) {
			alert.New++
		}
		if i < samples {
			alert.Samples = append(alert.Samples, AlertSample{ID: f.ID, Key: a.text(f.Key), Detail: a.text(f.Detail)})
		}
	}
	return nil
}

// text makes a text fit for a message.
func (a *Alerter) text(text string) string {
	if text = oneLine(a.redact(text)); len(text) > sampleBytes {
		cut := sampleBytes
		for cut > 0 && text[cut]&0xc0 == 0x80 { // within a character
			cut--
		}
		text = text[:cut] + "..."
	}
	return text
}
