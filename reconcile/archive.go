package reconcile

import (
	"cmp"
	"slices"
)

// archive returns the arms with the outbox's archive for their log.
func (t *tables) archive() *tables {
	archived, check, log := *t, *t.check, *t.check.Log
	log.Table.Table = log.Outbox.Names.WithDefaults().Archive
	log.State, log.Queued, log.SentAt, log.bare = "outcome", "", "published_at", nil
	check.Log = &log
	archived.check = &check
	return &archived
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
