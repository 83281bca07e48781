package blocking

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"testing"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/ops"
	"github.com/waybillhq/waybill/store"
)

// What an application has prepared and left is not waited for in silence.
func TestDoctorNamesWhatAnApplicationPreparedAndLeft(t *testing.T) {
	for _, kind := range concurrent {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			d := kind.open(t)
			conn, err := d.app.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			id := waybill.NewID()
			begin, prepare, rollback := []string{"BEGIN"}, []string{"PREPARE TRANSACTION '" + id + "'"}, "ROLLBACK PREPARED '"+id+"'"
			if kind.name != "postgres15" {
				rollback = "XA ROLLBACK '" + id + "'"
				begin, prepare = []string{"XA START '" + id + "'"}, []string{"XA END '" + id + "'", "XA PREPARE '" + id + "'"}
			}
			run(t, conn, append(append(begin, `INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, topic, payload)
				VALUES ('`+id+`', 'order', '1', 'OrderPaid', 'orders', '1')`), prepare...)...)
			defer func() { _, _ = conn.ExecContext(context.WithoutCancel(t.Context()), rollback) }() // nothing is left of a test that fails
			prepared, err := d.outbox.(store.PreparedLister).ListPrepared(t.Context())
			i := slices.IndexFunc(prepared, func(p store.PreparedTransaction) bool { return strings.Contains(p.Name, id) })
			if err != nil || i < 0 {
				t.Fatalf("prepared: %+v, %v, want one of %s", prepared, err, id)
			}
			isNamed := func() bool {
				diagnosis, err := ops.Doctor(t.Context(), d.outbox, nil)
				if err != nil {
					t.Error(err)
				}
				return slices.ContainsFunc(diagnosis.Examinations, func(e ops.Examination) bool {
					return e.Check == ops.CheckPrepared && !e.OK && strings.Contains(e.Detail, id) && e.Hint != ""
				})
			}
			named := isNamed()
			run(t, conn, prepared[i].Rollback)
			if !named || isNamed() {
				t.Errorf("named while it was left: %t, want it; when it is ended it is not named", named)
			}
		})
	}
}

func run(t *testing.T, conn *sql.Conn, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := conn.ExecContext(context.WithoutCancel(t.Context()), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}
