package jsonschema_test

import (
	"context"
	"fmt"
	"testing/fstest"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/schema/jsonschema"
	"github.com/waybillhq/waybill/store/memstore"
)

// The writer refuses an event whose data does not fit, before it touches the
// database: the transaction goes on.
func Example() {
	ctx := context.Background()
	schemas := fstest.MapFS{ // usually an embed.FS
		"schemas/OrderPaid.v1.json": {Data: []byte(`{"type": "object", "required": ["orderId"], "properties": {"cents": {"type": "integer"}}}`)},
	}
	validator, err := jsonschema.Load(schemas, "schemas")
	if err != nil {
		fmt.Println(err)
		return
	}
	st := memstore.New(nil)
	writer := outbox.NewWriter(st, &outbox.Config{Validator: validator})
	tx, err := st.Begin(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	event := waybill.Event{ID: "e-1", Type: "OrderPaid", Topic: "orders", AggregateType: "order", AggregateID: "O-1"}
	for _, data := range []string{`{"cents": 1.5}`, `{"orderId": "O-1", "cents": 150}`} {
		event.Data = []byte(data)
		fmt.Println(writer.Append(ctx, tx, event))
	}
	event.ID, event.SchemaVersion = "e-2", 2
	fmt.Println(writer.Append(ctx, tx, event))
	fmt.Println(tx.Commit(ctx))
	// Output:
	// validate data of event e-1: invalid event: data does not fit its schema: OrderPaid 1: / (required), /cents (type)
	// <nil>
	// validate data of event e-2: invalid event: unknown schema version: OrderPaid 2, known are [1]
	// <nil>
}
