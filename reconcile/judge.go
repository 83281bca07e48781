package reconcile

import (
	"fmt"
	"time"
)

// Judge decides about one key: at most one verdict for each side, nil for
// nothing to say. It reads nothing and changes nothing.
func Judge(f *Facts, r *Rules) (write, read *Verdict) {
	if r.HasWrite && r.HasLog {
		write = judgeWrite(f, r)
	}
	switch {
	case !r.HasRead:
	case r.HasLog:
		read = judgeRead(f, r, write)
	case r.HasWrite:
		read = judgeReadByRow(f, r)
	}
	for _, found := range []*Verdict{write, read} {
		if found != nil {
			found.Since = begin(f, found)
		}
	}
	return write, read
}

func judgeWrite(f *Facts, r *Rules) *Verdict {
	top := last(f.Log, every)
	if f.Write == nil {
		return judgeNoRow(f, r, top)
	}
	if top == nil {
		return judgeNoEvent(f, r)
	}
	if top.Version > f.Write.Version {
		return verdict(OrphanEvent, WriteSide, AheadOfRow, "the log is at v%d (%s), the row at v%d", top.Version, top.ID, f.Write.Version)
	}
	at := last(f.Log, func(e *Event) bool { return e.Version == f.Write.Version })
	sent := last(f.Log, isSent)
	var found *Verdict
	switch {
	case sent != nil && sent.Version == f.Write.Version:
		found = judgeContent(f, r, sent)
	case at == nil:
		if expired(f, r) {
			return verdict(Unverified, WriteSide, LogExpired, "the log may no longer have the event of v%d, written %s", f.Write.Version, moment(f.Write.UpdatedAt))
		}
		found = missing(f, r, sent, neverWritten(f, sent))
	default:
		if onItsWay(at, r) {
			if found = judgeContent(f, r, at); found == nil {
				found = verdict(InFlight, WriteSide, Pending, "%s v%d is pending since %s", at.ID, at.Version, moment(at.CreatedAt))
			}
		} else {
			found = missing(f, r, sent, unsent(at))
		}
	}
	if r.EveryVersion {
		found = withGaps(f, r, found)
	}
	return found
}

// judgeNoRow judges what the log has of a row that is not there.
func judgeNoRow(f *Facts, r *Rules, top *Event) *Verdict {
	switch {
	case top == nil:
		return nil
	case !top.Delete:
		return verdict(OrphanEvent, WriteSide, NoRow, "there is no row, and the log is at v%d (%s, %s)", top.Version, top.ID, top.Word)
	case top.State == StateSent:
		return nil
	case onItsWay(top, r):
		return verdict(InFlight, WriteSide, Pending, "the delete %s v%d is pending since %s", top.ID, top.Version, moment(top.CreatedAt))
	}
	found := verdict(MissingEvent, WriteSide, "", "")
	found.Causes, found.Missing = []Cause{unsent(top)}, 1
	return found
}

func judgeNoEvent(f *Facts, r *Rules) *Verdict {
	if expired(f, r) {
		return verdict(Unverified, WriteSide, LogExpired, "the log no longer has events of a row written %s", moment(f.Write.UpdatedAt))
	}
	found := missing(f, r, nil, neverWritten(f, nil))
	if r.EveryVersion {
		return withGaps(f, r, found)
	}
	return found
}

// expired reports whether the log may once have had the row's event.
func expired(f *Facts, r *Rules) bool {
	return f.Head == nil && !r.LogSince.IsZero() && !f.Write.UpdatedAt.IsZero() && f.Write.UpdatedAt.Before(r.LogSince)
}

func judgeContent(f *Facts, r *Rules, e *Event) *Verdict {
	if e.Delete != f.Write.Deleted && e.Delete {
		return verdict(MismatchWrite, WriteSide, DeletedInLog, "%s v%d says that the row is deleted, and it is there", e.ID, e.Version)
	}
	if r.Delta || e.Delete {
		return nil
	}
	var different []Difference
	for i, c := range r.Columns {
		if !c.Write || !c.Log {
			continue
		}
		row, event := f.Write.Values[i], e.Values[i]
		if equal, _ := Equal(row, event); !equal {
			different = append(different, Difference{Column: c.Name, Row: &row, Event: &event})
		}
	}
	if different == nil {
		return nil
	}
	d := different[0]
	found := verdict(MismatchWrite, WriteSide, Content, "v%d: %s is %s in the row and %s in the event %s", e.Version, d.Column, d.Row, d.Event, e.ID)
	found.Differences = different
	return found
}

