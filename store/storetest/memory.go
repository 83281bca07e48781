package storetest

import (
	"context"
	"testing"

	"github.com/waybillhq/waybill/store/memstore"
)

// Memory is the harness of the store in memory.
func Memory() Harness[*memstore.Tx] {
	return Harness[*memstore.Tx]{
		Open: openMemory,
		Exceptions: Exceptions{
			Names:   "tables in memory have no names",
			Schemas: "tables in memory have no schema",
			Plans:   "there is no planner: each method walks the index it was written for",
		},
	}
}

func openMemory(t testing.TB, options Options) *Subject[*memstore.Tx] {
	st := memstore.New(&memstore.Config{NoTrigger: options.NoTrigger, Head: options.Head, Empty: options.Bare})
	t.Cleanup(func() { _ = st.Close() })
	return &Subject[*memstore.Tx]{
		Outbox:   st,
		Appender: st,
		Consumer: st,
		Begin:    st.Begin,
		Commit:   func(ctx context.Context, tx *memstore.Tx) error { return tx.Commit(ctx) },
		Rollback: func(ctx context.Context, tx *memstore.Tx) error { return tx.Rollback(ctx) },
		Exec: func(ctx context.Context, tx *memstore.Tx, statement Statement) error {
			if statement.Delete {
				return st.DeletePlain(ctx, statement.Event.ID)
			}
			return st.InsertPlain(ctx, tx, statement.ID, statement.Event)
		},
		SetSchemaVersion: func(_ context.Context, version int) error {
			st.SetSchemaVersion(version)
			return nil
		},
		DropHeadTrigger: func(context.Context) error {
			st.LoseHeadTrigger()
			return nil
		},
	}
}
