package accounts

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/waybillhq/waybill/reconcile"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/postgres"
	"github.com/waybillhq/waybill/store/sqlite"
)

// outboxes are databases with the tables of this module.
var outboxes = map[reconcile.Dialect]func(t *testing.T, options store.MigrateOptions) reconcile.Database{
	reconcile.SQLite: func(t *testing.T, options store.MigrateOptions) reconcile.Database {
		st, err := sqlite.Open(t.Context(), t.TempDir()+"/outbox.db", nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = st.Close() })
		if err := st.Migrate(t.Context(), options); err != nil {
			t.Fatal(err)
		}
		return reconcile.Database{DB: st.DB(), Dialect: reconcile.SQLite}
	},
	reconcile.Postgres: func(t *testing.T, options store.MigrateOptions) reconcile.Database {
		d := open(t, reconcile.Postgres)
		var name, user, address string
		if err := d.DB.QueryRowContext(t.Context(), "SELECT current_database(), current_user, host(inet_server_addr()) || ':' || inet_server_port()").Scan(&name, &user, &address); err != nil {
			t.Fatal(err)
		}
		u := url.URL{Scheme: "postgres", User: url.UserPassword(user, user), Host: address, Path: name}
		st, err := postgres.Open(t.Context(), u.String()+"?sslmode=disable", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = st.Close() }()
		if err := st.Migrate(t.Context(), options); err != nil {
			t.Fatal(err)
		}
		return d
	},
}

