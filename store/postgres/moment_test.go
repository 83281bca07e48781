package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/storetest"
)

// Plain SQL can write times that Go cannot hold. A read that fails over one row
// would stop all lanes.
func TestTimesWithoutEndStopNothing(t *testing.T) {
	dsn := usedSchema(t)
	st := openStore(t, dsn, storetest.Options{})
	exec := func(format string, args ...any) {
		t.Helper()
		if err := execute(t.Context(), dsn, fmt.Sprintf(format, args...)); err != nil {
			t.Fatal(err)
		}
	}
	for i, times := range [][2]string{
		{"infinity", "infinity"}, {"-infinity", "-infinity"}, {"294000-01-01", "294000-01-01"}, {"4713-01-01 BC", "4713-01-01 BC"},
	} {
		exec(`INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, topic, payload, occurred_at, created_at)
VALUES ('odd%d', 'order', 'O-%[1]d', 'T', 'orders', '{}', '%s', '%s')`, i, times[0], times[1])
	}
	exec("%s", plainInsert("good"))
	if got := hotIDs(t, st); len(got) != 5 {
		t.Errorf("hot rows: got %q, want all five", got)
	}
	found, err := st.Find(t.Context(), store.Filter{Limit: 10})
	if err != nil || len(found) != 5 {
		t.Fatalf("find: got %d, %v, want 5", len(found), err)
	}
	for _, f := range found {
		if year := f.Event.OccurredAt.Year(); year < 1 || year > 9999 || f.Event.OccurredAt.IsZero() {
			t.Errorf("%s occurred at %v, which no wire format can say", f.Event.ID, f.Event.OccurredAt)
		}
	}
	if _, err := st.Counts(t.Context()); err != nil {
		t.Errorf("counts: %v", err)
	}
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if events, err := st.SQL().Existing(t.Context(), tx, []string{"odd0", "odd1", "good"}); err != nil || len(events) != 3 {
		t.Errorf("existing by database/sql: got %d, %v, want 3", len(events), err)
	}
	// An operator's way of keeping an event back.
	exec(`UPDATE outbox_pending SET parked = true, next_retry_at = 'infinity' WHERE id = (SELECT id FROM outbox_event WHERE event_id = 'odd0')`)
	row := rowByID(t.Context(), t, st, "odd0")
	if !row.HasRetry || row.RetryIn < 1000*time.Hour {
		t.Errorf("retry at infinity: got %t, %v", row.HasRetry, row.RetryIn)
	}
}

func rowByID(ctx context.Context, t *testing.T, st store.Outbox, id string) *store.Row {
	t.Helper()
	found, err := st.Find(ctx, store.Filter{EventIDs: []string{id}})
	if err != nil || len(found) != 1 || found[0].Row == nil {
		t.Fatalf("find %s: got %+v, %v", id, found, err)
	}
	return found[0].Row
}

// Every reader's cursor begins at 0: an event below it would wait in silence.
func TestTableRefusesIDsThatNoCursorReaches(t *testing.T) {
	dsn := usedSchema(t)
	openStore(t, dsn, storetest.Options{})
	for _, id := range []string{"0", "-5"} {
		err := execute(t.Context(), dsn, `INSERT INTO outbox_event (id, event_id, aggregate_type, aggregate_id, event_type, topic, payload)
VALUES (`+id+`, 'below', 'order', 'O-1', 'T', 'orders', '{}')`)
		if err == nil {
			t.Errorf("the table took id %s", id)
		}
	}
}
