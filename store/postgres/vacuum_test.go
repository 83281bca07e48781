package postgres_test

import (
	"testing"

	"github.com/waybillhq/waybill/store/storetest"
)

// A vacuum that gives pages at a table's end back to the system takes a lock
// that those who append wait for. Queue and events are emptied all the time, and
// grow again: their pages stay.
func TestVacuumKeepsThePagesOfWhatComesAndGoes(t *testing.T) {
	st := openStore(t, freshSchema(t), storetest.Options{})
	exec := func(statement string) {
		t.Helper()
		if _, err := st.Pool().Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	exec(`INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, topic, payload)
		SELECT 'E-' || n, 'order', 'O-1', 'OrderPaid', 'orders', '{}' FROM generate_series(1, 2000) n`)
	size := func(table string) (pages int64) {
		t.Helper()
		if err := st.Pool().QueryRow(t.Context(), "SELECT pg_relation_size($1::regclass) / 8192", table).Scan(&pages); err != nil {
			t.Fatal(err)
		}
		return pages
	}
	for _, table := range []string{"outbox_pending", "outbox_event"} {
		before := size(table)
		exec("DELETE FROM " + table)
		exec("VACUUM " + table)
		if after := size(table); before < 10 || after != before {
			t.Errorf("%s had %d pages and has %d after a vacuum", table, before, after)
		}
	}
}
