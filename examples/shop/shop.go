// Package shop joins the order service, a relay and the inventory consumer in
// one process. Usually they are three, and the relay is the waybill binary.
package shop

import (
	"context"
	"errors"
	"sync"

	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/examples/inventory"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/store/sqlite"
)

// Run relays the orders' events and consumes them until ctx ends.
func Run(ctx context.Context, orders, stock *sqlite.Store, publisher broker.Publisher, subscriber broker.Subscriber) error {
	r, err := relay.New(orders, publisher, nil)
	if err != nil {
		return err
	}
	p, err := inbox.New(stock, subscriber, inventory.Reserve, &inbox.Config{
		Group: "inventory", Topics: []string{"orders"},
		Baseline: inbox.BaselineFirstSeen, // orders have changed before their first event
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var failed [2]error
	for i, run := range []func(context.Context) error{r.Run, p.Run} {
		wg.Go(func() {
			defer cancel() // one without the other is of no use
			failed[i] = run(ctx)
		})
	}
	wg.Wait()
	return errors.Join(failed[:]...)
}
