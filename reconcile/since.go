package reconcile

import "time"

// begin returns the time before which a difference cannot have been there, as
// far as the arms tell; zero where they do not. A row that was edited without
// its time being set is different for longer than it says.
func begin(f *Facts, v *Verdict) time.Time {
	if len(v.Causes) == 0 {
		return time.Time{}
	}
	switch code := v.Causes[0].Code; {
	case v.Class == Unverified || code == Gap:
		return time.Time{}
	case v.Side == ReadSide && code == Content:
		return later(written(f.Read), setOut(last(f.Log, isSent)))
	case v.Side == ReadSide && (code == Extra || code == Ahead):
		return written(f.Read)
	case v.Side == ReadSide && len(f.Log) == 0:
		return written(f.Write)
	case v.Side == ReadSide:
		return behindFrom(f)
	case code == Content:
		return later(written(f.Write), created(eventOf(f.Log, f.Write)))
	case code == NeverWritten || code == RowGone || code == DeletedInLog:
		return written(f.Write)
	case f.Write == nil || code == AheadOfRow:
		return created(last(f.Log, every))
	}
	return created(eventOf(f.Log, f.Write))
}

// behindFrom returns when the first event that the read model does not show
// set out.
func behindFrom(f *Facts) time.Time {
	above := int64(minVersion)
	if f.Read != nil && !f.Read.Deleted {
		above = f.Read.Version
	} else if sent := last(f.Log, isSent); sent != nil {
		above = afterLastDelete(f.Log, sent)
	}
	if first := firstUnapplied(f, above); first != nil {
		return setOut(first)
	}
	return setOut(last(f.Log, isSent))
}

func eventOf(events []Event, row *Row) *Event {
	return last(events, func(e *Event) bool { return row != nil && e.Version == row.Version })
}

func written(row *Row) time.Time {
	if row == nil {
		return time.Time{}
	}
	return row.UpdatedAt
}

func created(e *Event) time.Time {
	if e == nil {
		return time.Time{}
	}
	return e.CreatedAt
}

func setOut(e *Event) time.Time {
	if e == nil {
		return time.Time{}
	}
	return e.since()
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
