package inbox_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/store/memstore"
)

// A service keeps a read model of orders, and tells others what it learnt: what
// the handler writes, the event that it appends, and the fact that it ran are
// one transaction.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	st := memstore.New(nil)             // with a real database: sqlite.Open, postgres.Open
	messages := membroker.New("orders") // with a real broker: natsjs.Open
	writer := outbox.NewWriter[*memstore.Tx](st, nil)

	handle := func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
		if err := tx.Set(ctx, "orders", event.AggregateID, event.Type); err != nil {
			return err
		}
		return writer.Append(ctx, tx, waybill.Event{
			ID:   waybill.KeyID("", "shipment", event.AggregateID, 1, "ShipmentPlanned"),
			Type: "ShipmentPlanned", Topic: "shipments", AggregateType: "shipment", AggregateID: event.AggregateID,
			CausationID: event.ID, Data: []byte("{}"),
		})
	}
	processor, err := inbox.New(st, messages, handle, &inbox.Config{
		Group: "shipping", Topics: []string{"orders"}, Logger: slog.New(slog.DiscardHandler),
		Events: inbox.Events{
			Applied:   func(i inbox.AppliedInfo) { fmt.Println(i) },
			Duplicate: func(i inbox.DuplicateInfo) { fmt.Println(i); cancel() },
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	event := waybill.Event{ID: "e-1", Type: "OrderPaid", Topic: "orders", AggregateType: "order", AggregateID: "O-1"}
	record, err := waybill.Encode(waybill.FormatEnvelope, &event)
	if err != nil {
		fmt.Println(err)
		return
	}
	messages.Publish(ctx, []waybill.Record{record, record}) // delivered twice

	if err := processor.Run(ctx); err != nil {
		fmt.Println(err)
	}
	fmt.Println(st.Rows("orders"))
	// Output:
	// APPLIED e-1
	// duplicate e-1
	// map[O-1:OrderPaid]
}
