package binlog

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/cdc"
	"github.com/waybillhq/waybill/cdc/mybinlog"
	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/relay/relaytest"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/mysql"
	"github.com/waybillhq/waybill/store/storetest"
	"github.com/waybillhq/waybill/test/lab"
)

const patience = 2 * time.Minute

func TestMySQL9(t *testing.T) {
	t.Parallel()
	testAll(t, start(t, "mysql9", "WAYBILL_ENV_MYSQL9_PROGRAMS="+testenv.MySQL9Programs(t)))
}

func TestMariaDB10(t *testing.T) {
	t.Parallel()
	testenv.MariaDB10(t) // installs the programs
	testAll(t, start(t, "mariadb10"))
}

func start(t *testing.T, name string, environment ...string) string {
	t.Helper()
	server := lab.NewServer(t, name, environment...)
	if err := server.Up(); err != nil {
		t.Fatal(err)
	}
	return "waybill:waybill@tcp(" + server.Address() + ")/waybill"
}

func testAll(t *testing.T, admin string) {
	t.Run("feed", func(t *testing.T) {
		relaytest.RunFeed(t, relaytest.Harness[*sql.Tx]{Follows: true, Open: func(t *testing.T) relaytest.Database[*sql.Tx] {
			o := open(t, admin)
			return relaytest.Database[*sql.Tx]{
				Store: o.store, Appender: storetest.SQLAppender(o.store), Source: o.source(t),
				Begin:    func(ctx context.Context) (*sql.Tx, error) { return o.store.DB().BeginTx(ctx, nil) },
				Commit:   func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
				Rollback: func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() },
			}
		}})
	})
	t.Run("keys are told as they are by polling", func(t *testing.T) { sameKeys(t, open(t, admin)) })
	t.Run("prepared transactions", func(t *testing.T) { prepared(t, open(t, admin)) })
	t.Run("ids that begin anew", func(t *testing.T) { idsAnew(t, open(t, admin)) })
	t.Run("log purged while away", func(t *testing.T) { purged(t, open(t, admin)) })
}

// outbox is one of a test.
type outbox struct {
	t     *testing.T
	dsn   string
	store *mysql.Store
}

func open(t *testing.T, admin string) *outbox {
	t.Helper()
	o := &outbox{t: t, dsn: lab.MySQL(t, admin)}
	var err error
	if o.store, err = mysql.Open(t.Context(), o.dsn, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.store.Close() })
	if err := o.store.Migrate(t.Context(), store.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	return o
}

func (o *outbox) source(t *testing.T) *mybinlog.Source {
	t.Helper()
	source, err := mybinlog.New(o.dsn, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = source.Close() })
	return source
}

func (o *outbox) run(statements ...string) {
	o.t.Helper()
	for _, statement := range statements {
		if _, err := o.store.DB().ExecContext(o.t.Context(), statement); err != nil {
			o.t.Fatalf("%s: %v", statement, err)
		}
	}
}

// files are those of the log.
func (o *outbox) files() (names []string) {
	o.t.Helper()
	rows, err := o.store.DB().QueryContext(o.t.Context(), "SHOW BINARY LOGS")
	if err != nil {
		o.t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	columns, _ := rows.Columns()
	for rows.Next() {
		row := make([]any, len(columns))
		for i := range row {
			row[i] = new(sql.NullString)
		}
		if err := rows.Scan(row...); err != nil {
			o.t.Fatal(err)
		}
		names = append(names, row[0].(*sql.NullString).String)
	}
	if err := rows.Err(); err != nil {
		o.t.Fatal(err)
	}
	return names
}

// insert is what any program may do.
func (o *outbox) insert(ids ...string) {
	o.t.Helper()
	o.run("INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, topic, payload) VALUES " + values(ids))
}

func values(ids []string) string {
	all := make([]string, len(ids))
	for i, id := range ids {
		all[i] = fmt.Sprintf("('%s', 'order', 'O-1', 'OrderPaid', 'orders', '{}')", id)
	}
	return strings.Join(all, ", ")
}

// working is a relay that runs.
type working struct {
	*relay.Relay
	o      *outbox
	broker *membroker.Broker
	end    func()
}

func (o *outbox) relay(mode string, broker *membroker.Broker) *working {
	o.t.Helper()
	config := &relay.Config{Mode: mode, Source: o.source(o.t), LeaseTTL: 20 * time.Second, RenewEvery: 500 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}
	made, err := relay.New(o.store, broker, config)
	if err != nil {
		o.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- made.Run(ctx) }()
	stopped := false
	w := &working{Relay: made, o: o, broker: broker, end: func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			o.t.Error(err)
		}
	}}
	o.t.Cleanup(w.end)
	return w
}

func (w *working) in(state cdc.State) {
	w.o.t.Helper()
	lab.Until(w.o.t, patience, "the relay to be "+string(state), func() bool { return w.feed().State == state })
}

