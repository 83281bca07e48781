package postgres_test

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill/store/storetest"
)

// statusRow is a row of outbox_status; of the times, whether they are set.
type statusRow struct {
	ID, Status       string
	Queued           bool
	Retries          int
	Retry, Published bool
}

func TestStatusViewShowsOneTable(t *testing.T) {
	st := openStore(t, usedSchema(t), storetest.Options{})
	tx := begin(t, st)
	appendTo(t, st, tx, "pending", "dead", "sent", "skipped", "unqueued", "requeued")
	commit(t, tx)
	for _, change := range []string{
		"UPDATE outbox_pending SET status = 'DEAD', retry_count = 12 WHERE id IN (SELECT id FROM outbox_event WHERE event_id = 'dead')",
		"DELETE FROM outbox_pending WHERE id IN (SELECT id FROM outbox_event WHERE event_id IN ('sent', 'skipped', 'unqueued'))",
		"INSERT INTO outbox_receipt (id, event_id, outcome) SELECT id, event_id, 'SENT' FROM outbox_event WHERE event_id IN ('sent', 'requeued')",
		"INSERT INTO outbox_receipt (id, event_id, outcome) SELECT id, event_id, 'SKIPPED' FROM outbox_event WHERE event_id = 'skipped'",
	} {
		if _, err := st.Pool().Exec(t.Context(), change); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := st.Pool().Query(t.Context(), "SELECT event_id, status, queued, retry_count, next_retry_at IS NOT NULL, published_at IS NOT NULL FROM outbox_status ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[statusRow])
	if err != nil {
		t.Fatal(err)
	}
	want := []statusRow{
		{"pending", "PENDING", true, 0, false, false},
		{"dead", "DEAD", true, 12, false, false},
		{"sent", "SENT", false, 0, false, true},
		{"skipped", "SKIPPED", false, 0, false, true},
		{"unqueued", "PENDING", false, 0, false, false},
		{"requeued", "PENDING", true, 0, false, false},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}
