package relay_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/waybillhq/waybill/cdc/memlog"
	"github.com/waybillhq/waybill/relay/relaytest"
	"github.com/waybillhq/waybill/store/memstore"
)

func TestRelay(t *testing.T) {
	relaytest.Run(t, relaytest.Harness[*memstore.Tx]{
		Bubble: synctest.Test,
		Open: func(*testing.T) relaytest.Database[*memstore.Tx] {
			return database(memstore.New(nil))
		},
	})
}

func TestRelayThatFollowsALog(t *testing.T) {
	relaytest.Run(t, relaytest.Harness[*memstore.Tx]{
		Bubble:  synctest.Test,
		Follows: true,
		Open: func(*testing.T) relaytest.Database[*memstore.Tx] {
			log := new(memlog.Log)
			db := database(memstore.New(&memstore.Config{Log: func(ids []int64) { log.Commit(ids...) }}))
			db.Log, db.Source = log, log.Source("memory")
			return db
		},
	})
}

func database(s *memstore.Store) relaytest.Database[*memstore.Tx] {
	return relaytest.Database[*memstore.Tx]{
		Store: s, Appender: s, Begin: s.Begin,
		Commit:   func(ctx context.Context, tx *memstore.Tx) error { return tx.Commit(ctx) },
		Rollback: func(ctx context.Context, tx *memstore.Tx) error { return tx.Rollback(ctx) },
	}
}
