package accounts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/reconcile"
	"github.com/waybillhq/waybill/store"
)

// ledgers are dialects whose one database has both the log of changes and the
// balances made of them.
var ledgers = []reconcile.Dialect{reconcile.SQLite, reconcile.Postgres, reconcile.MySQL, reconcile.MariaDB}

// account is a consumer of changes: its handler is what the live one runs, too.
type account struct {
	t *testing.T
	d reconcile.Database
}

func newAccount(t *testing.T, dialect reconcile.Dialect) *account {
	d := outboxOn(t, dialect)
	exec(t, d,
		"CREATE TABLE change_log (event_id {text} NOT NULL PRIMARY KEY, account {text} NOT NULL, version INTEGER NOT NULL, kind {text} NOT NULL, state {text} NOT NULL, body {text} NOT NULL, at {time} NOT NULL)",
		"CREATE TABLE balance (account {text} NOT NULL PRIMARY KEY, balance INTEGER NOT NULL, version INTEGER NOT NULL, remark {text}, updated_at {time})",
		"CREATE TABLE aside (note {text})")
	return &account{t, d}
}

func (a *account) check() *reconcile.Check {
	return &reconcile.Check{
		Name: "balances", Key: []reconcile.KeyPart{{Name: "account"}}, Events: "delta",
		Log: &reconcile.Log{
			Table: reconcile.Table{Database: "write", Table: "change_log", Version: "version", EventID: "event_id"},
			State: "state", CreatedAt: "at", Type: "kind", Deletes: []string{"closed"}, Payload: "body",
		},
		Read:     &reconcile.Table{Database: "read", Table: "balance", Version: "version", UpdatedAt: "updated_at"},
		Consumer: &reconcile.Consumer{Database: "read", Group: "balances"},
		Confirm:  []time.Duration{0}, ChunkRows: 3,
	}
}

// change logs a change; applied ones are in the consumer's books.
func (a *account) change(name string, version, amount int, kind string, applied bool) {
	id := fmt.Sprintf("%s-%d", name, version)
	exec(a.t, a.d, fmt.Sprintf("INSERT INTO change_log VALUES ('%s', '%s', %d, '%s', 'SENT', '{\"amount\": %d}', '2026-01-01 00:00:00')", id, name, version, kind, amount))
	if applied {
		a.consumed(id, "APPLIED")
	}
}

func (a *account) consumed(id, outcome string) {
	exec(a.t, a.d, fmt.Sprintf("INSERT INTO consumed_event (consumer_group, event_id, event_type, tenant_id, aggregate_type, aggregate_id, outcome, topic, {q}partition{q}, position) VALUES ('balances', '%s', '', '', '', '', '%s', 'accounts', 0, 0)", id, outcome))
}

// handle adds a change to the balance, as a consumer's handler does.
func (a *account) handle(ctx context.Context, tx store.SQLTx, e waybill.Event) error {
	var body struct{ Amount int }
	if err := json.Unmarshal(e.Data, &body); err != nil {
		return err
	}
	if body.Amount == 13 {
		return errors.New("thirteen")
	}
	q := func(text string) string {
		if a.d.Dialect != reconcile.Postgres {
			return text
		}
		for i := 1; strings.Contains(text, "?"); i++ {
			text = strings.Replace(text, "?", fmt.Sprintf("$%d", i), 1)
		}
		return text
	}
	if _, err := tx.ExecContext(ctx, q("INSERT INTO aside VALUES (?)"), e.ID); err != nil {
		return err
	}
	if e.Type == "closed" {
		_, err := tx.ExecContext(ctx, q("DELETE FROM balance WHERE account = ?"), e.AggregateID)
		return err
	}
	upsert := "INSERT INTO balance (account, balance, version, remark) VALUES (?, ?, ?, ?) ON CONFLICT (account) DO UPDATE SET balance = balance.balance + excluded.balance, version = excluded.version"
	if a.d.Dialect == reconcile.MySQL || a.d.Dialect == reconcile.MariaDB {
		upsert = "INSERT INTO balance (account, balance, version, remark) VALUES (?, ?, ?, ?) ON DUPLICATE KEY UPDATE balance = balance + VALUES(balance), version = VALUES(version)"
	}
	_, err := tx.ExecContext(ctx, q(upsert), e.AggregateID, body.Amount, e.AggregateVersion, "it's é")
	return err
}

