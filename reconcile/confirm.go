package reconcile

import (
	"context"
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

// round reads the candidates that have a due time again, each not before it.
func (r *run) round(ctx context.Context, due func(*candidate) (time.Time, bool)) error {
	kept := r.candidates[:0]
	for i := range r.candidates {
		c := r.candidates[i]
		at, again := due(&c)
		if !again {
			kept = append(kept, c)
			continue
		}
		if wait := at.Sub(r.clock.Now()); wait > 0 {
			if err := r.clock.Wait(ctx, wait); err != nil {
				return err
			}
		}
		stays, err := r.reread(ctx, &c)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			r.lose(Range{only: &c.key}, err)
		case stays:
			kept = append(kept, c)
		}
	}
	r.candidates = kept
	return nil
}

// reread judges a key anew. It reports whether the key is still a candidate;
// one that turned out to be in flight is in the report.
func (r *run) reread(ctx context.Context, c *candidate) (bool, error) {
	found, _, err := r.gather(ctx, Range{only: &c.key})
	if err != nil {
		return false, err
	}
	facts := Facts{Key: c.key}
	if len(found) > 0 {
		facts = found[0]
	}
	r.now()
	write, read := Judge(&facts, &r.rules)
	r.report.Healed += healed(c.write, write) + healed(c.read, read)
	// A side that had nothing to say at first has had no time to settle.
	if c.write == nil {
		write = nil
	}
	if c.read == nil {
		read = nil
	}
	c.facts, c.write, c.read = facts.trimmed(), write, read
	if write == nil && read == nil {
		return false, nil
	}
	if c.settled() {
		r.report.add(c, r.check)
		return false, nil
	}
	return true, nil
}

func healed(before, after *Verdict) int {
	if before != nil && before.Class != InFlight && (after == nil || after.Class == InFlight) {
		return 1
	}
	return 0
}
