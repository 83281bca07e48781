package follow

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/cdc"
	"github.com/waybillhq/waybill/cdc/pgwal"
	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/relay/relaytest"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/postgres"
	"github.com/waybillhq/waybill/test/lab"
)

const patience = 2 * time.Minute

func TestPostgres15(t *testing.T) {
	t.Parallel()
	testAll(t, testenv.Postgres15(t))
}

func TestPostgres18(t *testing.T) {
	t.Parallel()
	testAll(t, testenv.Postgres18(t))
}

func testAll(t *testing.T, admin string) {
	t.Run("feed", func(t *testing.T) {
		relaytest.RunFeed(t, relaytest.Harness[pgx.Tx]{Follows: true, Open: func(t *testing.T) relaytest.Database[pgx.Tx] {
			b := open(t, admin)
			return relaytest.Database[pgx.Tx]{
				Store: b.store, Appender: b.store, Source: b.source,
				Begin:    b.pool.Begin,
				Commit:   func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
				Rollback: func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
			}
		}})
	})
	t.Run("ids that begin anew", func(t *testing.T) { idsAnew(t, open(t, admin)) })
	t.Run("ids that begin anew before all is settled", func(t *testing.T) { settledLate(t, open(t, admin)) })
	t.Run("slot dropped while away", func(t *testing.T) { slotDropped(t, open(t, admin)) })
	t.Run("connection cut and slot dropped under load", func(t *testing.T) { logTorn(t, open(t, admin)) })
	t.Run("broker away", func(t *testing.T) { brokerAway(t, open(t, admin)) })
	t.Run("key of a number without a sign", func(t *testing.T) { sameKeys(t, open(t, admin)) })
}

// base is a database with an outbox.
type base struct {
	t      *testing.T
	pool   *pgxpool.Pool
	store  *postgres.Store
	source *pgwal.Source
	broker *membroker.Broker
}

var databases atomic.Int64

func open(t *testing.T, admin string) *base {
	t.Helper()
	b := &base{t: t, broker: membroker.New("orders")}
	name := fmt.Sprintf("waybill_follow_%d_%d", os.Getpid(), databases.Add(1))
	execute(t, admin, "CREATE DATABASE "+name)
	t.Cleanup(func() { execute(t, admin, "DROP DATABASE "+name+" WITH (FORCE)") })
	own, err := url.Parse(admin)
	if err != nil {
		t.Fatal(err)
	}
	own.Path = "/" + name
	if b.pool, err = pgxpool.New(t.Context(), own.String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.pool.Close)
	if b.store, err = postgres.New(b.pool, nil); err != nil {
		t.Fatal(err)
	}
	if err := b.store.Migrate(t.Context(), store.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	if b.source, err = pgwal.New(own.String(), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		lab.Until(t, patience, "the slot to be free", func() bool { return b.source.Drop(context.Background()) == nil })
		_ = b.source.Close()
	})
	return b
}

func execute(t *testing.T, dsn, statement string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, statement); err != nil {
		t.Errorf("%s: %v", statement, err)
	}
}

func (b *base) run(statement string) {
	b.t.Helper()
	if _, err := b.pool.Exec(b.t.Context(), statement); err != nil {
		b.t.Fatalf("%s: %v", statement, err)
	}
}

