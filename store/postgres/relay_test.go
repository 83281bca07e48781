package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill/relay/relaytest"
	"github.com/waybillhq/waybill/store/storetest"
)

func TestRelay(t *testing.T) {
	open := harness().Open
	relaytest.Run(t, relaytest.Harness[pgx.Tx]{Open: func(t *testing.T) relaytest.Database[pgx.Tx] {
		s := open(t, storetest.Options{})
		return relaytest.Database[pgx.Tx]{Store: s.Outbox, Appender: s.Appender, Begin: s.Begin, Commit: s.Commit, Rollback: s.Rollback}
	}})
}
