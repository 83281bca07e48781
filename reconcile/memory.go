package reconcile

import "time"

// memory is what a run knows of earlier ones.
type memory struct {
	again  []Key             // keys to look at again in a window
	wants  map[string]bool   // their orders
	behind map[string]behind // by the key's order
	// seen is nil where nothing is kept: what this run saw behind, within its
	// deadline. late is what was there before, and is too late now.
	seen map[string]behind
	late map[string]bool
}

// maxBehind bounds how many keys are remembered as behind. Where more are, the
// consumer is down, and the age of its first event says so.
const maxBehind = 50_000

// behind is a read model that lacks sent events, as a run first saw it.
type behind struct {
	key     Key
	since   time.Time
	version int64 // the read model's; minVersion for no row
	sent    int64 // the latest sent event's
}

// recall adds to a key since when its read model has been where it is. That
// counts only while the read model has not moved: one that is slow, but moves,
// is behind another event each time.
func (m *memory) recall(f *Facts) {
	known, ok := m.behind[f.Key.order]
	if !ok || readVersion(f) != known.version {
		return
	}
	gone := last(f.Log, func(e *Event) bool { return e.Delete && e.State == StateSent && e.Version >= known.sent })
	if f.Read == nil && gone != nil {
		return // it may have come and gone in between
	}
	f.BehindSince = known.since
}

// note remembers a read model that waits for sent events.
func (m *memory) note(f *Facts, read *Verdict, now time.Time) {
	if m.seen == nil || read == nil {
		return
	}
	sent := last(f.Log, isSent)
	switch read.Causes[0].Code {
	case Sent:
		if sent == nil || len(m.seen) >= maxBehind {
			return
		}
		since := now
		if !f.BehindSince.IsZero() {
			since = f.BehindSince
		}
		m.seen[f.Key.order] = behind{key: f.Key, since: since, version: readVersion(f), sent: sent.Version}
	case Behind, Absent, NotRemoved:
		if _, known := m.behind[f.Key.order]; known {
			m.late[f.Key.order] = true
		}
	}
}

// readVersion returns the version of the read model, a removed row being none.
func readVersion(f *Facts) int64 {
	if f.Read == nil || f.Read.Deleted {
		return minVersion
	}
	return f.Read.Version
}
