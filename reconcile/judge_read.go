package reconcile

// judgeRead judges the read model against the latest sent event.
func judgeRead(f *Facts, r *Rules, write *Verdict) *Verdict {
	if f.Read != nil && !f.Read.Deleted {
		lacking := write != nil && (write.Class == MissingEvent || write.Class == Unverified)
		if lacking && f.Write != nil && equalRows(f, r) {
			return nil // it has what the log lacks: that the event is missing says it all
		}
		return judgeReadRow(f, r)
	}
	sent := last(f.Log, isSent)
	if sent == nil || sent.Delete {
		return nil
	}
	removed := func(e *Event) bool { return e.Delete && e.Version > sent.Version }
	if last(f.Log, removed) != nil || last(f.again(), removed) != nil {
		return nil // removed by a delete that was on its way to be marked as sent
	}
	first := firstUnapplied(f, afterLastDelete(f.Log, sent))
	return late(f, r, first, Absent, "the log is at v%d (%s), the read model has no row", sent.Version, sent.ID)
}

func judgeReadRow(f *Facts, r *Rules) *Verdict {
	version, sent := f.Read.Version, last(f.Log, isSent)
	top := last(f.again(), every)
	if known := last(f.Log, every); top == nil || known != nil && known.Version > top.Version {
		top = known
	}
	switch {
	case top == nil && !r.LogSince.IsZero() && !f.Read.UpdatedAt.IsZero() && f.Read.UpdatedAt.Before(r.LogSince):
		return verdict(Unverified, ReadSide, LogExpired, "the log no longer has events of what the read model wrote %s", moment(f.Read.UpdatedAt))
	case top == nil:
		return verdict(MismatchRead, ReadSide, Extra, "the read model has v%d, the log has no event", version)
	case version > top.Version:
		if sent == nil && last(f.again(), isSent) == nil {
			return verdict(MismatchRead, ReadSide, Extra, "the read model has v%d, the log's latest is v%d and was not sent", version, top.Version)
		}
		return verdict(MismatchRead, ReadSide, Ahead, "the read model is at v%d, the log's latest is v%d (%s)", version, top.Version, top.ID)
	case sent != nil && version < sent.Version:
		first := firstUnapplied(f, version)
		if sent.Delete {
			return late(f, r, first, NotRemoved, "the row was deleted at v%d (%s), the read model still has v%d", sent.Version, sent.ID, version)
		}
		return late(f, r, first, Behind, "the log is at v%d (%s), the read model at v%d", sent.Version, sent.ID, version)
	}
	shown := func(e *Event) bool { return e.Version == version && e.Values != nil }
	at := last(f.Log, shown)
	switch {
	case at != nil && at.Delete:
		if at.State != StateSent {
			return nil // the delete has not been sent yet
		}
		return verdict(MismatchRead, ReadSide, NotRemoved, "%s v%d says that the row is deleted, and the read model has it", at.ID, version)
	case at != nil:
		found := judgeReadContent(f, r, at)
		if sent := last(f.Log, func(e *Event) bool { return shown(e) && isSent(e) }); found != nil && sent != nil && sent != at {
			return judgeReadContent(f, r, sent) // the later one may still have to be sent
		}
		return found
	case last(f.again(), func(e *Event) bool { return e.Version == version }) != nil:
		return nil // sent while this ran
	}
	return verdict(Unverified, ReadSide, NoSuchPast, "the read model is at v%d, of which the log has no event", version)
}

func judgeReadContent(f *Facts, r *Rules, e *Event) *Verdict {
	if r.Delta { // an event alone says nothing; the row of that version does
		if f.Write == nil || f.Write.Version != f.Read.Version {
			return nil
		}
		return contentByRow(f, r)
	}
	var different []Difference
	for i, c := range r.Columns {
		if !c.Log || !c.Read {
			continue
		}
		event, read := e.Values[i], f.Read.Values[i]
		if equal, _ := Equal(event, read); !equal {
			different = append(different, Difference{Column: c.Name, Event: &event, Read: &read})
		}
	}
	if different == nil {
		return nil
	}
	d := different[0]
	found := verdict(MismatchRead, ReadSide, Content, "v%d: %s is %s in the event %s and %s in the read model", e.Version, d.Column, d.Event, e.ID, d.Read)
	found.Differences = different
	return found
}

