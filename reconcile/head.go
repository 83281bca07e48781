package reconcile

import (
	"context"
	"fmt"
)

// heads returns the arms with the outbox's heads for their log. A head says
// nothing of what became of its event: as long as that is there, it does.
func (t *tables) heads() *tables {
	return t.withLog(t.check.Log.Outbox.Names.WithDefaults().Head, "", "")
}

// headed is what a snapshot has of some keys.
type headed struct {
	rows          []Keyed[*Row]
	events, heads []Keyed[[]Event]
}

// withHeads reads the rows and events of keys anew, and their heads in the same
// snapshot: a head that was read later could belong to an event that was not
// written yet.
func (t *tables) withHeads(ctx context.Context, r Range) (h headed, together bool, err error) {
	ctx, cancel := t.limit(ctx)
	defer cancel()
	c := t.check
	together = c.Write != nil && c.Write.Database == c.Log.Database
	err = t.log.snapshot(ctx, func(q queryer) (err error) {
		if together {
			h.rows, err = t.rows(ctx, q, t.write.Dialect, c.Write, r, func(i int) string { return c.Compare[i].in(c.Compare[i].Write) })
		}
		if err == nil {
			h.events, err = t.eventRows(ctx, q, r)
		}
		if err == nil {
			h.heads, err = t.heads().eventRows(ctx, q, r)
		}
		return err
	})
	return h, together, err
}

// behead puts heads in the place of events that are gone. Where the event may
// have been removed in its time, it was settled first, and counts as sent.
// Where it may not, the head is all that is left to tell of it.
func (r *run) behead(ctx context.Context, found []Facts, keys []Key) error {
	h, together, err := r.bases.withHeads(ctx, Range{among: keys})
	if err != nil {
		return fmt.Errorf("heads: %w", err)
	}
	r.now()
	for i := range found {
		f := &found[i]
		if len(keys) == 0 || f.Key.Compare(keys[0]) != 0 {
			continue
		}
		keys = keys[1:]
		if together {
			f.Write, _ = itemOf(&h.rows, f.Key)
		}
		f.Log, _ = itemOf(&h.events, f.Key)
		heads, known := itemOf(&h.heads, f.Key)
		if !known {
			continue
		}
		head := heads[len(heads)-1]
		f.Head = &head.Version
		if top := last(f.Log, every); top != nil && top.Version >= head.Version {
			continue
		}
		if r.check.Log.Outbox.Forgets || head.CreatedAt.Before(r.rules.LogSince) {
			f.Log = joinEvents(f.Log, []Event{head})
		}
	}
	return nil
}

// itemOf takes a key's item out of a list that is sorted by key, and with it
// those before, which nobody will ask for.
func itemOf[T any](list *[]Keyed[T], key Key) (item T, found bool) {
	for len(*list) > 0 && (*list)[0].Key.Compare(key) < 0 {
		*list = (*list)[1:]
	}
	if len(*list) > 0 && (*list)[0].Key.Compare(key) == 0 {
		item, found = (*list)[0].Item, true
	}
	return item, found
}
