package kafka_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/kafka"
	"github.com/waybillhq/waybill/internal/testenv"
)

// patience bounds whatever should happen soon.
const patience = 90 * time.Second

// eachServer runs f with an imitation of Kafka and with the real one.
func eachServer(t *testing.T, f func(t *testing.T, brokers []string)) {
	t.Run("fake", func(t *testing.T) {
		_, brokers := startFake(t)
		f(t, brokers)
	})
	t.Run("kafka4", func(t *testing.T) { f(t, []string{testenv.Kafka4(t)}) })
}

func newTopic(t testing.TB, b *kafka.Broker, partitions int) string {
	t.Helper()
	topic := "Kafka.test-" + waybill.NewID()
	ensure(t, b, topic, partitions)
	return topic
}

func ensure(t testing.TB, b *kafka.Broker, topic string, partitions int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		// A topic that is being deleted may still be there.
		err := b.EnsureTopics(ctx, []broker.TopicSpec{{Name: topic, Partitions: partitions}})
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

func record(topic, key, id string) waybill.Record {
	return waybill.Record{EventID: id, Topic: topic, Key: key, Value: []byte("value of " + id), Headers: []waybill.Header{{Key: "id", Value: []byte(id)}}}
}

func publish(t testing.TB, b broker.Publisher, records ...waybill.Record) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	errs := b.Publish(ctx, records)
	if len(errs) != len(records) {
		t.Fatalf("got %d answers to %d records", len(errs), len(records))
	}
	return errs
}

func publishAll(t testing.TB, b broker.Publisher, records ...waybill.Record) {
	t.Helper()
	for i, err := range publish(t, b, records...) {
		if err != nil {
			t.Fatalf("publish %s: %v", records[i].EventID, err)
		}
	}
}

// untilStored publishes until all is confirmed, as a relay does.
func untilStored(t testing.TB, b broker.Publisher, records ...waybill.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(records) > 0 {
		var left []waybill.Record
		errs := b.Publish(ctx, records)
		for i, err := range errs {
			switch class, _ := broker.Classify(err); {
			case err == nil:
			case class == broker.ClassPermanent, class == broker.ClassRetryable:
				t.Fatalf("publish %s: %v", records[i].EventID, err)
			default:
				left = append(left, records[i])
			}
		}
		if ctx.Err() != nil {
			t.Fatalf("%d records are left: %v", len(left), errs)
		}
		records = left
	}
}

func subscribe(t testing.TB, b *kafka.Broker, group string, topics ...string) broker.Subscription {
	t.Helper()
	sub, err := b.Subscribe(t.Context(), broker.SubscribeRequest{Group: group, Topics: topics})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Close() })
	return sub
}

// poll waits for records.
func poll(t testing.TB, sub broker.Subscription) []broker.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		batch, err := sub.Poll(ctx, 1000, time.Second)
		if err != nil {
			t.Fatalf("poll: %v", err)
		}
		if len(batch) > 0 {
			return batch
		}
	}
}

func readAll(t testing.TB, b *kafka.Broker, topic string, n int) []broker.Delivery {
	t.Helper()
	sub := subscribe(t, b, "group-"+waybill.NewID(), topic)
	var all []broker.Delivery
	for len(all) < n {
		all = append(all, poll(t, sub)...)
	}
	return all
}

func classOf(err error) string {
	switch class, scope := broker.Classify(err); {
	case err == nil:
		return "ok"
	case class == broker.ClassUnavailable:
		return fmt.Sprintf("%s unavailable", scope)
	default:
		return class.String()
	}
}

func classesOf(errs []error) []string {
	out := make([]string, len(errs))
	for i, err := range errs {
		out[i] = classOf(err)
	}
	return out
}
