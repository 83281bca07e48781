package accounts

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/reconcile"
	"github.com/waybillhq/waybill/store"
)

// What a cleanup has archived is still a source of the read model.
func TestARebuildReadsTheArchive(t *testing.T) {
	for _, dialect := range ledgers {
		t.Run(string(dialect), func(t *testing.T) {
			d := outboxOn(t, dialect)
			exec(t, d, "CREATE TABLE balance (id {text} NOT NULL PRIMARY KEY, balance INTEGER, version INTEGER NOT NULL)")
			body := func(n int) string {
				text := fmt.Sprintf(`{"balance": %d}`, n)
				if dialect == reconcile.Postgres {
					return "convert_to('" + text + "', 'UTF8')"
				}
				return "'" + text + "'"
			}
			for v := 1; v <= 3; v++ {
				for _, name := range []string{"gone", "half"} {
					exec(t, d, fmt.Sprintf("INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, aggregate_version, event_type, topic, payload) VALUES ('%s-%d', 'account', '%s', %d, 'changed', 'accounts', %s)", name, v, name, v, body(10*v)))
				}
			}
			exec(t, d,
				"INSERT INTO outbox_receipt (id, event_id, outcome, via, published_at, note) SELECT id, event_id, 'SENT', 'poll', '2026-01-01 00:00:00', '' FROM outbox_event",
				"DELETE FROM outbox_pending",
				`INSERT INTO outbox_event_archive (id, event_id, tenant_id, aggregate_type, aggregate_id, aggregate_version, event_type, event_version, topic, event_key, payload,
					content_type, headers, occurred_at, created_at, outcome, via, published_at, published_to, note)
				SELECT e.id, e.event_id, e.tenant_id, e.aggregate_type, e.aggregate_id, e.aggregate_version, e.event_type, e.event_version, e.topic, e.event_key, e.payload,
					e.content_type, e.headers, e.occurred_at, e.created_at, r.outcome, r.via, r.published_at, '', ''
				FROM outbox_event AS e JOIN outbox_receipt AS r ON r.id = e.id WHERE e.aggregate_id = 'gone' OR e.aggregate_version < 3`,
				"DELETE FROM outbox_event WHERE id IN (SELECT id FROM outbox_event_archive)",
				"INSERT INTO balance VALUES ('gone', 7, 3)")
			check := &reconcile.Check{
				Name: "accounts", Key: []reconcile.KeyPart{{Name: "id"}}, Compare: []reconcile.Column{{Name: "balance"}},
				Log:     &reconcile.Log{Table: reconcile.Table{Database: "write", Key: []string{"aggregate_id"}}, Outbox: &reconcile.Outbox{AggregateType: "account"}},
				Read:    &reconcile.Table{Database: "read", Table: "balance", Version: "version"},
				Confirm: []time.Duration{0},
			}
			rebuild := func(config reconcile.RebuildConfig) *reconcile.Rebuilt {
				t.Helper()
				rebuilt, err := engine(t, check, d, d).Rebuild(t.Context(), &config)
				if err != nil {
					t.Fatal(err)
				}
				return rebuilt
			}
			if r := rebuild(reconcile.RebuildConfig{}); r.Written != 1 || len(r.Refused) != 1 || r.Refused[0].Key != "gone" {
				t.Errorf("without the archive: %+v", r)
			}
			if r := rebuild(reconcile.RebuildConfig{Archive: true}); r.Written != 1 || r.Unchanged != 1 || len(r.Refused) != 0 {
				t.Errorf("with the archive: %+v", r)
			}
			var balance int
			if err := d.DB.QueryRowContext(t.Context(), "SELECT SUM(balance) FROM balance").Scan(&balance); err != nil || balance != 60 {
				t.Errorf("the balances are %d, want 30 each, %v", balance, err)
			}
			// A comparison takes it for a part of the log, if it is told to.
			for archive, want := range map[bool]string{false: "MISMATCH_READ gone\n", true: ""} {
				check.Log.Outbox.Archive = archive
				if report := run(t, check, d, d); listed(report) != want {
					t.Errorf("archive %t: got\n%s\nwant %q", archive, report.Text(), want)
				}
			}
			check.Log.Outbox.Archive = false
			// A fold sees the archived events before the others, whole.
			seen := ""
			r := rebuild(reconcile.RebuildConfig{Archive: true, Keys: [][]string{{"half"}}, Fold: func(ctx context.Context, tx store.SQLTx, e waybill.Event) error {
				seen += fmt.Sprintf("%s %s %s/%s v%d %s %s\n", e.ID, e.Type, e.AggregateType, e.AggregateID, e.AggregateVersion, e.Topic, e.Data)
				_, err := tx.ExecContext(ctx, "DELETE FROM balance WHERE id = 'half'")
				if err == nil {
					_, err = tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO balance VALUES ('half', 30, %d)", e.AggregateVersion))
				}
				return err
			}})
			want := "half-1 changed account/half v1 accounts {\"balance\": 10}\nhalf-2 changed account/half v2 accounts {\"balance\": 20}\nhalf-3 changed account/half v3 accounts {\"balance\": 30}\n"
			if seen != want || r.Unchanged != 1 {
				t.Errorf("the handler saw\n%s\n%+v", seen, r)
			}
		})
	}
}
