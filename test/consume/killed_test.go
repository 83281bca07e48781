package consume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/kafka"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/store/postgres"
	"github.com/waybillhq/waybill/test/lab"
)

// The test binary is also the consumer that is killed.
const (
	envTopic = "WAYBILL_CONSUME_TOPIC" // and group
	envDSN   = "WAYBILL_CONSUME_DSN"
	envKafka = "WAYBILL_CONSUME_KAFKA"
	envFile  = "WAYBILL_CONSUME_FILE"
)

const (
	polled  = 500
	handled = 100
)

func TestMain(m *testing.M) {
	if os.Getenv(envTopic) == "" {
		os.Exit(m.Run())
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fmt.Fprintln(os.Stderr, "not killed:", handleSome(ctx))
	os.Exit(1)
}

// handleSome handles so many events, and stops in the middle of the next.
func handleSome(ctx context.Context) error {
	st, err := postgres.Open(ctx, os.Getenv(envDSN), nil)
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	runs := 0
	return follow(ctx, overPostgres(st), os.Getenv(envKafka), os.Getenv(envTopic), func(string) error {
		if runs++; runs <= handled {
			return nil
		}
		if err := os.WriteFile(os.Getenv(envFile), nil, 0o600); err != nil {
			return err
		}
		select {}
	}, inbox.Events{})
}

// follow consumes the topic, with one transaction at a time, until ctx ends.
func follow(ctx context.Context, b bench[pgx.Tx], address, topic string, handle func(id string) error, events inbox.Events) error {
	k, err := kafka.Open(ctx, &kafka.Config{Brokers: []string{address}, SessionTimeout: 6 * time.Second})
	if err != nil {
		return err
	}
	defer func() { _ = k.Close() }()
	p, err := inbox.New(b.st, k, func(ctx context.Context, tx pgx.Tx, e waybill.Event) error {
		if err := b.effect(ctx, tx, &e); err != nil {
			return err
		}
		return handle(e.ID)
	}, &inbox.Config{
		Group: topic, Topics: []string{topic}, BatchSize: handled / 4, Workers: 1, PollWait: 50 * time.Millisecond, ReaderTTL: time.Minute,
		Events: events, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	return p.Run(ctx)
}

// A consumer has read all records and applied some of them when it is killed. All
// others come again to the next one, also those whose effects were not committed,
// and nothing of what was committed is done twice.
func TestWhatAKilledConsumerHadReadComesAgain(t *testing.T) {
	t.Parallel()
	address, dsn, file := testenv.Kafka4(t), lab.Postgres15(t), filepath.Join(t.TempDir(), "handled")
	st, err := postgres.Open(t.Context(), dsn, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	migrate(t, st)
	if _, err := st.Pool().Exec(t.Context(), "CREATE TABLE effect (seq BIGSERIAL PRIMARY KEY, event_id TEXT NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	b, topic := overPostgres(st), "consume-"+waybill.NewID()
	published := fillTopic(t, address, topic)

	output := lab.KillAt(t, file, envTopic+"="+topic, envDSN+"="+dsn, envKafka+"="+address, envFile+"="+file)
	before, err := b.rows(t.Context())
	if err != nil || len(before) == 0 || len(before) > handled || !slices.Equal(before, published[:len(before)]) {
		t.Fatalf("%d effects of %d handled, %v: %s", len(before), handled, err, output)
	}

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var again []string
	var applied, duplicates atomic.Int64
	err = follow(ctx, b, address, topic, func(id string) error {
		again = append(again, id)
		return nil
	}, inbox.Events{
		Applied: func(inbox.AppliedInfo) {
			if applied.Add(1) == int64(polled-len(before)) {
				cancel()
			}
		},
		Duplicate: func(inbox.DuplicateInfo) { duplicates.Add(1) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(again, published[len(before):]) {
		t.Errorf("%d events came again, want the %d that were read and not committed", len(again), polled-len(before))
	}
	after, err := b.rows(t.Context())
	if err != nil || !slices.Equal(after, published) {
		t.Errorf("%d effects, %v; want each of %d once and in order", len(after), err, polled)
	}
	t.Logf("%d were committed before the kill, %d came again, %d of the committed ones among the records", len(before), len(again), duplicates.Load())
}

// fillTopic makes a topic of one partition and returns the ids in it.
func fillTopic(t *testing.T, address, topic string) (ids []string) {
	t.Helper()
	k, err := kafka.Open(t.Context(), &kafka.Config{Brokers: []string{address}, Replicas: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = k.Close() }()
	if err := k.EnsureTopics(t.Context(), []broker.TopicSpec{{Name: topic, Partitions: 1}}); err != nil {
		t.Fatal(err)
	}
	var records []waybill.Record
	for n := range polled {
		e := waybill.Event{ID: fmt.Sprintf("%s/%d", topic, n), Type: "OrderPlaced", Topic: topic, AggregateType: "order", AggregateID: fmt.Sprint(n), Data: []byte("{}")}
		record, err := waybill.Encode(waybill.FormatEnvelope, &e)
		if err != nil {
			t.Fatal(err)
		}
		ids, records = append(ids, e.ID), append(records, record)
	}
	if err := errors.Join(k.Publish(t.Context(), records)...); err != nil {
		t.Fatal(err)
	}
	return ids
}
