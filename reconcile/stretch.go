package reconcile

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/waybillhq/waybill/internal/fault"
)

// stretch is the report of a part of a weekly run, as it is kept until the run
// is over.
type stretch struct {
	Report *Report  `json:"report"`
	Orders []string `json:"orders"` // of its findings, in hex
}

// weekly compares all keys stretch by stretch. A stretch counts only once it is
// on record with its findings; a run that was interrupted goes on behind the
// last one of an unbroken row.
func (p *pass) weekly(ctx context.Context) (*Report, error) {
	total := p.engine.newReport()
	total.StartedAt = p.record.StartedAt
	from, ended, err := p.resume(total)
	if err != nil {
		return nil, err
	}
	began := p.engine.clock.Now()
	for !ended {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if p.config.Slice > 0 && p.engine.clock.Now().Sub(began) >= p.config.Slice {
			total.Coverage.Complete = false
			return total, nil
		}
		to, err := p.stretch(ctx, from, total)
		if err != nil {
			return nil, err
		}
		from, ended = to, to == nil
	}
	return total, nil
}

// resume adds what is on record already, and returns where to go on.
func (p *pass) resume(total *Report) (from *Key, ended bool, err error) {
	if p.past.Continued == nil {
		return nil, false, nil
	}
	owner := p.record.Owner
	p.record = *p.past.Continued
	p.record.Owner = owner
	total.StartedAt = p.record.StartedAt
	at := ""
	for i := range p.past.Ranges {
		r := &p.past.Ranges[i]
		p.seq = max(p.seq, r.Seq+1)
		if len(r.Report) == 0 {
			continue // it belongs to the stretch before it
		}
		var s stretch
		if err := json.Unmarshal(r.Report, &s); err != nil {
			return nil, false, fmt.Errorf("range %d of run %s: %w", r.Seq, p.record.ID, err)
		}
		if r.From != at {
			break // cannot be, but nothing may be skipped
		}
		for j := range s.Report.Findings {
			if j < len(s.Orders) {
				s.Report.Findings[j].order = orderOf(s.Orders[j])
				p.found[findingID(p.record.Check, s.Report.Findings[j].Class, s.Orders[j])] = s.Report.Findings[j].Class.Difference()
			}
		}
		total.absorb(s.Report, p.engine.check.MaxFindings)
		if at = r.To; at == "" {
			return nil, true, nil
		}
	}
	if at == "" {
		return nil, false, nil
	}
	key, err := keyFromStored(p.engine.check.kinds(), at)
	return &key, false, err
}

// stretch compares, confirms and records some keys, and adds them to the whole.
func (p *pass) stretch(ctx context.Context, from *Key, total *Report) (*Key, error) {
	run, err := p.newRun(ctx)
	if err != nil {
		return nil, err
	}
	run.most = p.config.StretchKeys
	to, err := run.sweep(ctx, from)
	if err != nil {
		return nil, err
	}
	fault.Point("reconcile.read")
	if err := run.confirm(ctx); err != nil {
		return nil, err
	}
	fault.Point("reconcile.confirmed")
	report := run.finish()
	outcome := p.outcome(run, report)
	part := stretch{Report: report}
	for i := range report.Findings {
		part.Orders = append(part.Orders, storedOrder(report.Findings[i].order))
	}
	text, err := json.Marshal(part)
	if err != nil {
		return nil, err
	}
	// One record stands for the stretch, with its report; what failed in it follows.
	whole := RangeRecord{Seq: p.seq, From: storedEnd(from), To: storedEnd(to), Keys: report.Keys, Verified: report.Coverage.Complete, Report: text}
	if len(report.Coverage.Failed) > 0 {
		whole.Error = report.Coverage.Failed[0].Error
	}
	p.seq++
	outcome.Ranges = []RangeRecord{whole}
	total.absorb(report, p.engine.check.MaxFindings)
	if to == nil {
		at := p.engine.clock.Now().Add(p.offset)
		outcome.Run.State, outcome.Run.FinishedAt = RunDone, &at
		outcome.Coverage = p.advance(Scope{Mode: ModeWeekly}, p.record.StartedAt.Add(-p.offset+run.ahead), total)
	}
	return to, p.commit(ctx, outcome, total)
}

// absorb adds the report of other keys.
func (r *Report) absorb(part *Report, most int) {
	r.FinishedAt = part.FinishedAt
	r.Differences += part.Differences
	r.InFlight += part.InFlight
	r.Unverified += part.Unverified
	if len(part.Unindexed) > 0 {
		r.Unindexed = part.Unindexed
	}
	for class, n := range part.Counts {
		r.Counts[class] += n
	}
	for class, at := range part.Oldest {
		if known, ok := r.Oldest[class]; !ok || at.Before(known) {
			if r.Oldest == nil {
				r.Oldest = make(map[Class]time.Time)
			}
			r.Oldest[class] = at
		}
	}
	room := min(len(part.Findings), max(most-len(r.Findings), 0))
	r.Findings = append(r.Findings, part.Findings[:room]...)
	r.LeftOut += part.LeftOut + len(part.Findings) - room
	r.sort()
	if len(part.Unindexed) > 0 {
		r.Unindexed = part.Unindexed
	}
	r.Healed += part.Healed
	r.Unconfirmed += part.Unconfirmed
	r.Keys += part.Keys
	r.Rows.Write += part.Rows.Write
	r.Rows.Log += part.Rows.Log
	r.Rows.Read += part.Rows.Read
	r.Coverage.Ranges += part.Coverage.Ranges
	r.Coverage.Failed = append(r.Coverage.Failed, part.Coverage.Failed...)
	r.Coverage.Complete = len(r.Coverage.Failed) == 0
	r.Normalised = sumNotes(r.Normalised, part.Normalised)
}

func sumNotes(a, b []Normalised) []Normalised {
	counts := make(map[note]int)
	for _, n := range slices.Concat(a, b) {
		counts[note{n.Column, n.How}] += n.Count
	}
	sum := make([]Normalised, 0, len(counts))
	for _, n := range slices.SortedFunc(maps.Keys(counts), func(a, b note) int {
		return cmp.Or(cmp.Compare(a.column, b.column), cmp.Compare(a.how, b.how))
	}) {
		sum = append(sum, Normalised{n.column, n.how, counts[n]})
	}
	return sum
}
