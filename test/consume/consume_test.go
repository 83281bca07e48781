package consume

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/kafka"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/broker/natsjs"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/store"
)

const (
	topic    = "orders"
	keys     = 12
	versions = 12
	patience = 2 * time.Minute
)

var errBoom = errors.New("boom")

func TestConsumersOverSQLite(t *testing.T) {
	chaos(t, sqliteBench)
	cases(t, sqliteBench)
	overKafka(t, sqliteBench)
}

func TestConsumersOverPostgres(t *testing.T) {
	chaos(t, postgresBench)
	cases(t, postgresBench)
	overKafka(t, postgresBench)
}

func TestConsumersOverMySQL(t *testing.T) {
	open := func(t *testing.T) bench[*sql.Tx] { return mysqlBench(t, testenv.MySQL9(t)) }
	chaos(t, open)
	cases(t, open)
	overKafka(t, open)
}

func TestConsumersOverMariaDB(t *testing.T) {
	open := func(t *testing.T) bench[*sql.Tx] { return mysqlBench(t, testenv.MariaDB10(t)) }
	chaos(t, open)
	cases(t, open)
	overKafka(t, open)
}

// chaos has consumers work through failures of every kind.
func chaos[TX any](t *testing.T, open func(t *testing.T) bench[TX]) {
	t.Run("broker that shares partitions", func(t *testing.T) {
		m := membroker.New()
		consume(t, open(t), "shared", m, m, func() { m.ExpireSessions("shared") })
	})
	t.Run("partitions by lease", func(t *testing.T) {
		server, err := natsjs.StartEmbedded(t.Context(), &natsjs.EmbeddedConfig{StoreDir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		n, err := natsjs.Open(t.Context(), server.ClientURL(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		consume(t, open(t), "leased", n, n, func() {})
	})
}

// overKafka is chaos over the broker that most use: one is enough for the side
// of the broker, but each database has ways of its own to die.
func overKafka[TX any](t *testing.T, open func(t *testing.T) bench[TX]) {
	t.Run("Kafka", func(t *testing.T) {
		t.Parallel()
		k, err := kafka.Open(t.Context(), &kafka.Config{Brokers: []string{testenv.Kafka4(t)}, Replicas: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = k.Close() }()
		name := "consume-" + waybill.NewID()
		consumeTopic(t, open(t), name, name, k, k, func() {})
	})
}

type server interface {
	broker.TopicAdmin
	broker.Publisher
}

// consume has two consumers work through all events, of which some fail in one
// of several ways, while a third comes and goes.
func consume[TX any](t *testing.T, b bench[TX], group string, admin server, sub broker.Subscriber, disturb func()) {
	consumeTopic(t, b, topic, group, admin, sub, disturb)
}

func consumeTopic[TX any](t *testing.T, b bench[TX], topic, group string, admin server, sub broker.Subscriber, disturb func()) {
	if err := admin.EnsureTopics(t.Context(), []broker.TopicSpec{{Name: topic, Partitions: 4}}); err != nil {
		t.Fatal(err)
	}
	handler := func(ctx context.Context, tx TX, e waybill.Event) error {
		if err := b.effect(ctx, tx, &e); err != nil {
			return err
		}
		switch rand.IntN(40) {
		case 0:
			return errBoom
		case 1:
			panic(errBoom)
		case 2: // an error of the database, returned
			return b.exec(ctx, tx, "SELECT no_such_column FROM effect")
		case 3: // an error of the database, kept to itself
			_ = b.exec(ctx, tx, "SELECT no_such_column FROM effect")
		case 4:
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	config := &inbox.Config{
		Group: group, Topics: []string{topic}, BatchSize: 20, PollWait: 50 * time.Millisecond, ReaderTTL: 2 * time.Second,
		HandlerTimeout: 100 * time.Millisecond, SweepEvery: 50 * time.Millisecond, CrashTries: 1000,
		Logger: slog.New(slog.DiscardHandler),
	}
	for range 50 {
		config.Schedule = append(config.Schedule, 50*time.Millisecond)
	}
	start := func() (stop func()) {
		p, err := inbox.New(b.st, sub, handler, config)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
		}
	}
	defer start()()
	defer start()()
	for version := int64(1); version <= versions; version++ {
		third := func() {}
		if version%4 == 0 {
			third = start()
		}
		publish(t, admin, topic, group, version)
		disturb()
		third()
	}
	check(t, b, group)
}

func publish(t *testing.T, p broker.Publisher, topic, group string, version int64) {
	t.Helper()
	var records []waybill.Record
	for k := range keys {
		e := waybill.Event{
			ID: fmt.Sprintf("%s/k%02d/%d", group, k, version), Type: "OrderChanged", Topic: topic,
			AggregateType: "order", AggregateID: fmt.Sprintf("k%02d", k), AggregateVersion: version, Data: []byte("{}"),
		}
		record, err := waybill.Encode(waybill.FormatEnvelope, &e)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, record)
	}
	if err := errors.Join(p.Publish(t.Context(), records)...); err != nil {
		t.Fatal(err)
	}
}

// check waits until all is applied and nothing is held any more.
func check[TX any](t *testing.T, b bench[TX], group string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		ids, err := b.rows(ctx)
		if err != nil {
			t.Fatal(err)
		}
		counts, err := b.st.CountHeld(ctx, group)
		if err != nil {
			t.Fatal(err)
		}
		if len(ids) >= keys*versions && counts == (store.HeldCounts{}) {
			checkOrder(t, ids)
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%d effects of %d, held %+v", len(ids), keys*versions, counts)
		}
	}
}

func checkOrder(t *testing.T, ids []string) {
	t.Helper()
	next := map[string]int{}
	for _, id := range ids {
		key := id[:strings.LastIndex(id, "/")]
		next[key]++
		if want := fmt.Sprintf("%s/%d", key, next[key]); id != want {
			t.Errorf("effect of %s where %s was due", id, want)
		}
	}
	if len(ids) != keys*versions {
		t.Errorf("%d effects, want %d", len(ids), keys*versions)
	}
}
