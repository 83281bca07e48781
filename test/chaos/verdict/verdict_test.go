package verdict

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/sqlite"
	"github.com/waybillhq/waybill/test/lab"
)

const topic = "orders"

var groups = []string{"stock", "points"}

// run has a producer, a relay and two groups work in peace, and returns the file
// of their database and the rest of what was seen.
func run(t *testing.T) (file string, seen *Seen) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "run.db")
	st, err := sqlite.Open(t.Context(), file, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	if err := st.Migrate(t.Context(), store.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	const serial = "INTEGER PRIMARY KEY AUTOINCREMENT"
	for _, table := range append(ShopTables(serial), BackTables(serial)...) {
		execute(t, st.DB(), table)
	}
	seen = &Seen{Groups: groups, History: produce(t, st)}
	b := membroker.New(topic)
	b.MaxRecordBytes(4 << 10)
	relayAndConsume(t, st, b)
	for _, d := range b.Deliveries(topic) {
		id, _ := d.Record.Header("id")
		seen.Records = append(seen.Records, RecordOf(topic, d.Partition, d.Position, d.Timestamp, d.Record.Key, d.Record.Value, string(id)))
	}
	execute(t, st.DB(), `INSERT INTO chaos_owner (owner, who) VALUES ('x1', 'relay-1'), ('x2', 'relay-2')`)
	execute(t, st.DB(), `INSERT INTO chaos_write (event_row, who, owner, status, retries, last_error, gone) VALUES (1, 'relay-1', 'x1', 'PENDING', 0, '', 1)`)
	return file, seen
}

func execute(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// produce changes three accounts four times, always two of them in one
// transaction, one account with an event that consumers refuse and one with an
// event that the broker refuses. One transaction is rolled back, one has no
// answer.
func produce(t *testing.T, st *sqlite.Store) (history []Entry) {
	t.Helper()
	writer := outbox.NewWriter(st, nil)
	accounts := []string{"a", "b", "poison", "large"}
	for _, account := range accounts {
		execute(t, st.DB(), `INSERT INTO account (id) VALUES ('`+account+`')`)
		for _, group := range groups {
			execute(t, st.DB(), `INSERT INTO model (consumer_group, of_key) VALUES ('`+group+`', '`+account+`')`)
		}
	}
	for round := range 5 {
		for pair := range 2 {
			e := Entry{Tx: fmt.Sprintf("t%d/%d", round, pair), At: time.Now().UnixMicro(), State: Committing}
			leaves := round == 2 && pair == 0
			if leaves {
				e.State = Leaving
			}
			tx, err := st.DB().BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, account := range accounts[2*pair : 2*pair+2] {
				e.Events = append(e.Events, change(t, tx, writer, account, e.Tx))
			}
			history = append(history, e)
			if leaves {
				err = tx.Rollback()
				history = append(history, Entry{Tx: e.Tx, State: RolledBack})
			} else {
				err = tx.Commit()
				if round < 4 {
					history = append(history, Entry{Tx: e.Tx, State: OK})
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return history
}

func change(t *testing.T, tx *sql.Tx, writer *outbox.Writer[store.SQLTx], account, transaction string) Intent {
	t.Helper()
	intent := Intent{ID: account + "-" + transaction, Key: account, Type: "AccountChanged", Amount: int64(len(transaction) + len(account))}
	if err := tx.QueryRow(`UPDATE account SET version = version + 1, amount = amount + ? WHERE id = ? RETURNING version`, intent.Amount, account).Scan(&intent.Version); err != nil {
		t.Fatal(err)
	}
	padding := 1
	if intent.Version == 3 {
		switch account {
		case "poison":
			intent.Type = Poison
		case "large":
			intent.Type, padding = TooLarge, 8<<10
		}
	}
	data, err := json.Marshal(map[string]any{"amount": intent.Amount, "padding": strings.Repeat("x", padding)})
	if err != nil {
		t.Fatal(err)
	}
	intent.Sum = Sum(data)
	if err := writer.Append(t.Context(), tx, waybill.Event{
		ID: intent.ID, Type: intent.Type, Topic: topic, AggregateType: "account", AggregateID: account, AggregateVersion: intent.Version, Data: data,
	}); err != nil {
		t.Fatal(err)
	}
	return intent
}

func relayAndConsume(t *testing.T, st *sqlite.Store, b *membroker.Broker) {
	t.Helper()
	r, err := relay.New(st, b, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Errorf("relay: %v", err)
		}
	})
	for _, group := range groups {
		p, err := inbox.New(st, b.Connect(), func(ctx context.Context, tx *sql.Tx, e waybill.Event) error {
			if e.Type == Poison {
				return errors.New(PoisonError(e.ID))
			}
			if _, err := tx.ExecContext(ctx, `INSERT INTO effect (consumer_group, event_id, of_key, version) VALUES (?, ?, ?, ?)`,
				group, e.ID, e.Key, e.AggregateVersion); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, `UPDATE model SET version = ?, events = events + 1, total = total + ? WHERE consumer_group = ? AND of_key = ?`,
				e.AggregateVersion, amountOf(e.Data), group, e.Key)
			return err
		}, &inbox.Config{Group: group, Topics: []string{topic}, Schedule: []time.Duration{time.Millisecond}, PollWait: 10 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			if err := p.Run(ctx); err != nil {
				t.Errorf("group %s: %v", group, err)
			}
		})
	}
	count := func(query string) (n int) {
		if err := st.DB().QueryRowContext(t.Context(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	// Of 18 events two wait behind the one that is too large, and in each group two
	// behind the poison.
	lab.Until(t, time.Minute, "rest", func() bool {
		return count(`SELECT COUNT(*) FROM outbox_receipt`) == 15 && count(`SELECT COUNT(*) FROM outbox_pending WHERE status = 'DEAD'`) == 1 &&
			count(`SELECT COUNT(*) FROM consumed_event`) == 24 && count(`SELECT COUNT(*) FROM held_event WHERE state = 'DEAD'`) == 2 &&
			count(`SELECT COUNT(*) FROM held_event`) == 6
	})
	stop()
	all.Wait()
}

// look reads a copy of the database after a change.
func look(t *testing.T, file string, seen *Seen, statements string) *Seen {
	t.Helper()
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if statements != "" {
		changed := filepath.Join(t.TempDir(), "changed.db")
		execute(t, db, `VACUUM INTO '`+changed+`'`)
		copied, err := sql.Open("sqlite", changed)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = copied.Close() }()
		execute(t, copied, statements)
		db = copied
	}
	again := *seen
	if again.Shop, err = ReadShop(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if again.Back, err = ReadBack(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	return &again
}
