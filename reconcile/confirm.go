package reconcile

import (
	"context"
	"slices"
	"time"
)

// maxCandidates bounds what waits for confirmation. Beyond it there is no
// doubt that something is wrong, and more is reported as it was seen.
const maxCandidates = 50_000

// settled reports whether nothing in the candidate needs a second look.
func (c *candidate) settled() bool {
	for _, v := range []*Verdict{c.write, c.read} {
		if v != nil && v.Class != InFlight {
			return false
		}
	}
	return true
}

func (r *run) spill() {
	if len(r.candidates) > maxCandidates {
		r.candidates[0].unconfirmed = true
		r.report.add(&r.candidates[0], r.check)
		r.report.Unconfirmed++
		r.candidates = r.candidates[1:]
	}
}

// confirm reads each candidate again, after each of the check's waits. What
// healed is counted and forgotten.
func (r *run) confirm(ctx context.Context) error {
	for _, wait := range r.check.Confirm {
		if err := r.round(ctx, func(c *candidate) (time.Time, bool) { return c.firstSeen.Add(wait), true }); err != nil {
			return err
		}
	}
	if len(r.check.Confirm) > 0 {
		// A read model may be between two states for as long as its consumer may take.
		if err := r.round(ctx, func(c *candidate) (time.Time, bool) {
			sent := last(c.facts.Log, isSent)
			if c.read == nil || c.read.Class == InFlight || sent == nil {
				return time.Time{}, false
			}
			switch c.read.Causes[0].Code {
			case Behind, Absent, NotRemoved: // judged by their deadline already
				return time.Time{}, false
			}
			if _, known := c.facts.Consumer[sent.ID]; known {
				return time.Time{}, false // the consumer has said what became of it
			}
			until := sent.since().Add(r.check.Deadline - r.ahead)
			return until, until.After(r.clock.Now())
		}); err != nil {
			return err
		}
	}
	for i := range r.candidates {
		r.report.add(&r.candidates[i], r.check)
	}
	r.candidates = nil
	return nil
}

// appointment is a candidate with when it is to be read again.
type appointment struct {
	candidate

	at time.Time
}

// round reads the candidates that have a due time again, each not before it,
// and those together that are due together. Who has a due time is settled before
// the first wait: it is not lost by waiting for others.
func (r *run) round(ctx context.Context, due func(*candidate) (time.Time, bool)) error {
	var kept []candidate
	var waiting []appointment
	for i := range r.candidates {
		if at, again := due(&r.candidates[i]); again {
			waiting = append(waiting, appointment{r.candidates[i], at})
		} else {
			kept = append(kept, r.candidates[i])
		}
	}
	r.candidates = nil
	slices.SortStableFunc(waiting, func(a, b appointment) int { return a.at.Compare(b.at) })
	for len(waiting) > 0 {
		if wait := waiting[0].at.Sub(r.clock.Now()); wait > 0 {
			if err := r.clock.Wait(ctx, wait); err != nil {
				return err
			}
		}
		now, n := r.clock.Now(), 1
		for n < min(len(waiting), amongKeys) && !waiting[n].at.After(now) {
			n++
		}
		stay, err := r.reread(ctx, waiting[:n])
		if err != nil {
			return err
		}
		kept, waiting = append(kept, stay...), waiting[n:]
	}
	r.candidates = kept
	return nil
}

// reread judges keys anew, and returns those that are still candidates; what
// turned out to be in flight is in the report. Of keys that cannot be read
// together each is tried by itself, so that one does not lose the others.
func (r *run) reread(ctx context.Context, some []appointment) (stay []candidate, err error) {
	whole := Range{only: &some[0].key}
	if len(some) > 1 {
		whole = Range{}
		for i := range some {
			whole.among = append(whole.among, some[i].key)
		}
		slices.SortFunc(whole.among, Key.Compare)
	}
	found, _, err := r.gather(ctx, whole)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil && len(some) > 1:
		for i := range some {
			one, err := r.reread(ctx, some[i:i+1])
			if err != nil {
				return nil, err
			}
			stay = append(stay, one...)
		}
		return stay, nil
	case err != nil:
		r.lose(whole, err)
		return nil, nil
	}
	facts := make(map[string]Facts, len(found))
	for i := range found {
		facts[found[i].Key.order] = found[i]
	}
	r.now()
	for i := range some {
		c := some[i].candidate
		anew, there := facts[c.key.order]
		if !there {
			anew = Facts{Key: c.key}
		}
		if r.stays(&c, &anew) {
			stay = append(stay, c)
		}
	}
	return stay, nil
}

// stays reports whether a key is still a candidate.
func (r *run) stays(c *candidate, anew *Facts) bool {
	write, read := Judge(anew, &r.rules)
	r.report.Healed += healed(c.write, write) + healed(c.read, read)
	// A side that had nothing to say at first has had no time to settle.
	if c.write == nil {
		write = nil
	}
	if c.read == nil {
		read = nil
	}
	c.facts, c.write, c.read = anew.trimmed(), write, read
	if write == nil && read == nil {
		return false
	}
	if c.settled() {
		r.report.add(c, r.check)
		return false
	}
	return true
}

func healed(before, after *Verdict) int {
	if before != nil && before.Class != InFlight && (after == nil || after.Class == InFlight) {
		return 1
	}
	return 0
}
