package reconcile

import (
	"cmp"
	"slices"
)

// archive returns the arms with the outbox's archive for their log.
func (t *tables) archive() *tables {
	return t.withLog(t.check.Log.Outbox.Names.WithDefaults().Archive, "outcome", "published_at")
}

// withLog returns the arms with another table of the outbox for their log, which
// has all its columns but those of the queue.
func (t *tables) withLog(table, state, sentAt string) *tables {
	other, check, log := *t, *t.check, *t.check.Log
	log.Table.Table = table
	log.State, log.Queued, log.SentAt, log.bare = state, "", sentAt, nil
	check.Log = &log
	other.check = &check
	return &other
}

// withArchived adds archived events to the facts of their keys. Both are sorted
// by key; an event may be in both, if it was moved in between.
func withArchived(found []Facts, archived []Keyed[[]Event]) []Facts {
	var all []Facts
	for _, old := range archived {
		for len(found) > 0 && found[0].Key.Compare(old.Key) < 0 {
			all, found = append(all, found[0]), found[1:]
		}
		f := Facts{Key: old.Key}
		if len(found) > 0 && found[0].Key.Compare(old.Key) == 0 {
			f, found = found[0], found[1:]
		}
		f.Log = joinEvents(f.Log, old.Item)
		if f.Again != nil {
			f.Again = joinEvents(f.Again, old.Item)
		}
		all = append(all, f)
	}
	return append(all, found...)
}

// joinEvents sorts events by version, each once.
func joinEvents(a, b []Event) []Event {
	all, seen := slices.Clone(a), make(map[string]bool, len(a))
	for i := range a {
		seen[a[i].ID] = true
	}
	for i := range b {
		if !seen[b[i].ID] {
			all = append(all, b[i])
		}
	}
	slices.SortStableFunc(all, func(x, y Event) int {
		return cmp.Or(cmp.Compare(x.Version, y.Version), x.CreatedAt.Compare(y.CreatedAt))
	})
	return all
}
