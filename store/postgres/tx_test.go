package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/postgres"
	"github.com/waybillhq/waybill/store/storetest"
)

func TestAppendCommit(t *testing.T) {
	for _, noTrigger := range []bool{false, true} {
		for _, test := range []struct {
			name  string
			begin func(*postgres.Store, context.Context) (pgx.Tx, error)
		}{
			{"own transaction", func(st *postgres.Store, ctx context.Context) (pgx.Tx, error) { return st.Begin(ctx) }},
			{"pool's transaction", func(st *postgres.Store, ctx context.Context) (pgx.Tx, error) { return st.Pool().Begin(ctx) }},
		} {
			t.Run(test.name, func(t *testing.T) {
				st := openStore(t, usedSchema(t), storetest.Options{NoTrigger: noTrigger})
				start := func() pgx.Tx {
					tx, err := test.begin(st, t.Context())
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = tx.Rollback(t.Context()) })
					return tx
				}
				tx := start()
				writer := outbox.NewCommitWriter(st, &outbox.Config{Source: "/shop"})
				if err := writer.AppendCommit(t.Context(), tx, orderPaid("a"), orderPaid("b")); err != nil {
					t.Fatal(err)
				}
				if err := tx.Rollback(t.Context()); !errors.Is(err, pgx.ErrTxClosed) {
					t.Errorf("rollback afterwards: got %v, want ErrTxClosed", err)
				}
				wantEvents(t, st, "a", "b")
				if found, err := st.Find(t.Context(), store.Filter{EventIDs: []string{"a"}}); err != nil || found[0].Event.Source != "/shop" {
					t.Errorf("event a: got %+v, %v, want the writer's source", found, err)
				}

				if err := writer.AppendCommit(t.Context(), start(), orderPaid("c"), orderPaid("a")); !errors.Is(err, waybill.ErrDuplicateEvent) {
					t.Errorf("duplicate: got %v", err)
				}
				wantEvents(t, st, "a", "b") // not c: all or nothing

				tx = start()
				if err := writer.AppendCommit(t.Context(), tx, waybill.Event{ID: "bad"}); !errors.Is(err, waybill.ErrInvalidEvent) {
					t.Errorf("invalid event: got %v", err)
				}
				if err := tx.Rollback(t.Context()); err != nil {
					t.Errorf("rollback after an invalid event: %v", err)
				}
				if err := writer.AppendCommit(t.Context(), start()); err != nil {
					t.Errorf("no events: %v", err)
				}
				// Had one of them kept its connection, the pool would be smaller now.
				if n := st.Pool().Stat().AcquiredConns(); n != 0 {
					t.Errorf("%d connections were not given back", n)
				}
			})
		}
	}
}

func wantEvents(t *testing.T, st *postgres.Store, ids ...string) {
	t.Helper()
	found, err := st.Find(t.Context(), store.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range found {
		if !f.Queued() {
			t.Errorf("%s has no queue row", f.Event.ID)
		}
		got = append(got, f.Event.ID)
	}
	if len(got) != len(ids) {
		t.Errorf("events: got %q, want %q", got, ids)
	}
}

func TestAbortEndsARunningStatement(t *testing.T) {
	st := openStore(t, usedSchema(t), storetest.Options{})
	in, err := st.BeginInbox(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.MarkConsumed(t.Context(), store.Consumed{Group: "g", Event: waybill.Event{ID: "a"}, Outcome: store.Applied, Topic: "t"}); err != nil {
		t.Fatal(err)
	}
	handle := in.Handle()
	if err := handle.Commit(t.Context()); err == nil {
		t.Error("a handler ended the transaction")
	}
	nested, err := handle.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		"COMMIT", " end;", "prepare transaction 'x'", "/* /* so */ */ COMMIT", "-- so\nABORT", "SELECT 1; COMMIT", "ROLLBACK", "rollback and chain",
	} {
		for name, tx := range map[string]pgx.Tx{"a handler": handle, "a nested transaction": nested} {
			batch := &pgx.Batch{}
			batch.Queue("SELECT 1")
			batch.Queue(statement)
			_, execErr := tx.Exec(t.Context(), statement)
			_, prepareErr := tx.Prepare(t.Context(), "end", statement)
			_, queryErr := tx.Query(t.Context(), statement)
			for how, err := range map[string]error{
				"exec": execErr, "prepare": prepareErr, "query": queryErr, "row": tx.QueryRow(t.Context(), statement).Scan(), "batch": tx.SendBatch(t.Context(), batch).Close(),
			} {
				if err == nil {
					t.Errorf("%s ended the transaction by %s: %s", name, how, statement)
				}
			}
		}
	}
	for _, statement := range []string{"SAVEPOINT mine", "ROLLBACK WORK TO mine", "RELEASE mine", "SELECT $$; COMMIT$$"} {
		if _, err := handle.Exec(t.Context(), statement); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
	}
	if err := in.Sound(); err != nil {
		t.Errorf("sound: %v", err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := nested.Exec(context.WithoutCancel(t.Context()), "SELECT pg_sleep(600)")
		ended <- err
	}()
	until(t, "the statement runs", func() bool { return sleepers(t, st) == 1 })
	in.Abort()
	if err := <-ended; !errors.Is(err, store.ErrAborted) {
		t.Errorf("running statement: got %v, want ErrAborted", err)
	}
	for name, use := range map[string]func() error{
		"handler's exec":   func() error { _, err := handle.Exec(t.Context(), "SELECT 1"); return err },
		"handler's query":  func() error { _, err := handle.Query(t.Context(), "SELECT 1"); return err },
		"handler's row":    func() error { return handle.QueryRow(t.Context(), "SELECT 1").Scan(new(int)) },
		"handler's batch":  func() error { return handle.SendBatch(t.Context(), &pgx.Batch{}).Close() },
		"handler's begin":  func() error { _, err := handle.Begin(t.Context()); return err },
		"nested commit":    func() error { return nested.Commit(t.Context()) },
		"processor's mark": func() error { _, err := in.IsConsumed(t.Context(), "g", "a", false); return err },
		"commit":           func() error { return in.Commit(t.Context()) },
	} {
		if err := use(); !errors.Is(err, store.ErrAborted) {
			t.Errorf("%s: got %v, want ErrAborted", name, err)
		}
	}
	if err := in.Rollback(t.Context()); err != nil {
		t.Errorf("rollback: %v", err)
	}
	if err := in.Rollback(t.Context()); err != nil {
		t.Errorf("second rollback: %v", err)
	}
	until(t, "the server gives up the statement", func() bool { return sleepers(t, st) == 0 })
	if found, err := st.FindConsumed(t.Context(), "a"); err != nil || len(found) != 0 {
		t.Errorf("consumed: got %v, %v, want none", found, err)
	}
	if n := st.Pool().Stat().AcquiredConns(); n != 0 {
		t.Errorf("%d connections were not given back", n)
	}
}

func sleepers(t *testing.T, st *postgres.Store) (n int) {
	t.Helper()
	err := st.Pool().QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND state = 'active' AND query = 'SELECT pg_sleep(600)'`).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
