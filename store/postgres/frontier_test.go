package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/postgres"
	"github.com/waybillhq/waybill/store/storetest"
)

func frontier(t *testing.T, st *postgres.Store) store.Frontier {
	t.Helper()
	f, err := st.Frontier(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func begin(t *testing.T, st *postgres.Store) pgx.Tx {
	t.Helper()
	tx, err := st.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(t.Context()) })
	return tx
}

func run(t *testing.T, tx pgx.Tx, statement string) {
	t.Helper()
	if _, err := tx.Exec(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

func orderPaid(id string) waybill.Event {
	e := waybill.Event{ID: id, Type: "OrderPaid", Topic: "orders", AggregateType: "order", AggregateID: "O-1", Data: []byte("{}")}
	e.Normalize(clock())
	return e
}

func appendTo(t *testing.T, st *postgres.Store, tx pgx.Tx, ids ...string) {
	t.Helper()
	var events []waybill.Event
	for _, id := range ids {
		events = append(events, orderPaid(id))
	}
	results, err := st.Append(t.Context(), tx, events)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range results {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func commit(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// The transaction with the lower event id has the greater number, because the
// other one wrote its business row first. Both numbers are above the upper end
// of a snapshot that is taken after only the other has ended.
func TestFrontierWaitsForATransactionNumberedAfterTheVisibleOne(t *testing.T) {
	st := openStore(t, usedSchema(t), storetest.Options{})
	early, late := begin(t, st), begin(t, st)
	run(t, early, "SELECT pg_current_xact_id()")
	appendTo(t, st, late, "lower")
	appendTo(t, st, early, "higher")
	commit(t, early)
	seen := frontier(t, st)
	if seen.MaxID == 0 {
		t.Fatal("the committed event is not visible")
	}
	if again := frontier(t, st); again.Closed >= seen.Opened {
		t.Errorf("closed at %d over an open transaction below %d", again.Closed, seen.Opened)
	}
	commit(t, late)
	closes(t, st, seen)
}

// An INSERT takes its id, then waits for another session that inserts the same
// event id. Its transaction has written nothing yet.
func TestFrontierWaitsForAnInsertThatWaits(t *testing.T) {
	for _, noTrigger := range []bool{false, true} {
		t.Run(map[bool]string{false: "trigger", true: "no trigger"}[noTrigger], func(t *testing.T) {
			st := openStore(t, usedSchema(t), storetest.Options{NoTrigger: noTrigger})
			blocker, waiting := begin(t, st), begin(t, st)
			appendTo(t, st, blocker, "same")
			done := make(chan error, 1)
			go func() {
				var err error
				if noTrigger {
					_, err = st.Append(t.Context(), waiting, []waybill.Event{orderPaid("same")})
				} else {
					_, err = waiting.Exec(t.Context(), plainInsert("same")+" ON CONFLICT DO NOTHING")
				}
				done <- err
			}()
			untilBlocked(t, st)
			visible := begin(t, st)
			appendTo(t, st, visible, "visible")
			commit(t, visible)
			seen := frontier(t, st)
			if err := blocker.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if again := frontier(t, st); again.Closed >= seen.Opened {
				t.Errorf("closed at %d, want below %d: an event with a lower id is still to come", again.Closed, seen.Opened)
			}
			commit(t, waiting)
			closes(t, st, seen)
		})
	}
}

// closes waits for other users of the server, whose transactions count too.
func closes(t *testing.T, st *postgres.Store, seen store.Frontier) {
	t.Helper()
	until(t, "the frontier closes", func() bool { return frontier(t, st).Closed >= seen.Opened })
}

// untilBlocked waits until a session of this database waits for a transaction.
func untilBlocked(t *testing.T, st *postgres.Store) {
	t.Helper()
	until(t, "a session waits", func() bool {
		var waiting bool
		err := st.Pool().QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
		return waiting
	})
}

// plainInsert is what a producer in another language writes at least.
func plainInsert(id string) string {
	return "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, topic, payload) VALUES ('" +
		id + "', 'order', 'O-1', 'OrderPaid', 'orders', '{}')"
}
