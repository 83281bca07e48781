package main

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybillhq/waybill"
)

const forwarderTopic = "to_forward"

// fillWatermill inserts the events as its publisher does, wrapped in envelopes.
func fillWatermill(ctx context.Context, pool *pgxpool.Pool, from *source, n int) error {
	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }()
	into, err := sql.NewPublisher(sql.BeginnerFromStdSQL(db), sql.PublisherConfig{
		SchemaAdapter: sql.DefaultPostgreSQLSchema{}, AutoInitializeSchema: true,
	}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	wrapped := forwarder.NewPublisher(into, forwarder.PublisherConfig{ForwarderTopic: forwarderTopic})
	err = from.batches(n, func(events []waybill.Event) error {
		messages := make([]*message.Message, len(events))
		for i := range events {
			e := &events[i]
			messages[i] = message.NewMessage(e.ID, e.Data)
			messages[i].Metadata = message.Metadata{"key": e.AggregateID, "eventType": e.Type, "aggregateType": e.AggregateType, "aggregateId": e.AggregateID}
		}
		return wrapped.Publish(from.topic, messages...)
	})
	if err != nil {
		return err
	}
	_, err = pool.Exec(ctx, `VACUUM (ANALYZE) watermill_`+forwarderTopic)
	return err
}

// drainWatermill runs the forwarder until it has sent what it was to send.
func (t *task) drainWatermill(ctx context.Context) (*outcome, error) {
	pool, err := pgxpool.New(ctx, t.DSN)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }()
	client, err := newProducer(t.URL)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	subscriber, err := sql.NewSubscriber(sql.BeginnerFromStdSQL(db), sql.SubscriberConfig{
		ConsumerGroup: "forwarder", PollInterval: 10 * time.Millisecond, InitializeSchema: true,
		SchemaAdapter: sql.DefaultPostgreSQLSchema{}, OffsetsAdapter: sql.DefaultPostgreSQLOffsetsAdapter{},
	}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := &kafkaOut{ctx: ctx, client: client, events: t.Events, done: cancel}
	f, err := forwarder.NewForwarder(subscriber, out, watermill.NopLogger{}, forwarder.Config{ForwarderTopic: forwarderTopic, CloseTimeout: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	began := now()
	if err := f.Run(ctx); err != nil {
		return nil, err
	}
	return &outcome{Events: out.sent, Seconds: out.last.Sub(began).Seconds()}, nil
}

// kafkaOut publishes what the forwarder hands over, which it does one message at
// a time.
type kafkaOut struct {
	ctx    context.Context
	client *kgo.Client
	events int
	sent   int
	last   time.Time
	done   func()
}

func (k *kafkaOut) Publish(topic string, messages ...*message.Message) error {
	for _, m := range messages {
		r := &kgo.Record{Topic: topic, Key: []byte(m.Metadata["key"]), Value: m.Payload, Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(m.UUID)}}}
		for _, name := range []string{"eventType", "aggregateType", "aggregateId"} {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(m.Metadata[name])})
		}
		// Not with the context that ends with the last message: its answer counts.
		if err := k.client.ProduceSync(context.WithoutCancel(k.ctx), r).FirstErr(); err != nil {
			return err
		}
	}
	k.last = now()
	if k.sent += len(messages); k.events > 0 && k.sent >= k.events {
		k.done()
	}
	return nil
}

func (k *kafkaOut) Close() error { return nil }