func (w *working) feed() relay.FeedStatus {
	if st := w.Health().Stats.Feed; st != nil {
		return *st
	}
	return relay.FeedStatus{}
}

// sent waits until these events were sent, in this order, and no other.
func (w *working) sent(ids ...string) {
	w.o.t.Helper()
	lab.Until(w.o.t, patience, fmt.Sprintf("%d events to be sent", len(ids)), func() bool { return len(w.broker.EventIDs("orders")) >= len(ids) })
	if got := w.broker.EventIDs("orders"); strings.Join(got, " ") != strings.Join(ids, " ") {
		w.o.t.Errorf("got %v, want %v", got, ids)
	}
}

// A key that came out of a number without a sign is the same text either way.
func sameKeys(t *testing.T, o *outbox) {
	o.run("CREATE TABLE numbers (id bigint unsigned NOT NULL PRIMARY KEY, price decimal(20, 4) NOT NULL)",
		"INSERT INTO numbers VALUES (18446744073709551615, 9007199254740993.0001)")
	insert := func(id string) {
		o.run("INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, topic, payload, event_key) " +
			"SELECT '" + id + "', 'order', id, 'OrderPaid', 'orders', JSON_OBJECT('id', id, 'price', price), id FROM numbers")
	}
	broker := membroker.New("orders")
	insert("polled")
	w := o.relay(store.ModePoll, broker)
	w.sent("polled")
	w.end()
	w = o.relay(store.ModeCDC, broker)
	w.in(cdc.Streaming)
	insert("told")
	w.sent("polled", "told")
	records := broker.Records("orders")
	for _, record := range records {
		if record.Key != "18446744073709551615" {
			t.Errorf("got the key %q", record.Key)
		}
	}
	polled, told := partsOf(t, records[0]), partsOf(t, records[1])
	for _, part := range []string{"aggregateId", "data"} {
		if string(polled[part]) != string(told[part]) || len(told[part]) == 0 {
			t.Errorf("%s: told %s, polled %s", part, told[part], polled[part])
		}
	}
}

func partsOf(t *testing.T, record waybill.Record) (parts map[string]json.RawMessage) {
	t.Helper()
	if err := json.Unmarshal(record.Value, &parts); err != nil {
		t.Fatal(err)
	}
	return parts
}

// What was prepared is sent when it is committed, and not before.
func prepared(t *testing.T, o *outbox) {
	w := o.relay(store.ModeCDC, membroker.New("orders"))
	w.in(cdc.Streaming)
	for _, name := range []string{"kept", "gone"} {
		conn, err := o.store.DB().Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range []string{
			"XA START '" + name + "'",
			"INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, topic, payload) VALUES " + values([]string{name}),
			"XA END '" + name + "'", "XA PREPARE '" + name + "'",
		} {
			if _, err := conn.ExecContext(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		_ = conn.Close()
	}
	o.insert("other")
	w.sent("other")
	o.run("XA ROLLBACK 'gone'", "XA COMMIT 'kept'")
	w.sent("other", "kept")
}

// After a TRUNCATE that lets ids begin anew, each new event is sent.
func idsAnew(t *testing.T, o *outbox) {
	w := o.relay(store.ModeCDC, membroker.New("orders"))
	w.in(cdc.Streaming)
	o.insert("a1", "a2")
	w.sent("a1", "a2")
	lab.Until(t, patience, "what was sent to be settled", func() bool {
		counts, err := o.store.Counts(t.Context())
		return err == nil && counts.Pending == 0
	})
	o.run("TRUNCATE TABLE outbox_event")
	o.insert("b1", "b2", "b3")
	w.sent("a1", "a2", "b1", "b2", "b3")
	lab.Until(t, patience, "the truncation to be counted", func() bool { return w.feed().Truncates == 1 })
}

// A relay that was away while the log was purged says so, and sends all from the
// queue.
func purged(t *testing.T, o *outbox) {
	broker := membroker.New("orders")
	w := o.relay(store.ModeCDC, broker)
	w.in(cdc.Streaming)
	o.insert("before")
	w.sent("before")
	w.end()
	o.insert("away")
	o.run("FLUSH BINARY LOGS")
	// A reader that has just gone still keeps the file that it read.
	lab.Until(t, patience, "the log to be purged", func() bool {
		files := o.files()
		o.run("PURGE BINARY LOGS TO '" + files[len(files)-1] + "'")
		return len(files) == 1
	})
	w = o.relay(store.ModeCDC, broker)
	w.sent("before", "away")
	w.in(cdc.Streaming)
	if st := w.feed(); st.Losses != 1 || st.LastLoss != cdc.BinlogPurged {
		t.Errorf("got %d losses, the last %q, want one, %s", st.Losses, st.LastLoss, cdc.BinlogPurged)
	}
	o.insert("after")
	w.sent("before", "away", "after")
}
