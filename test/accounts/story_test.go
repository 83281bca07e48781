package accounts

import (
	"fmt"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/reconcile"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/mysql"
)

// outboxOn makes a database with the tables of this module.
func outboxOn(t *testing.T, dialect reconcile.Dialect) reconcile.Database {
	return outboxWith(t, dialect, store.MigrateOptions{})
}

func outboxWith(t *testing.T, dialect reconcile.Dialect, options store.MigrateOptions) reconcile.Database {
	t.Helper()
	if dialect == reconcile.SQLite || dialect == reconcile.Postgres {
		return outboxes[dialect](t, options)
	}
	d := open(t, dialect)
	server := testenv.MySQL9
	if dialect == reconcile.MariaDB {
		server = testenv.MariaDB10
	}
	settings, err := driver.ParseDSN(server(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.DB.QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&settings.DBName); err != nil {
		t.Fatal(err)
	}
	st, err := mysql.Open(t.Context(), settings.FormatDSN(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	if err := st.Migrate(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	return d
}

// The outbox and the inbox know more of an event than the log's columns say.
func TestAStoryHasWhatTheOutboxAndTheConsumerWroteDown(t *testing.T) {
	for _, dialect := range []reconcile.Dialect{reconcile.SQLite, reconcile.Postgres, reconcile.MySQL, reconcile.MariaDB} {
		t.Run(string(dialect), func(t *testing.T) {
			d := outboxOn(t, dialect)
			exec(t, d,
				"CREATE TABLE account (id {text} NOT NULL PRIMARY KEY, version INTEGER NOT NULL, updated_at {time})",
				"CREATE TABLE balance (id {text} NOT NULL PRIMARY KEY, version INTEGER NOT NULL)",
				"INSERT INTO account VALUES ('A', 3, '2026-01-03 00:00:00')", "INSERT INTO balance VALUES ('A', 1)")
			empty := "''"
			for v := 1; v <= 3; v++ {
				exec(t, d, fmt.Sprintf("INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, aggregate_version, event_type, topic, payload, created_at) VALUES ('A-%d', 'account', 'A', %d, 'changed', 'accounts', %s, '2026-01-0%d 00:00:00')",
					v, v, empty, v))
			}
			for v := 1; v <= 2; v++ {
				exec(t, d,
					fmt.Sprintf("INSERT INTO outbox_receipt (id, event_id, outcome, via, published_at, published_to, note) SELECT id, event_id, 'SENT', 'poll', '2026-01-0%d 00:00:01', 'accounts/3@17', '' FROM outbox_event WHERE event_id = 'A-%d'", v, v),
					fmt.Sprintf("DELETE FROM outbox_pending WHERE id = (SELECT id FROM outbox_event WHERE event_id = 'A-%d')", v))
			}
			exec(t, d, "UPDATE outbox_pending SET status = 'DEAD', retry_count = 12, last_error = 'too large', updated_at = '2026-01-04 00:00:00'")
			consumed := "INSERT INTO consumed_event (consumer_group, event_id, event_type, tenant_id, aggregate_type, aggregate_id, outcome, topic, {q}partition{q}, position, consumed_at, duplicates, last_duplicate_at) VALUES ('balances', 'A-1', '', '', '', '', 'APPLIED', 'accounts', 3, 16, '2026-01-01 00:00:02', 2, '2026-01-01 00:00:03')"
			held := map[reconcile.Dialect]string{
				reconcile.SQLite: "INSERT INTO held_event (consumer_group, event_id, topic, event_key, state, attempts, record, last_error, held_at) VALUES ('balances', 'A-2', 'accounts', 'A', 'DEAD', 5, '', 'no such account', '2026-01-02 00:00:02')",
			}[dialect]
			if held == "" {
				held = `INSERT INTO held_event (consumer_group, event_id, topic, event_key, {q}partition{q}, position, event_type, tenant_id, aggregate_type, aggregate_id,
					state, attempts, first_error, last_error, stack, record_id, record_topic, record_key, held_at)
					VALUES ('balances', 'A-2', 'accounts', 'A', 0, 0, '', '', '', '', 'DEAD', 5, '', 'no such account', '', '', '', '', '2026-01-02 00:00:02')`
			}
			exec(t, d, consumed, held)
			check := &reconcile.Check{
				Name: "accounts", Key: []reconcile.KeyPart{{Name: "id"}},
				Write:    &reconcile.Table{Database: "write", Table: "account", Version: "version", UpdatedAt: "updated_at"},
				Log:      &reconcile.Log{Table: reconcile.Table{Database: "write", Key: []string{"aggregate_id"}}, Outbox: &reconcile.Outbox{AggregateType: "account"}},
				Read:     &reconcile.Table{Database: "write", Table: "balance", Version: "version"},
				Consumer: &reconcile.Consumer{Database: "write", Group: "balances"},
				Confirm:  []time.Duration{0},
			}
			story, err := engine(t, check, d, d).Explain(t.Context(), []string{"A"})
			if err != nil {
				t.Fatal(err)
			}
			text := story.Text()
			at := 0
			for _, want := range []string{
				"2026-01-01T00:00:00Z  log         v1 SENT A-1",
				"2026-01-01T00:00:01Z  outbox      A-1 SENT by poll to accounts/3@17",
				"2026-01-01T00:00:02Z  consumer    A-1 APPLIED; 2 duplicates, the last 2026-01-01T00:00:03Z",
				"2026-01-02T00:00:00Z  log         v2 SENT A-2",
				"2026-01-02T00:00:01Z  outbox      A-2 SENT by poll to accounts/3@17",
				"2026-01-02T00:00:02Z  consumer    A-2 held as DEAD after 5 attempts: no such account",
				"2026-01-03T00:00:00Z  row         v3",
				"2026-01-03T00:00:00Z  log         v3 DEAD A-3",
				"2026-01-04T00:00:00Z  outbox      A-3 given up after 12 attempts: too large",
				"read model  v1",
				"= write side  MISSING_EVENT: A-3 v3 is dead",
				"waybill dead list",
				"= read side  MISMATCH_READ: the consumer holds A-2 as dead: no such account",
				"waybill held list",
			} {
				next := strings.Index(text[at:], want)
				if next < 0 {
					t.Fatalf("not there, or not in its place: %s\n%s", want, text)
				}
				at += next
			}
		})
	}
}
