package mysql_test

import (
	"context"
	"testing"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store/storetest"
)

func TestEventThatTakesAnIDDuringSettlingStaysQueued(t *testing.T) {
	onEach(t, func(t *testing.T, s server) {
		storetest.RunInterleaved(t, func(t *testing.T) storetest.Interleaving {
			dsn := s.freshDatabase(t)
			st, relay := openStore(t, dsn, storetest.Options{}), openStore(t, dsn, storetest.Options{})
			var before func()
			if err := relay.Step(dsn, &before); err != nil {
				t.Fatal(err)
			}
			return storetest.Interleaving{
				Relay: relay, Before: &before,
				Empty: func(t testing.TB, keepQueue bool) {
					statements := []string{`DELETE FROM outbox_event`, `ALTER TABLE outbox_event AUTO_INCREMENT = 1`, `DELETE FROM outbox_receipt`}
					if !keepQueue {
						statements = append(statements, `DELETE FROM outbox_pending`)
					}
					if err := execute(t.Context(), dsn, statements...); err != nil {
						t.Fatal(err)
					}
				},
				Insert: func(t testing.TB, e waybill.Event) error {
					conn, err := st.DB().Conn(t.Context())
					if err != nil {
						return err
					}
					defer func() { _ = conn.Close() }()
					if _, err := conn.ExecContext(t.Context(), `SET SESSION innodb_lock_wait_timeout = 1`); err != nil {
						return err
					}
					tx, err := conn.BeginTx(context.WithoutCancel(t.Context()), nil)
					if err != nil {
						return err
					}
					defer func() { _ = tx.Rollback() }()
					if _, err := st.Append(t.Context(), tx, []waybill.Event{e}); err != nil {
						return err
					}
					return tx.Commit()
				},
			}
		})
	})
}
