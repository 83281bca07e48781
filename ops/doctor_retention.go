package ops

import (
	"context"
	"fmt"
	"time"

	"github.com/waybillhq/waybill/broker"
)

// CheckRetention compares how long consumers remember with how long an event
// can come again.
const CheckRetention = "retention"

// replayAge is how old an event may be that somebody sends again.
const replayAge = 15 * 24 * time.Hour

// retention asks the broker about the topics, where it can tell.
func (d *doctor) retention(ctx context.Context) error {
	teller, ok := d.config.Checker.(broker.RetentionTeller)
	if !ok || d.config.InboxRetention <= 0 || len(d.config.Inboxes) == 0 || len(d.config.Topics) == 0 {
		return nil
	}
	for _, topic := range d.config.Topics {
		kept, err := teller.TopicRetention(ctx, []string{topic})
		if err != nil {
			continue // that the topic cannot be looked at is said of the broker
		}
		e := Examination{Check: CheckRetention + ": " + topic, OK: true}
		switch least := kept[topic] + replayAge; {
		case kept[topic] == 0:
			e.OK = false
			e.Detail = fmt.Sprintf("the topic keeps records for ever, and consumers forget after %s", d.config.InboxRetention)
		case d.config.InboxRetention < least:
			e.OK = false
			e.Detail = fmt.Sprintf("the topic keeps records for %s, an event of %s may be replayed, and consumers forget after %s",
				kept[topic], replayAge, d.config.InboxRetention)
		default:
			e.Detail = fmt.Sprintf("the topic keeps records for %s, consumers remember for %s", kept[topic], d.config.InboxRetention)
		}
		if !e.OK {
			e.Hint = "an event that comes again after that is parked, or applied twice by a consumer that does not look: set cleanup.inbox_retention higher, or the topic's retention lower"
		}
		d.found(e)
	}
	return nil
}
