package inbox

import (
	"context"
	"time"

	"github.com/waybillhq/waybill/store"
)

// Prefilter remembers, outside of the database and without any promise, which
// events a group has consumed: a cache such as redisfilter's.
//
// Its yes is a reason to look, not an answer: what it remembers is looked up in
// consumed_event, by a read without a transaction, and only what is there is
// passed over. So it may remember too much, too little, or nothing. What it
// saves is the writing transaction that a duplicate costs otherwise, and the
// price is that such a duplicate is told to [Events.Duplicate] only and not
// counted in the table.
//
// It is asked for each batch and told after each commit, and must answer soon
// or give up: an error is logged and means no.
type Prefilter interface {
	// Seen reports for each id, in their order, whether it is remembered.
	Seen(ctx context.Context, group string, ids []string) ([]bool, error)
	// Remember is called with ids whose consumption is committed.
	Remember(ctx context.Context, group string, ids []string) error
}

// prefilterWait bounds one call of a prefilter.
const prefilterWait = time.Second

// sift marks those of the items as known that are consumed for certain.
func (p *Processor[TX]) sift(ctx context.Context, items []*item) {
	if p.config.Prefilter == nil || len(items) == 0 {
		return
	}
	ids := make([]string, len(items))
	for i, it := range items {
		ids[i] = it.event.ID
	}
	asking, cancel := context.WithTimeout(ctx, prefilterWait)
	defer cancel()
	seen, err := p.config.Prefilter.Seen(asking, p.config.Group, ids)
	if err != nil || len(seen) != len(ids) {
		p.config.Logger.Warn("the prefilter does not answer: the database is asked alone", "error", err)
		return
	}
	for i, it := range items {
		if !seen[i] || it.broken {
			continue
		}
		rows, err := p.st.FindConsumed(ctx, it.event.ID)
		if err != nil {
			return // the batch meets the same trouble, and deals with it
		}
		for _, row := range rows {
			it.known = it.known || row.Group == p.config.Group
		}
	}
}

// rememberer collects what is applied, and tells the prefilter when a batch is
// committed. It hangs on the hooks, which hear only of what is committed.
func (c *Config) rememberer() {
	filter := c.Prefilter
	if filter == nil {
		return
	}
	ids := make(chan string, 4*c.BatchSize)
	applied, batch := c.Events.Applied, c.Events.Batch
	c.Events.Applied = func(i AppliedInfo) {
		if i.Outcome == store.Applied {
			select {
			case ids <- i.Event.ID:
			default: // it may forget
			}
		}
		tell(applied, i)
	}
	c.Events.Batch = func(i BatchInfo) {
		var some []string
		for len(ids) > 0 && len(some) < cap(ids) {
			select {
			case id := <-ids:
				some = append(some, id)
			default:
			}
		}
		if len(some) > 0 {
			ctx, cancel := context.WithTimeout(context.Background(), prefilterWait)
			defer cancel()
			if err := filter.Remember(ctx, c.Group, some); err != nil {
				c.Logger.Warn("the prefilter could not be told what is consumed", "error", err)
			}
		}
		tell(batch, i)
	}
}
