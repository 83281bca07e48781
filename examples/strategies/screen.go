package strategies

import (
	"context"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/inbox"
)

// Screen shows events on a live display, where one that is missing hurts nobody.
func Screen(from broker.Subscriber, show func(e waybill.Event)) (*inbox.LossyProcessor, error) {
	return inbox.NewLossy(from, func(_ context.Context, e waybill.Event) error {
		show(e)
		return nil
	}, &inbox.LossyConfig{Group: "screen", Topics: []string{"orders"}})
}
