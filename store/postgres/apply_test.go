package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store/postgres"
	"github.com/waybillhq/waybill/store/storetest"
)

// stepper does something before each batch of statements that is sent.
type stepper struct{ before func() }

func (s *stepper) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (s *stepper) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (s *stepper) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	if s.before != nil {
		s.before()
	}
	return ctx
}

func (s *stepper) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (s *stepper) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func TestEventThatTakesAnIDDuringSettlingStaysQueued(t *testing.T) {
	storetest.RunInterleaved(t, func(t *testing.T) storetest.Interleaving {
		dsn := freshSchema(t)
		st := openStore(t, dsn, storetest.Options{})
		config, err := pgxpool.ParseConfig(dsn)
		if err != nil {
			t.Fatal(err)
		}
		var steps stepper
		config.ConnConfig.Tracer = &steps
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		relay, err := postgres.New(pool, nil)
		if err != nil {
			t.Fatal(err)
		}
		return storetest.Interleaving{
			Relay: relay, Before: &steps.before,
			Empty: func(t testing.TB, keepQueue bool) {
				text := `TRUNCATE outbox_event RESTART IDENTITY; TRUNCATE outbox_receipt`
				if !keepQueue {
					text += `; TRUNCATE outbox_pending`
				}
				if _, err := st.Pool().Exec(t.Context(), text, pgx.QueryExecModeSimpleProtocol); err != nil {
					t.Fatal(err)
				}
			},
			Insert: func(t testing.TB, e waybill.Event) error {
				tx, err := st.Pool().Begin(t.Context())
				if err != nil {
					return err
				}
				defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
				if _, err := tx.Exec(t.Context(), `SET LOCAL lock_timeout = '200ms'`); err != nil {
					return err
				}
				if _, err := st.Append(t.Context(), tx, []waybill.Event{e}); err != nil {
					return err
				}
				return tx.Commit(t.Context())
			},
		}
	})
}
