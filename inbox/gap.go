package inbox

import (
	"context"
	"fmt"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// Gap is a run of versions that a group lacks of an aggregate.
type Gap struct {
	Aggregate store.Aggregate
	// Topic is that of the event that waits.
	Topic string
	// From and To are the versions that are missing, both included.
	From, To int64
}

// GapFunc looks for the events that fill a gap, and returns what it finds of
// them, in any order. They are handled like events that the broker delivers;
// what comes again later is a duplicate. It is called outside of any
// transaction, again after some time while the gap is there, and should return
// soon: other gaps wait for it.
type GapFunc func(ctx context.Context, gap Gap) ([]waybill.Event, error)

// GapsFromOutbox returns a [GapFunc] that looks into the producer's outbox and
// its archive, where the consumer can reach that database. It takes what was
// sent or skipped there. What is still to be sent will come by itself, and what
// is DEAD there is for people to decide.
func GapsFromOutbox(inspector store.Inspector) GapFunc {
	return func(ctx context.Context, gap Gap) ([]waybill.Event, error) {
		var found []waybill.Event
		filter := store.Filter{Key: gap.Aggregate.ID, TenantID: &gap.Aggregate.TenantID, Limit: gapPage}
		for {
			page, err := inspector.Find(ctx, filter)
			if err != nil {
				return nil, err
			}
			for i := range page {
				if e, ok := fills(&page[i], gap); ok {
					found = append(found, e)
				}
			}
			if len(page) < gapPage {
				return found, nil
			}
			filter.After = page[len(page)-1].ID
		}
	}
}

// gapPage is how many events of a key are read at once.
const gapPage = 500

func fills(t *store.Tracked, gap Gap) (waybill.Event, bool) {
	e := t.Event
	if store.AggregateOf(&e) != gap.Aggregate || e.AggregateVersion < gap.From || e.AggregateVersion > gap.To {
		return e, false
	}
	switch {
	case t.Status == store.StatusSkipped:
		return e.SkipMarker(), true
	case t.Status == store.StatusSent, t.Archived && !t.Queued():
		return e, true
	}
	return e, false
}

// GapInfo is an event that has waited for a lower version for too long.
type GapInfo struct {
	Event waybill.Event // the lowest that waits
	Gap   Gap
	// Waited is for how long, by the database's clock.
	Waited time.Duration
}

func (i GapInfo) String() string {
	return fmt.Sprintf("gap %s %s: version %d to %d, %s waits", i.Gap.Aggregate.Type, i.Gap.Aggregate.ID, i.Gap.From, i.Gap.To, i.Event.ID)
}
