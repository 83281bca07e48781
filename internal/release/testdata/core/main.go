// A program that takes the core alone: an event goes from the transaction that
// appends it through a relay to a consumer.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/store/memstore"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	db, mem := memstore.New(nil), membroker.New()
	if err := mem.EnsureTopics(ctx, []broker.TopicSpec{{Name: "orders"}}); err != nil {
		return err
	}
	tx, err := db.Begin(ctx)
	if err != nil {
		return err
	}
	event := waybill.Event{ID: waybill.NewID(), Type: "OrderPaid", Topic: "orders", AggregateType: "order", AggregateID: "O-1", Data: []byte(`{}`)}
	if err := outbox.NewWriter(db, nil).Append(ctx, tx, event); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	r, err := relay.New(db, mem, &relay.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	seen := make(chan string, 1)
	handle := func(_ context.Context, _ *memstore.Tx, e waybill.Event) error {
		seen <- e.ID
		return nil
	}
	p, err := inbox.New(memstore.New(nil), mem, handle, &inbox.Config{Group: "stock", Topics: []string{"orders"}})
	if err != nil {
		return err
	}
	ended := make(chan error, 2)
	go func() { ended <- r.Run(ctx) }()
	go func() { ended <- p.Run(ctx) }()
	select {
	case id := <-seen:
		if id != event.ID {
			return fmt.Errorf("event %s arrived, %s was sent", id, event.ID)
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	cancel()
	for range cap(ended) {
		if err := <-ended; err != nil {
			return err
		}
	}
	fmt.Println("an event was delivered by the core alone")
	return nil
}
