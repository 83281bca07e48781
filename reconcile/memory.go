package reconcile

import "time"

// memory is what a run knows of earlier ones.
type memory struct {
	again  []Key             // keys to look at again in a window
	behind map[string]behind // by the key's order
}

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

// readVersion returns the version of the read model, a removed row being none.
func readVersion(f *Facts) int64 {
	if f.Read == nil || f.Read.Deleted {
		return minVersion
	}
	return f.Read.Version
}