func TestTheOutboxIsALog(t *testing.T) {
	for dialect, outbox := range outboxes {
		t.Run(string(dialect), func(t *testing.T) {
			d := outbox(t, store.MigrateOptions{})
			exec(t, d,
				"CREATE TABLE account (tenant {text} NOT NULL, id {long} NOT NULL, balance {decimal}, version INTEGER NOT NULL, updated_at {time}, PRIMARY KEY (tenant, id))",
				"CREATE TABLE balance (tenant {text} NOT NULL, id {long} NOT NULL, balance {decimal}, version INTEGER NOT NULL, PRIMARY KEY (tenant, id))")
			bytes := func(text string) string {
				if dialect == reconcile.Postgres {
					return "convert_to('" + text + "', 'UTF8')"
				}
				return "'" + text + "'"
			}
			put := func(tenant string, id, versions int) {
				for v := 1; v <= versions; v++ {
					name := fmt.Sprintf("%s-%d-%d", tenant, id, v)
					exec(t, d, fmt.Sprintf("INSERT INTO outbox_event (event_id, tenant_id, aggregate_type, aggregate_id, aggregate_version, event_type, topic, payload) VALUES ('%s', '%s', 'account', '%d', %d, 'account.changed', 'accounts', %s)",
						name, tenant, id, v, bytes(`{"balance": 10.50}`)),
						fmt.Sprintf("INSERT INTO outbox_receipt (id, event_id, outcome, via, published_at) SELECT id, event_id, 'SENT', 'poll', '2026-01-01T00:00:00Z' FROM outbox_event WHERE event_id = '%s'", name),
						fmt.Sprintf("DELETE FROM outbox_pending WHERE id = (SELECT id FROM outbox_event WHERE event_id = '%s')", name))
				}
				exec(t, d, fmt.Sprintf("INSERT INTO account VALUES ('%s', %d, 10.5, %d, '2026-01-01T00:00:00Z')", tenant, id, versions),
					fmt.Sprintf("INSERT INTO balance VALUES ('%s', %d, 10.5, %d)", tenant, id, versions))
			}
			for id := 8; id <= 12; id++ {
				put("a", id, 2)
				put("b", id, 1)
			}
			exec(t, d, "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, aggregate_version, event_type, topic, payload) VALUES ('other', 'book', '8', 9, 'book.changed', 'books', "+bytes("{}")+")")
			check := &reconcile.Check{
				Name: "accounts", Key: []reconcile.KeyPart{{Name: "tenant"}, {Name: "id", Type: reconcile.KeyInteger}},
				Write:    &reconcile.Table{Database: "write", Table: "account", Version: "version", UpdatedAt: "updated_at"},
				Log:      &reconcile.Log{Table: reconcile.Table{Database: "write"}, Outbox: &reconcile.Outbox{AggregateType: "account"}},
				Read:     &reconcile.Table{Database: "write", Table: "balance", Version: "version"},
				Consumer: &reconcile.Consumer{Database: "write", Group: "balances"},
				Compare:  []reconcile.Column{{Name: "balance"}},
				Confirm:  []time.Duration{0}, ChunkRows: 4,
			}
			if report := run(t, check, d, d); listed(report) != "" || report.Keys != 10 {
				t.Fatalf("%d keys:\n%s", report.Keys, report.Text())
			}

			set := func(set string) { exec(t, d, "UPDATE "+set) }
			unsettle := func(name, status string) {
				exec(t, d, fmt.Sprintf("DELETE FROM outbox_receipt WHERE event_id = '%s'", name))
				if status != "" {
					exec(t, d, fmt.Sprintf("INSERT INTO outbox_pending (id, lane, key_hash, topic_hash, status) SELECT id, 0, 0, 0, '%s' FROM outbox_event WHERE event_id = '%s'", status, name))
				}
			}
			unsettle("a-8-2", "DEAD")
			unsettle("a-9-2", "PENDING")
			unsettle("a-10-2", "")
			set("outbox_receipt SET outcome = 'SKIPPED' WHERE event_id = 'a-11-2'")
			for _, id := range []int{8, 9, 10, 11} {
				set(fmt.Sprintf("balance SET version = 1 WHERE tenant = 'a' AND id = %d", id))
			}
			// What the consumer holds is proof, whatever time has passed.
			hold := map[reconcile.Dialect]string{
				reconcile.SQLite: "INSERT INTO held_event (consumer_group, event_id, topic, event_key, state, record, last_error) VALUES ('balances', 'b-%d-1', 'accounts', 'k%d', '%s', '', 'no such account')",
				reconcile.Postgres: `INSERT INTO held_event (consumer_group, event_id, topic, event_key, partition, position, event_type, tenant_id, aggregate_type, aggregate_id,
					state, attempts, first_error, last_error, stack, record_id, record_topic, record_key)
					VALUES ('balances', 'b-%d-1', 'accounts', 'k%d', 0, 0, '', '', '', '', '%s', 1, '', 'no such account', '', '', '', '')`,
			}[dialect]
			for i, state := range []string{"DEAD", "RETRY", "BLOCKED"} {
				exec(t, d, fmt.Sprintf(hold, 8+i, i%2, state),
					fmt.Sprintf("DELETE FROM balance WHERE tenant = 'b' AND id = %d", 8+i))
			}
			report := run(t, check, d, d)
			want := "MISSING_EVENT a/8\nMISSING_EVENT a/10\nMISSING_EVENT a/11\nMISMATCH_READ b/8\nMISMATCH_READ b/10\nIN_FLIGHT a/9\nIN_FLIGHT b/9\n"
			if got := listed(report); got != want {
				t.Errorf("got:\n%s\nwant:\n%s", report.Text(), want)
			}
			causes := map[string]reconcile.Code{}
			for _, f := range report.Findings {
				causes[f.Key] = f.Causes[0].Code
			}
			for key, code := range map[string]reconcile.Code{
				"a/8": reconcile.Dead, "a/10": reconcile.NeverQueued, "a/11": reconcile.Skipped, "a/9": reconcile.Pending,
				"b/8": reconcile.HeldDead, "b/9": reconcile.HeldRetry, "b/10": reconcile.Blocked,
			} {
				if causes[key] != code {
					t.Errorf("%s: cause %s, want %s", key, causes[key], code)
				}
			}
		})
	}
}
