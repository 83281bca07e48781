package kafka

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/kafka"
	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/relay/relaytest"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/postgres"
	"github.com/waybillhq/waybill/test/lab"
)

// What a relay promises holds with Kafka and PostgreSQL, too. Refusals, silences
// and outages are planned in front of Kafka, where each can be made to hit one
// record; what gets through is read back from the topics.
func TestRelayOverKafka(t *testing.T) {
	b, err := kafka.Open(t.Context(), &kafka.Config{Brokers: []string{testenv.Kafka4(t)}, Replicas: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	relaytest.Run(t, relaytest.Harness[pgx.Tx]{
		Open:   openPostgres,
		Behind: func(t *testing.T) relaytest.Behind { return behind(t, b) },
	})
}

func openPostgres(t *testing.T) relaytest.Database[pgx.Tx] {
	st, err := postgres.Open(t.Context(), lab.Postgres15(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	if err := st.Migrate(t.Context(), store.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	return relaytest.Database[pgx.Tx]{
		Store: st, Appender: st,
		Begin:    func(ctx context.Context) (pgx.Tx, error) { return st.Pool().Begin(ctx) },
		Commit:   func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		Rollback: func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
	}
}

// behind makes topics of the test's own.
func behind(t *testing.T, b *kafka.Broker) relaytest.Behind {
	t.Helper()
	prefix := "relay-" + waybill.NewID() + "-"
	var specs []broker.TopicSpec
	for _, name := range relaytest.Topics {
		specs = append(specs, broker.TopicSpec{Name: prefix + name, Partitions: 3})
	}
	if err := b.EnsureTopics(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	return relaytest.Behind{
		Publisher: renamed{b, prefix},
		Records: func(t *testing.T, topic string, n int) []waybill.Record {
			return readAll(t, b, prefix+topic, n)
		},
	}
}

// renamed publishes to topics with a prefix.
type renamed struct {
	broker.Publisher
	prefix string
}

func (r renamed) Publish(ctx context.Context, records []waybill.Record) []error {
	own := append([]waybill.Record(nil), records...)
	for i := range own {
		own[i].Topic = r.prefix + own[i].Topic
	}
	return r.Publisher.Publish(ctx, own)
}

// readAll reads until there are n records, and a moment longer for such as
// should not be there.
func readAll(t *testing.T, b *kafka.Broker, topic string, n int) (records []waybill.Record) {
	t.Helper()
	sub, err := b.Subscribe(t.Context(), broker.SubscribeRequest{Group: topic, Topics: []string{topic}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Close() }()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		batch, err := sub.Poll(t.Context(), 1000, 100*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range batch {
			d.Record.Topic = strings.TrimPrefix(d.Record.Topic, topic[:strings.LastIndex(topic, "-")+1])
			records = append(records, d.Record)
		}
		if len(batch) == 0 && len(records) >= n {
			break
		}
	}
	return records
}
