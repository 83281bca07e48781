package sqlite_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/sqlite"
	"github.com/waybillhq/waybill/store/storetest"
)

// open returns a store over a new file with all tables.
func open(t testing.TB, config *sqlite.Config) *sqlite.Store {
	t.Helper()
	return openFile(t, filepath.Join(t.TempDir(), "test.db"), config)
}

func openFile(t testing.TB, path string, config *sqlite.Config) *sqlite.Store {
	t.Helper()
	st, err := sqlite.Open(t.Context(), path, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	noTrigger := config != nil && config.NoTrigger
	if err := st.Migrate(t.Context(), store.MigrateOptions{NoTrigger: noTrigger}); err != nil {
		t.Fatal(err)
	}
	return st
}

func event(id, key string) waybill.Event {
	e := waybill.Event{ID: id, Type: "OrderPaid", Topic: "orders", AggregateType: "order", AggregateID: key, Data: []byte(`{"n":1}`)}
	e.Normalize(time.Now())
	return e
}

func appendEvents(t testing.TB, st *sqlite.Store, events ...waybill.Event) {
	t.Helper()
	inTx(t, st, func(tx *sql.Tx) {
		results, err := st.Append(t.Context(), tx, events)
		if err != nil {
			t.Fatal(err)
		}
		for _, result := range results {
			if result != nil {
				t.Fatal(result)
			}
		}
	})
}

func inTx(t testing.TB, st *sqlite.Store, do func(tx *sql.Tx)) {
	t.Helper()
	tx, err := st.DB().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	do(tx)
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

func allLanes() []store.LaneCursor {
	lanes := make([]store.LaneCursor, store.Lanes)
	for i := range lanes {
		lanes[i].Lane = i
	}
	return lanes
}

func hot(t testing.TB, st *sqlite.Store) []*store.Row {
	t.Helper()
	rows, err := storetest.Hot(t.Context(), st, store.WalkRequest{Lanes: allLanes()})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func claimAll(t testing.TB, st *sqlite.Store, owner string) store.Guard {
	t.Helper()
	leases, err := st.Claim(t.Context(), owner, time.Hour, store.Lanes)
	if err != nil {
		t.Fatal(err)
	}
	return store.Guard{Owner: owner, Lanes: leases}
}

func TestAppendFetchSettle(t *testing.T) {
	st := open(t, nil)
	appendEvents(t, st, event("e1", "a"), event("e2", "b"), event("e3", "a"))
	rows := hot(t, st)
	if len(rows) != 3 {
		t.Fatalf("hot rows: got %d, want 3", len(rows))
	}
	guard := claimAll(t, st, "relay")
	var changes store.Changes
	for _, row := range rows {
		changes.Settled = append(changes.Settled, store.SettledChange{Change: store.Change{ID: row.ID, EventID: row.Event.ID}, Outcome: store.StatusSent, Via: "poll"})
	}
	if err := st.Apply(context.Background(), guard, changes); err != nil {
		t.Fatal(err)
	}
	if rows := hot(t, st); len(rows) != 0 {
		t.Fatalf("hot rows after settling: got %d, want none", len(rows))
	}
}

func settled(row *store.Row) store.SettledChange {
	return store.SettledChange{
		Change: store.Change{ID: row.ID, EventID: row.Event.ID}, Outcome: store.StatusSent, Via: "poll", PublishedTo: row.Event.Topic,
	}
}
