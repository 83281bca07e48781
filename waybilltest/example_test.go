package waybilltest_test

import (
	"fmt"
	"testing"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
	"github.com/waybillhq/waybill/waybilltest"
)

// payOrder stands for the code under test; it uses the service's database.
func payOrder(*memstore.Store, string) error { return nil }

func ExampleRequireAppended() {
	_ = func(t *testing.T) {
		db := memstore.New(nil)
		if err := payOrder(db, "O-1001"); err != nil {
			t.Fatal(err)
		}
		waybilltest.RequireAppended(t, db, waybill.Event{
			Type: "OrderPaid", AggregateID: "O-1001", AggregateVersion: 2, Data: []byte(`{"total": 1.10}`),
		})
		waybilltest.RequireNothing(t, db, store.Filter{Type: "OrderCancelled"})
	}
}

func ExampleAwaitApplied() {
	_ = func(t *testing.T, orders, stock *memstore.Store) {
		if err := payOrder(orders, "O-1001"); err != nil {
			t.Fatal(err)
		}
		paid := waybilltest.RequireAppended(t, orders, waybill.Event{Type: "OrderPaid", AggregateID: "O-1001"})
		waybilltest.AwaitSettled(t, orders, 0, paid[0].ID)
		waybilltest.AwaitApplied(t, stock, "stock", 0, paid[0].ID)
	}
}

func ExampleEventLog() {
	placed := waybill.Event{
		ID: waybill.NewID(), Type: "OrderPlaced", Topic: "orders", AggregateType: "order", AggregateID: "O-1001", AggregateVersion: 1,
		Data: []byte(`{"total":1.10}`),
	}
	paid := placed
	paid.ID, paid.Type, paid.AggregateVersion, paid.CausationID = waybill.NewID(), "OrderPaid", 2, placed.ID
	fmt.Print(waybilltest.EventLog([]waybill.Event{placed, paid}))
	// Output:
	// #1 orders OrderPlaced order/O-1001 v1 {"total":1.10}
	// #2 orders OrderPaid order/O-1001 v2 caused-by=#1 {"total":1.10}
}
