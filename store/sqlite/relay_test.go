package sqlite_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/waybillhq/waybill/relay/relaytest"
	"github.com/waybillhq/waybill/store/storetest"
)

func TestRelay(t *testing.T) {
	relaytest.Run(t, relaytest.Harness[*sql.Tx]{
		SerialWriters: true,
		Open: func(t *testing.T) relaytest.Database[*sql.Tx] {
			st := open(t, nil)
			return relaytest.Database[*sql.Tx]{
				Store:    st,
				Appender: storetest.SQLAppender(st),
				Begin:    func(ctx context.Context) (*sql.Tx, error) { return st.DB().BeginTx(ctx, nil) },
				Commit:   func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
				Rollback: func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() },
			}
		},
	})
}