func (b *base) append(ids ...string) {
	b.t.Helper()
	writer := outbox.NewWriter(b.store, nil)
	err := pgx.BeginFunc(b.t.Context(), b.pool, func(tx pgx.Tx) error {
		for _, id := range ids {
			event := waybill.Event{ID: id, Type: "OrderChanged", Topic: "orders", AggregateType: "order", AggregateID: "k"}
			if err := writer.Append(b.t.Context(), tx, event); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// start runs a relay until the returned function is called.
func (b *base) start() (*relay.Relay, func()) {
	b.t.Helper()
	return b.startOn(b.store)
}

func (b *base) startOn(st relay.Store) (*relay.Relay, func()) {
	b.t.Helper()
	r, err := relay.New(st, b.broker.Connect(), &relay.Config{
		Source: b.source, Mode: store.ModeCDC, Heartbeat: time.Second, LeaseTTL: 20 * time.Second, RenewEvery: 200 * time.Millisecond, SweepEvery: time.Hour,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.t.Context()))
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stopped := false
	stop := func() {
		if !stopped {
			stopped = true
			cancel()
			if err := <-done; err != nil {
				b.t.Error(err)
			}
		}
	}
	b.t.Cleanup(stop)
	return r, stop
}

func (b *base) feed(r *relay.Relay, what string, ok func(*relay.FeedStatus) bool) {
	b.t.Helper()
	lab.Until(b.t, patience, what, func() bool { st := r.Health().Stats.Feed; return st != nil && ok(st) })
}

func streams(st *relay.FeedStatus) bool { return st.State == cdc.Streaming }

func (b *base) sent(want ...string) {
	b.t.Helper()
	lab.Until(b.t, patience, fmt.Sprint(want, " to be sent"), func() bool { return len(b.broker.EventIDs("orders")) >= len(want) })
	if got := b.broker.EventIDs("orders"); fmt.Sprint(got) != fmt.Sprint(want) {
		b.t.Errorf("sent %v, want %v", got, want)
	}
}

func (b *base) settled() {
	b.t.Helper()
	lab.Until(b.t, patience, "what was sent to be settled", func() bool {
		counts, err := b.store.Counts(b.t.Context())
		return err == nil && counts.Pending == 0
	})
}

// After a TRUNCATE, with and without a reset of ids, each new event is sent, and
// the queue rows that are left over are shown.
func idsAnew(t *testing.T, b *base) {
	r, _ := b.start()
	b.feed(r, "the log", streams)
	b.append("a", "b")
	b.sent("a", "b")
	b.settled()
	b.run("TRUNCATE outbox_event RESTART IDENTITY")
	b.append("c")
	b.sent("a", "b", "c")
	b.settled()
	b.feed(r, "a count", func(st *relay.FeedStatus) bool { return st.Truncates == 1 && streams(st) })
	b.run("TRUNCATE outbox_event")
	b.append("d")
	b.sent("a", "b", "c", "d")
	b.feed(r, "another", func(st *relay.FeedStatus) bool { return st.Truncates == 2 && streams(st) })
}

// An event is settled when another one has its id already. That one is sent, too.
func settledLate(t *testing.T, b *base) {
	late := &lateStore{Store: b.store, settles: make(chan struct{})}
	r, _ := b.startOn(late)
	b.feed(r, "the log", streams)
	b.append("a")
	lab.Until(t, patience, "a settling that waits", late.waits.Load)
	b.run("TRUNCATE outbox_event RESTART IDENTITY")
	b.append("b")
	b.feed(r, "a count", func(st *relay.FeedStatus) bool { return st.Truncates == 1 && streams(st) })
	close(late.settles)
	b.sent("a", "b")
}

// lateStore settles nothing before it is told to.
type lateStore struct {
	*postgres.Store
	waits   atomic.Bool
	settles chan struct{}
}

func (s *lateStore) Apply(ctx context.Context, guard store.Guard, changes store.Changes) error {
	if len(changes.Settled) > 0 {
		s.waits.Store(true)
		select {
		case <-s.settles:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.Store.Apply(ctx, guard, changes)
}

// The slot is dropped while no relay runs: the next one says so, and sends all
// from the queue.
func slotDropped(t *testing.T, b *base) {
	r, stop := b.start()
	b.feed(r, "the log", streams)
	b.append("a")
	b.sent("a")
	b.feed(r, "a position", func(st *relay.FeedStatus) bool { return st.Position != "" })
	stop()
	if saved, err := b.store.ListPositions(t.Context()); err != nil || len(saved) != 1 || saved[0].Source != b.source.Name() {
		t.Fatalf("saved %+v, %v, want a position of %s", saved, err, b.source.Name())
	}
	lab.Until(t, patience, "the slot to be free", func() bool { return b.source.Drop(t.Context()) == nil })
	b.append("b", "c")
	r, _ = b.start()
	b.sent("a", "b", "c")
	b.feed(r, "the loss", func(st *relay.FeedStatus) bool {
		return st.Losses == 1 && st.LastLoss == cdc.LostSlot && streams(st)
	})
	b.append("d")
	b.sent("a", "b", "c", "d")
}

// A key that came out of a number, larger than any id, is the same text whether its
// event is found in the queue or told by the log.
func sameKeys(t *testing.T, b *base) {
	b.run("CREATE TABLE numbers (id numeric(20) PRIMARY KEY CHECK (id >= 0), price numeric(20, 4) NOT NULL)")
	b.run("INSERT INTO numbers VALUES (18446744073709551615, 9007199254740993.0001)")
	insert := func(id string) {
		b.run("INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, topic, payload, event_key) " +
			"SELECT '" + id + "', 'order', id, 'OrderPaid', 'orders', convert_to(to_jsonb(numbers)::text, 'UTF8'), id FROM numbers")
	}
	insert("polled")
	r, _ := b.start()
	b.sent("polled")
	b.feed(r, "the log", streams)
	before := r.Health().Stats.Feed.Told
	insert("told")
	b.sent("polled", "told")
	b.feed(r, "the id of the second event", func(st *relay.FeedStatus) bool { return st.Told > before })
	records := b.broker.Records("orders")
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
	if want := `{"id": 18446744073709551615, "price": 9007199254740993.0001}`; string(told["data"]) != want {
		t.Errorf("got the data %s, want %s", told["data"], want)
	}
}

func partsOf(t *testing.T, record waybill.Record) (parts map[string]json.RawMessage) {
	t.Helper()
	if err := json.Unmarshal(record.Value, &parts); err != nil {
		t.Fatal(err)
	}
	return parts
}
