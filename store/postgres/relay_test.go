package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill/relay/relaytest"
	"github.com/waybillhq/waybill/store/storetest"
)

func TestRelay(t *testing.T) { relaytest.Run(t, relayHarness()) }

func TestRelayOnPostgres18(t *testing.T) {
	onPostgres18(t, func(t *testing.T) { relaytest.Run(t, relayHarness()) })
}

func relayHarness() relaytest.Harness[pgx.Tx] {
	open := harness().Open
	return relaytest.Harness[pgx.Tx]{Open: func(t *testing.T) relaytest.Database[pgx.Tx] {
		s := open(t, storetest.Options{})
		return relaytest.Database[pgx.Tx]{Store: s.Outbox, Appender: s.Appender, Begin: s.Begin, Commit: s.Commit, Rollback: s.Rollback}
	}}
}
