package memstore_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
)

// A business row and its event are committed together. A commit whose answer
// is lost is done all the same.
func Example() {
	ctx := context.Background()
	st := memstore.New(nil)

	tx, err := st.Begin(ctx)
	if err != nil {
		panic(err)
	}
	if err := tx.Set(ctx, "orders", "O-1001", "paid"); err != nil {
		panic(err)
	}
	paid := waybill.Event{ID: "1", Type: "OrderPaid", Topic: "orders", Key: "O-1001"}
	if _, err := st.Append(ctx, tx, []waybill.Event{paid}); err != nil {
		panic(err)
	}
	st.SetLostAnswer(func(string) error { return errors.New("connection reset") })
	fmt.Println(tx.Commit(ctx))
	st.SetLostAnswer(nil)

	found, err := st.Find(ctx, store.Filter{Key: "O-1001"})
	if err != nil {
		panic(err)
	}
	fmt.Println(st.Rows("orders"), found[0].Event.Type, found[0].Status)
	// Output:
	// commit: connection reset
	// map[O-1001:paid] OrderPaid PENDING
}
