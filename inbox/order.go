package inbox

import (
	"cmp"
	"slices"

	"github.com/waybillhq/waybill/store"
)

// releaseOrder puts a key's held events, given by Seq, into the order in which
// they are released: the places of one aggregate's versioned events are filled
// in the order of their versions, everything else stays where it is.
func releaseOrder(held []store.Held) []store.Held {
	places := make(map[aggregate][]int)
	for i := range held {
		e := &held[i].Event
		if e.AggregateVersion > 0 {
			a := aggregate{e.TenantID, e.AggregateType, e.AggregateID}
			places[a] = append(places[a], i)
		}
	}
	out := slices.Clone(held)
	for _, at := range places {
		sorted := slices.Clone(at)
		slices.SortStableFunc(sorted, func(i, j int) int {
			return cmp.Compare(held[i].Event.AggregateVersion, held[j].Event.AggregateVersion)
		})
		for n, place := range at {
			out[place] = held[sorted[n]]
		}
	}
	return out
}