func (a *account) balances() string {
	a.t.Helper()
	rows, err := a.d.DB.QueryContext(a.t.Context(), "SELECT account, balance, version, remark FROM balance ORDER BY account")
	if err != nil {
		a.t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var b strings.Builder
	for rows.Next() {
		var name, remark string
		var balance, version int
		if err := rows.Scan(&name, &balance, &version, &remark); err != nil {
			a.t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s=%d v%d %s\n", name, balance, version, remark)
	}
	if err := rows.Err(); err != nil {
		a.t.Fatal(err)
	}
	return b.String()
}

func TestChangesAreFoldedByTheConsumersHandler(t *testing.T) {
	for _, dialect := range ledgers {
		t.Run(string(dialect), func(t *testing.T) {
			a := newAccount(t, dialect)
			for _, name := range []string{"absent", "ahead", "behind", "extra", "gap", "held", "right", "wrong"} {
				for v := 1; v <= 3; v++ {
					a.change(name, v, 10*v, "changed", true)
				}
				row := fmt.Sprintf("INSERT INTO balance VALUES ('%s', 60, 3, 'it''s é', '2026-01-01 00:00:00')", name)
				switch name {
				case "absent":
					row = "SELECT 1"
				case "wrong":
					row = "INSERT INTO balance VALUES ('wrong', 61, 3, 'hello', NULL)"
				case "behind":
					row = "INSERT INTO balance VALUES ('behind', 30, 2, '', NULL)"
				case "ahead":
					row = "INSERT INTO balance VALUES ('ahead', 60, 4, 'it''s é', NULL)"
				}
				exec(t, a.d, row)
			}
			exec(t, a.d, "DELETE FROM change_log WHERE account = 'extra'", "DELETE FROM change_log WHERE event_id = 'gap-2'")
			// The consumer has not had the last event of one, and has skipped one of another.
			exec(t, a.d, "DELETE FROM consumed_event WHERE event_id = 'held-3'", "UPDATE balance SET balance = 31, version = 2 WHERE account = 'held'")
			for v := 1; v <= 3; v++ {
				a.change("skipped", v, 10, "changed", v != 2)
			}
			a.consumed("skipped-2", "SKIPPED")
			exec(t, a.d, "INSERT INTO balance VALUES ('skipped', 30, 3, 'it''s é', NULL)")
			a.change("refusing", 1, 13, "changed", true)
			exec(t, a.d, "INSERT INTO balance VALUES ('refusing', 5, 1, '', NULL)")
			a.change("shut", 1, 10, "changed", true)
			a.change("shut", 2, 0, "closed", true)
			exec(t, a.d, "INSERT INTO balance VALUES ('shut', 10, 1, '', NULL)")

			rebuild := func(config reconcile.RebuildConfig) *reconcile.Rebuilt {
				t.Helper()
				config.Fold = a.handle
				rebuilt, err := engine(t, a.check(), a.d, a.d).Rebuild(t.Context(), &config)
				if err != nil {
					t.Fatal(err)
				}
				return rebuilt
			}
			before := a.balances()
			dry := rebuild(reconcile.RebuildConfig{DryRun: true})
			if a.balances() != before {
				t.Errorf("a dry run has changed it to\n%s", a.balances())
			}
			rebuilt := rebuild(reconcile.RebuildConfig{})
			const want = "absent=60 v3 it's é\nahead=60 v4 it's é\nbehind=60 v3 it's é\nextra=60 v3 it's é\ngap=60 v3 it's é\nheld=30 v2 it's é\n" +
				"refusing=5 v1 \nright=60 v3 it's é\nskipped=20 v3 it's é\nwrong=60 v3 it's é\n"
			if got := a.balances(); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			if rebuilt.Written != 5 || rebuilt.Removed != 1 || rebuilt.Unchanged != 1 || dry.Written != 5 || dry.Removed != 1 {
				t.Errorf("rebuilt %+v, dry %+v", rebuilt, dry)
			}
			reasons := ""
			for _, r := range rebuilt.Refused {
				reasons += r.Key + ": " + r.Reason + "\n"
			}
			if reasons != "ahead: the log ends at v3, the read model is at v4\nextra: the log has no event of it\ngap: the log lacks v2\nrefusing: the handler refuses v1 (refusing-1): thirteen\n" {
				t.Errorf("refused:\n%s", reasons)
			}
			// What the handler wrote elsewhere is undone, and once more changes nothing.
			var aside int
			if err := a.d.DB.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM aside").Scan(&aside); err != nil || aside != 0 {
				t.Errorf("%d notes were left by rehearsals, %v", aside, err)
			}
			if again := rebuild(reconcile.RebuildConfig{}); again.Written+again.Removed != 0 || again.Unchanged != 6 {
				t.Errorf("a second rebuild: %+v", again)
			}
			exec(t, a.d, "UPDATE balance SET balance = 0 WHERE account IN ('right', 'wrong')")
			if one := rebuild(reconcile.RebuildConfig{Keys: [][]string{{"right"}}}); one.Written != 1 || !strings.Contains(a.balances(), "wrong=0 ") {
				t.Errorf("one key: %+v\n%s", one, a.balances())
			}
		})
	}
}

// A live consumer and a fold of the same keys: no change is lost or made twice.
func TestAFoldAndALiveConsumerDoNotDisturbEachOther(t *testing.T) {
	for _, dialect := range ledgers {
		t.Run(string(dialect), func(t *testing.T) {
			a := newAccount(t, dialect)
			const keys, versions = 4, 12
			sum := 0
			for k := range keys {
				for v := 1; v <= versions; v++ {
					a.change(fmt.Sprintf("k%d", k), v, v, "changed", false)
				}
			}
			for v := 1; v <= versions; v++ {
				sum += v
			}
			consume := func(ctx context.Context, name string, version int) error {
				conn, err := a.d.DB.Conn(ctx)
				if err != nil {
					return err
				}
				defer func() { _ = conn.Close() }()
				begin := "BEGIN"
				if dialect == reconcile.SQLite {
					begin = "BEGIN IMMEDIATE"
				}
				id := fmt.Sprintf("%s-%d", name, version)
				e := waybill.Event{ID: id, Type: "changed", AggregateID: name, AggregateVersion: int64(version), Data: fmt.Appendf(nil, `{"amount": %d}`, version)}
				mark := types[dialect].Replace(fmt.Sprintf("INSERT INTO consumed_event (consumer_group, event_id, event_type, tenant_id, aggregate_type, aggregate_id, outcome, topic, {q}partition{q}, position) VALUES ('balances', '%s', '', '', '', '', 'APPLIED', 'accounts', 0, 0)", id))
				for _, statement := range []string{begin, mark, "", "COMMIT"} {
					if statement == "" {
						err = a.handle(ctx, conn, e)
					} else {
						_, err = conn.ExecContext(ctx, statement)
					}
					if err != nil {
						_, _ = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
						return err
					}
				}
				return nil
			}
			done := make(chan error, 1)
			go func() {
				for v := 1; v <= versions; v++ {
					for k := range keys {
						var err error
						for range 20 { // a deadlock or a double insert is tried again, as an inbox does
							if err = consume(context.Background(), fmt.Sprintf("k%d", k), v); err == nil {
								break
							}
						}
						if err != nil {
							done <- err
							return
						}
					}
				}
				done <- nil
			}()
			var failed error
			for running := true; running; {
				select {
				case failed = <-done:
					running = false
				default:
					if _, err := engine(t, a.check(), a.d, a.d).Rebuild(t.Context(), &reconcile.RebuildConfig{Fold: a.handle}); err != nil {
						t.Errorf("rebuild: %v", err)
						failed, running = <-done, false
					}
				}
			}
			if failed != nil {
				t.Fatalf("consumer: %v", failed)
			}
			want := ""
			for k := range keys {
				want += fmt.Sprintf("k%d=%d v%d it's é\n", k, sum, versions)
			}
			if got := a.balances(); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}
