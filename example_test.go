package waybill_test

import (
	"context"
	"fmt"
	"log"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/store/memstore"
)

// payOrder changes an order and announces it, in one transaction.
func payOrder(ctx context.Context, db *memstore.Store, writer *outbox.Writer[*memstore.Tx], order string) error {
	tx, err := db.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }() // nothing is left to undo after the commit
	if err := tx.Set(ctx, "orders", order, "paid"); err != nil {
		return err
	}
	err = writer.Append(ctx, tx, waybill.Event{
		ID:               waybill.NewID(),
		Type:             "OrderPaid",
		Topic:            "orders",
		AggregateType:    "order",
		AggregateID:      order,
		AggregateVersion: 1,
		Data:             []byte(`{"total": 25.90}`),
	})
	if err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// runRelay moves committed events to the broker until ctx ends.
func runRelay(ctx context.Context, db *memstore.Store, events *membroker.Broker) error {
	r, err := relay.New(db, events, &relay.Config{
		Default: relay.TopicConfig{Format: waybill.FormatCloudEvents},
	})
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// reserve is the effect of an event at the consumer.
func reserve(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
	return tx.Set(ctx, "reservations", event.AggregateID, event.Type)
}

// runConsumer has reserve applied to each event, once in effect, until ctx ends.
func runConsumer(ctx context.Context, db *memstore.Store, events *membroker.Broker) error {
	p, err := inbox.New(db, events, reserve, &inbox.Config{Group: "stock", Topics: []string{"orders"}})
	if err != nil {
		return err
	}
	return p.Run(ctx)
}

// The whole way of an event: appended with the change, relayed, and applied at
// the consumer. Store and broker are those in memory here; with the others only
// the lines that open them differ.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	orders, stock := memstore.New(nil), memstore.New(nil) // two services' databases
	events := membroker.New("orders")

	parts := make(chan error, 2)
	go func() { parts <- runRelay(ctx, orders, events) }()
	go func() { parts <- runConsumer(ctx, stock, events.Connect()) }()

	writer := outbox.NewWriter(orders, &outbox.Config{Source: "/orders"})
	if err := payOrder(ctx, orders, writer, "O-1001"); err != nil {
		log.Fatal(err)
	}
	await(func() bool { return len(stock.Rows("reservations")) > 0 })
	fmt.Println(orders.Rows("orders"), stock.Rows("reservations"))

	stop() // both finish what they have begun
	fmt.Println(<-parts, <-parts)
	// Output:
	// map[O-1001:paid] map[O-1001:OrderPaid]
	// <nil> <nil>
}

func ExampleEncode() {
	event := waybill.Event{
		ID: "e-1", Type: "OrderPaid", Topic: "orders", AggregateType: "order", AggregateID: "O-1001", AggregateVersion: 2,
		Data: []byte(`{"total": 25.90}`),
	}
	for _, format := range []waybill.Format{waybill.FormatEnvelope, waybill.FormatCloudEvents, waybill.FormatRaw} {
		record, err := waybill.Encode(format, &event)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %d headers, value %s\n", format, len(record.Headers), record.Value)
	}
	// Output:
	// envelope: 8 headers, value {"eventId":"e-1","eventType":"OrderPaid","eventVersion":1,"aggregateType":"order","aggregateId":"O-1001","aggregateVersion":2,"data":{"total": 25.90}}
	// cloudevents: 10 headers, value {"total": 25.90}
	// raw: 7 headers, value {"total": 25.90}
}

func ExampleDecode() {
	record := waybill.Record{
		Topic: "orders", Key: "O-1001", Value: []byte(`{"total": 25.90}`),
		Headers: []waybill.Header{
			{Key: "id", Value: []byte("e-1")},
			{Key: "eventType", Value: []byte("OrderPaid")},
			{Key: "aggregateVersion", Value: []byte("2")},
		},
	}
	event, err := waybill.Decode(&record)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(event.ID, event.Type, event.AggregateVersion, string(event.Data))
	// Output:
	// e-1 OrderPaid 2 {"total": 25.90}
}

func ExampleKeyID() {
	fmt.Println(waybill.KeyID("acme", "order", "O-1001", 2, "OrderPaid"))
	fmt.Println(waybill.KeyID("acme", "order", "2026/1001", 2, "OrderPaid"))
	// Output:
	// acme/order/O-1001/2/OrderPaid
	// acme/order/2026%2F1001/2/OrderPaid
}
