package relay_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/waybillhq/waybill/relay/relaytest"
	"github.com/waybillhq/waybill/store/memstore"
)

func TestRelay(t *testing.T) {
	relaytest.Run(t, relaytest.Harness[*memstore.Tx]{
		Bubble: synctest.Test,
		Open: func(*testing.T) relaytest.Database[*memstore.Tx] {
			s := memstore.New(nil)
			return relaytest.Database[*memstore.Tx]{
				Store: s, Appender: s, Begin: s.Begin,
				Commit:   func(ctx context.Context, tx *memstore.Tx) error { return tx.Commit(ctx) },
				Rollback: func(ctx context.Context, tx *memstore.Tx) error { return tx.Rollback(ctx) },
			}
		},
	})
}
