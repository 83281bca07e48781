package postgres_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/storetest"
)

func TestPreparedTransactionsAreNamed(t *testing.T) {
	dsn := freshDatabase(t)
	st := openStore(t, dsn, storetest.Options{})
	gid := "it's " + dsn[strings.LastIndex(dsn, "/")+1:]
	quoted := "'" + strings.ReplaceAll(gid, "'", "''") + "'"
	if err := execute(t.Context(), dsn, `BEGIN; INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, topic, payload)
		VALUES ('e1', 'order', '1', 'OrderPaid', 'orders', '1'); PREPARE TRANSACTION `+quoted); err != nil {
		t.Fatal(err)
	}
	ended := false
	end := func(how string) {
		if !ended {
			ended = true
			if err := execute(context.WithoutCancel(t.Context()), dsn, how); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(func() { end("ROLLBACK PREPARED " + quoted) })
	mine := func(p store.PreparedTransaction) bool { return strings.HasPrefix(p.Name, gid) }
	found, err := st.ListPrepared(t.Context())
	i := slices.IndexFunc(found, mine)
	if err != nil || i < 0 {
		t.Fatalf("prepared: got %+v, %v, want %s", found, err, gid)
	}
	end(found[i].Commit)
	if found, err := st.ListPrepared(t.Context()); err != nil || slices.ContainsFunc(found, mine) {
		t.Errorf("after the commit: %+v, %v", found, err)
	}
}
