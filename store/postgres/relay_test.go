package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill/relay/relaytest"
	"github.com/waybillhq/waybill/store/storetest"
)

func TestRelay(t *testing.T) { relaytest.Run(t, relayOver(harness())) }

func TestRelayOnPostgres18(t *testing.T) {
	onPostgres18(t, func(t *testing.T) { relaytest.Run(t, relayOver(harness())) })
}

func relayOver(h storetest.Harness[pgx.Tx]) relaytest.Harness[pgx.Tx] {
	return relaytest.Harness[pgx.Tx]{Open: func(t *testing.T) relaytest.Database[pgx.Tx] {
		s := h.Open(t, storetest.Options{})
		return relaytest.Database[pgx.Tx]{Store: s.Outbox, Appender: s.Appender, Begin: s.Begin, Commit: s.Commit, Rollback: s.Rollback}
	}}
}