// missing counts the events that should have been sent up to the row's
// version. Without density only those that are there, and the row's own.
func missing(f *Facts, r *Rules, sent *Event, why Cause) *Verdict {
	found := verdict(MissingEvent, WriteSide, why.Code, "%s", why.Text)
	from := r.FirstVersion - 1
	if sent != nil {
		from = sent.Version
	}
	counted := int64(0)
	own := false
	for i := range f.Log {
		if e := &f.Log[i]; e.Version > from && e.Version <= f.Write.Version && (i == 0 || f.Log[i-1].Version != e.Version) {
			counted++
			own = own || e.Version == f.Write.Version
		}
	}
	if !own {
		counted++
	}
	found.Missing = counted
	return found
}

func neverWritten(f *Facts, sent *Event) Cause {
	latest := "the log has none"
	if top := last(f.Log, every); top != nil {
		latest = fmt.Sprintf("the log's latest is v%d (%s, %s)", top.Version, top.ID, top.Word)
	}
	if f.Head != nil && *f.Head >= f.Write.Version {
		return Cause{RowGone, fmt.Sprintf("the event of v%d was written and is gone; %s", f.Write.Version, latest)}
	}
	return Cause{NeverWritten, fmt.Sprintf("the row is at v%d, %s", f.Write.Version, latest)}
}

// unsent says why an event that is in the log does not count.
func unsent(e *Event) Cause {
	name := fmt.Sprintf("%s v%d", e.ID, e.Version)
	switch e.State {
	case StateDead:
		return Cause{Dead, name + " is dead"}
	case StateSkipped:
		return Cause{Skipped, name + " was skipped"}
	case StateUnqueued:
		return Cause{NeverQueued, name + " was never queued"}
	case StatePending:
		return Cause{Stuck, name + " is pending since " + moment(e.CreatedAt)}
	}
	return Cause{UnknownState, fmt.Sprintf("%s is in the state %q, which the check does not name", name, e.Word)}
}

// withGaps adds the versions below the row's that have no sent event.
func withGaps(f *Facts, r *Rules, found *Verdict) *Verdict {
	next, count := r.FirstVersion, int64(0)
	if !r.LogSince.IsZero() && len(f.Log) > 0 {
		next = f.Log[0].Version // what was before it may have been removed
	}
	var causes []Cause
	gap := func(to int64) { // versions [next, to) are not in the log
		if to <= next {
			return
		}
		count += to - next
		text := fmt.Sprintf("v%d has no event", next)
		if to-next > 1 {
			text = fmt.Sprintf("v%d to v%d have no event", next, to-1)
		}
		causes = append(causes, Cause{Gap, text})
	}
	for i := 0; i < len(f.Log); {
		version, sent, waiting, worst := f.Log[i].Version, false, false, &f.Log[i]
		for ; i < len(f.Log) && f.Log[i].Version == version; i++ {
			sent = sent || f.Log[i].State == StateSent
			waiting = waiting || onItsWay(&f.Log[i], r)
			worst = &f.Log[i]
		}
		if version >= f.Write.Version {
			break
		}
		if version < next {
			continue
		}
		gap(version)
		next = version + 1
		if !sent && !waiting {
			count++
			causes = append(causes, unsent(worst))
		}
	}
	gap(f.Write.Version)
	switch {
	case count == 0:
		return found
	case found == nil || found.Class == InFlight:
		found = verdict(MissingEvent, WriteSide, "", "")
		found.Causes = nil
	case found.Class == MissingEvent:
		count++ // the row's own
	default: // the content differs too; one verdict has both causes
		found.Class = MissingEvent
	}
	const shown = 20
	if more := len(causes) - shown; more > 0 {
		causes = append(causes[:shown], Cause{Gap, fmt.Sprintf("and %d more such places", more)})
	}
	found.Causes, found.Missing = append(found.Causes, causes...), count
	return found
}

// onItsWay reports whether the relay still may take its time. An event of
// unknown age may not.
func onItsWay(e *Event, r *Rules) bool {
	return e.State == StatePending && within(e.CreatedAt, r.Exemption, r.Now)
}

func within(since time.Time, limit time.Duration, now time.Time) bool {
	return !since.IsZero() && now.Sub(since) <= limit
}

func every(*Event) bool { return true }

func isSent(e *Event) bool { return e.State == StateSent }

// last returns the event of the highest version that matches.
func last(events []Event, match func(*Event) bool) *Event {
	for i := len(events) - 1; i >= 0; i-- {
		if match(&events[i]) {
			return &events[i]
		}
	}
	return nil
}

func verdict(class Class, side Side, code Code, format string, args ...interface{}) *Verdict {
	found := &Verdict{Class: class, Side: side}
	if code != "" {
		found.Causes = []Cause{{code, fmt.Sprintf(format, args...)}}
	}
	return found
}

func moment(at time.Time) string {
	if at.IsZero() {
		return "a time that is not known"
	}
	return at.UTC().Format(time.RFC3339)
}
