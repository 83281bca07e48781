package mysql_test

import (
	"database/sql"
	"testing"

	"github.com/waybillhq/waybill/relay/relaytest"
	"github.com/waybillhq/waybill/store/storetest"
)

func TestRelay(t *testing.T) {
	onEach(t, func(t *testing.T, server server) {
		open := server.harness().Open
		relaytest.Run(t, relaytest.Harness[*sql.Tx]{Open: func(t *testing.T) relaytest.Database[*sql.Tx] {
			s := open(t, storetest.Options{})
			return relaytest.Database[*sql.Tx]{Store: s.Outbox, Appender: s.Appender, Begin: s.Begin, Commit: s.Commit, Rollback: s.Rollback}
		}})
	})
}