// late judges a read model that lacks sent events: by what the consumer says
// of the first of them, else by the time that it has had.
func late(f *Facts, r *Rules, first *Event, code Code, format string, args ...interface{}) *Verdict {
	found := verdict(MismatchRead, ReadSide, code, format, args...)
	because := func(class Class, code Code, text string) *Verdict {
		found.Class = class
		found.Causes = append([]Cause{{code, text}}, found.Causes...)
		return found
	}
	if first == nil {
		if len(f.Consumer) > 0 {
			return because(MismatchRead, SetBack, "the consumer has settled every event of this key")
		}
		return found
	}
	if held, known := f.Consumer[first.ID]; known {
		why := ""
		if held.Error != "" {
			why = ": " + held.Error
		}
		switch held.Fate {
		case FateDead:
			return because(MismatchRead, HeldDead, "the consumer holds "+first.ID+" as dead"+why)
		case FateRetry:
			return because(InFlight, HeldRetry, "the consumer tries "+first.ID+" again"+why)
		case FateBlocked:
			if held.BehindDead {
				return because(MismatchRead, Blocked, first.ID+" waits behind an event that is dead")
			}
			return because(InFlight, HeldBlocked, first.ID+" waits behind an event that is tried again")
		case FateWaiting:
			if within(held.Since, r.Deadline, r.Now) {
				return because(InFlight, HeldWaiting, first.ID+" waits for an earlier version since "+moment(held.Since))
			}
			return because(MismatchRead, HeldWaiting, first.ID+" waits for an earlier version, too long, since "+moment(held.Since))
		}
	}
	since := first.since()
	if !f.BehindSince.IsZero() && (since.IsZero() || f.BehindSince.Before(since)) {
		since = f.BehindSince
	}
	if within(since, r.Deadline, r.Now) {
		return because(InFlight, Sent, first.ID+" set out "+moment(since))
	}
	return found
}

// firstUnapplied returns the first sent event above a version that the
// consumer has not settled; nil where it has settled all.
func firstUnapplied(f *Facts, above int64) *Event {
	for i := range f.Log {
		e := &f.Log[i]
		if e.State != StateSent || e.Version <= above {
			continue
		}
		switch f.Consumer[e.ID].Fate {
		case FateApplied, FateStale, FateSkipped:
			continue
		}
		return e
	}
	return nil
}

// afterLastDelete returns the version above which events count for a read
// model that has no row: what came before a delete is settled with it.
func afterLastDelete(events []Event, sent *Event) int64 {
	deleted := last(events, func(e *Event) bool { return e.Delete && e.State == StateSent && e.Version < sent.Version })
	if deleted == nil {
		return minVersion
	}
	return deleted.Version
}

const minVersion = -1 << 63

// judgeReadByRow judges where there is no log: against the business row, which
// may have been written a moment ago.
func judgeReadByRow(f *Facts, r *Rules) *Verdict {
	var found *Verdict
	row, read := f.Write, f.Read
	if row != nil && row.Deleted {
		row = nil
	}
	if read != nil && read.Deleted {
		read = nil
	}
	switch {
	case row == nil && read == nil:
		return nil
	case row == nil:
		return verdict(MismatchRead, ReadSide, Extra, "the read model has v%d, there is no row", read.Version)
	case read == nil:
		found = verdict(MismatchRead, ReadSide, Absent, "the row is at v%d, the read model has none", row.Version)
	case read.Version > row.Version:
		return verdict(MismatchRead, ReadSide, Ahead, "the read model is at v%d, the row at v%d", read.Version, row.Version)
	case read.Version < row.Version:
		found = verdict(MismatchRead, ReadSide, Behind, "the row is at v%d, the read model at v%d", row.Version, read.Version)
	default:
		return contentByRow(f, r)
	}
	if within(row.UpdatedAt, r.Exemption+r.Deadline, r.Now) {
		found.Class = InFlight
		found.Causes = append(found.Causes, Cause{AgainstRow, "the row was written " + moment(row.UpdatedAt)})
	}
	return found
}

func contentByRow(f *Facts, r *Rules) *Verdict {
	different := differencesByRow(f, r)
	if different == nil {
		return nil
	}
	d := different[0]
	found := verdict(MismatchRead, ReadSide, Content, "v%d: %s is %s in the row and %s in the read model", f.Read.Version, d.Column, d.Row, d.Read)
	found.Differences = different
	return found
}

func differencesByRow(f *Facts, r *Rules) (different []Difference) {
	for i, c := range r.Columns {
		if !c.Write || !c.Read {
			continue
		}
		row, read := f.Write.Values[i], f.Read.Values[i]
		if equal, _ := Equal(row, read); !equal {
			different = append(different, Difference{Column: c.Name, Row: &row, Read: &read})
		}
	}
	return different
}

// equalRows reports whether the read model equals the business row.
func equalRows(f *Facts, r *Rules) bool {
	return f.Write.Version == f.Read.Version && differencesByRow(f, r) == nil
}

// again returns the newest reading of the log.
func (f *Facts) again() []Event {
	if f.Again != nil {
		return f.Again
	}
	return f.Log
}
