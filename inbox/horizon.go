package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
)

// recent is the age up to which an event is not compared with the horizon. No
// cleanup may forget sooner: see [Config.Retention].
const recent = 10 * time.Minute

var errForgotten = errors.New("it is older than what this group remembers, so it may have been applied")

// lookBack reads the horizon where an event of the batch may lie behind it. The
// cleanup waits from here to the end of the transaction, so what is not among the
// consumed ids and younger than the horizon was never consumed. It is the first
// question of a transaction.
func (b *batch[TX]) lookBack(items []*item) error {
	for _, it := range items {
		if at := it.since(); at.IsZero() || now().Sub(at) <= recent {
			continue
		}
		at, err := b.tx.Horizon(b.ctx, b.p.config.Group)
		b.horizon = at
		return err
	}
	return nil
}

// since is when the event came to be, as far as its record tells. It cannot have
// happened after the broker stored it, whatever the producer's clock said.
func (it *item) since() time.Time {
	at, stored := it.event.OccurredAt, it.delivery.Timestamp
	if at.IsZero() || at.Year() <= 1970 || !stored.IsZero() && stored.Before(at) {
		return stored
	}
	return at
}

// mayBeForgotten reports whether the group may have consumed the event and
// forgotten that. The progress of its aggregate proves the next version new.
func (b *batch[TX]) mayBeForgotten(it *item) bool {
	if b.horizon.IsZero() || it.isConsumed || it.since().After(b.horizon) {
		return false
	}
	return !b.gate.provesNew(&it.event)
}

// provesNew reports whether an event was certainly never consumed: versions were
// counted up to the one before it, and no further.
func (g *gate) provesNew(e *waybill.Event) bool {
	a, ok := g.counted(e)
	if !ok || g.config.Gate != GateNext {
		return false
	}
	row := g.rows[a]
	return row.at > 0 && e.AggregateVersion == row.at+1
}

// isLast reports whether the event is the very one that progress stands at.
func (g *gate) isLast(e *waybill.Event) bool {
	a, ok := g.counted(e)
	return ok && e.AggregateVersion == g.rows[a].at && e.ID == g.rows[a].eventID
}

// checkRetention refuses to run where the group would forget an event sooner
// than it can come again. What is not known cannot be refused.
func (p *Processor[TX]) checkRetention(ctx context.Context) error {
	c := &p.config
	if c.Retention == 0 {
		return nil
	}
	kept, forEver, err := p.brokerRetention(ctx)
	if err != nil {
		c.Logger.Warn("how long the broker keeps records is not known: the retention of the inbox is not checked", "error", err)
		return nil
	}
	if !forEver && (kept == 0 || c.Retention >= kept+c.ReplayAge) {
		return nil
	}
	found := fmt.Sprintf("the broker keeps records for %v, and events of %v may be replayed", kept, c.ReplayAge)
	if forEver {
		found = "the broker keeps records for ever"
	}
	return &waybill.Error{
		Op: "run consumer", Key: c.Group,
		Err:  fmt.Errorf("%w: it remembers what it consumed for %v; %s", ErrRetention, c.Retention, found),
		Hint: "keep consumed ids at least as long as both together, or for ever; or let the topic keep records for a shorter time",
	}
}

// ErrRetention says that an inbox forgets events that may be delivered again.
var ErrRetention = errors.New("the inbox forgets too soon")

// brokerRetention returns the longest retention among the topics; 0 is unknown.
func (p *Processor[TX]) brokerRetention(ctx context.Context) (kept time.Duration, forEver bool, err error) {
	if p.config.BrokerRetention > 0 {
		return p.config.BrokerRetention, false, nil
	}
	teller, ok := p.sub.(broker.RetentionTeller)
	if !ok {
		return 0, false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	topics, err := teller.TopicRetention(ctx, p.config.Topics)
	for _, d := range topics {
		kept, forEver = max(kept, d), forEver || d == 0
	}
	return kept, forEver, err
}
