package accounts

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill/reconcile"
	"github.com/waybillhq/waybill/store"
)

// What a relay that forgets, or a cleanup, has removed is still compared.
func TestHeadsOutliveTheirEvents(t *testing.T) {
	for _, dialect := range ledgers {
		t.Run(string(dialect), func(t *testing.T) {
			d := outboxWith(t, dialect, store.MigrateOptions{Head: true})
			exec(t, d,
				"CREATE TABLE account (id {text} NOT NULL PRIMARY KEY, balance INTEGER, version INTEGER NOT NULL, updated_at {time})",
				"CREATE TABLE balance (id {text} NOT NULL PRIMARY KEY, balance INTEGER, version INTEGER NOT NULL)")
			put := func(id string, version int) {
				body := fmt.Sprintf(`'{"balance": %d}'`, 10*version)
				if dialect == reconcile.Postgres {
					body = "convert_to(" + body + ", 'UTF8')"
				}
				exec(t, d, fmt.Sprintf("INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, aggregate_version, event_type, topic, payload) VALUES ('%s-%d', 'account', '%s', %d, 'changed', 'accounts', %s)", id, version, id, version, body))
			}
			for _, id := range []string{"ahead", "edited", "equal", "fresh", "orphan", "read", "waits"} {
				put(id, 1)
				put(id, 2)
				exec(t, d, fmt.Sprintf("INSERT INTO account VALUES ('%s', 20, 2, '2026-01-01 00:00:00')", id),
					fmt.Sprintf("INSERT INTO balance VALUES ('%s', 20, 2)", id))
			}
			exec(t, d,
				"DELETE FROM outbox_pending WHERE id NOT IN (SELECT id FROM outbox_event WHERE event_id = 'waits-2')",
				"DELETE FROM outbox_event WHERE event_id <> 'waits-2'",
				"UPDATE account SET balance = 21 WHERE id = 'edited'",
				"UPDATE account SET version = 3 WHERE id = 'ahead'",
				"UPDATE balance SET balance = 22 WHERE id = 'read'",
				"DELETE FROM account WHERE id = 'orphan'",
				"INSERT INTO account VALUES ('never', 20, 2, '2026-01-01 00:00:00')")
			check := &reconcile.Check{
				Name: "accounts", Key: []reconcile.KeyPart{{Name: "id"}}, Compare: []reconcile.Column{{Name: "balance"}},
				Write: &reconcile.Table{Database: "write", Table: "account", Version: "version", UpdatedAt: "updated_at"},
				Log: &reconcile.Log{
					Table:  reconcile.Table{Database: "write", Key: []string{"aggregate_id"}},
					Outbox: &reconcile.Outbox{AggregateType: "account", Head: true, Forgets: true},
				},
				Read:    &reconcile.Table{Database: "write", Table: "balance", Version: "version"},
				Confirm: []time.Duration{0}, Deadline: time.Nanosecond, ChunkRows: 3,
			}
			wants := func(name, want string) *reconcile.Report {
				t.Helper()
				report := run(t, check, d, d)
				if got := listed(report); got != want {
					t.Errorf("%s: got\n%s\nwant\n%s", name, report.Text(), want)
				}
				return report
			}
			wants("forgotten", "MISSING_EVENT ahead\nMISSING_EVENT never\nORPHAN_EVENT orphan\nMISMATCH_WRITE edited\nMISMATCH_READ read\nIN_FLIGHT waits\n")

			// Nobody may have removed them: they were written, and are gone.
			check.Log.Outbox.Forgets = false
			gone := "MISSING_EVENT ahead\nMISSING_EVENT edited\nMISSING_EVENT equal\nMISSING_EVENT fresh\nMISSING_EVENT never\nMISSING_EVENT read\n"
			report := run(t, check, d, d)
			if got := listed(report); !strings.HasPrefix(got, gone) {
				t.Errorf("gone: got\n%s\nwant first\n%s", report.Text(), gone)
			}
			for _, f := range report.Findings {
				want := reconcile.RowGone
				if f.Key == "never" || f.Key == "ahead" {
					want = reconcile.NeverWritten
				}
				if f.Class == reconcile.MissingEvent && f.Causes[0].Code != want {
					t.Errorf("%s: cause %s, want %s", f.Key, f.Causes[0].Code, want)
				}
			}

			// A cleanup removes what is older than the retention, and that alone.
			check.LogRetention = 24 * time.Hour
			exec(t, d, "DELETE FROM account WHERE id IN ('ahead', 'read', 'never')", "DELETE FROM balance WHERE id IN ('ahead', 'read', 'orphan')",
				"UPDATE outbox_head SET created_at = '2026-01-01 00:00:00' WHERE aggregate_id <> 'fresh'")
			report = wants("expired", "MISSING_EVENT fresh\nMISMATCH_WRITE edited\nIN_FLIGHT waits\n")
			if len(report.Findings) > 0 && report.Findings[0].Causes[0].Code != reconcile.RowGone {
				t.Errorf("fresh: cause %s, want row_gone", report.Findings[0].Causes[0].Code)
			}
			check.Log.Outbox.Head = false
			wants("without heads", "MISMATCH_READ edited\nIN_FLIGHT waits\nUNVERIFIED edited\nUNVERIFIED equal\nUNVERIFIED fresh\n")
		})
	}
}
