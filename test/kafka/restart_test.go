package kafka

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/kafka"
	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/store/memstore"
	"github.com/waybillhq/waybill/test/lab"
)

const (
	topic    = "orders"
	keys     = 20
	rounds   = 40
	patience = 3 * time.Minute
)

func TestEventsOutliveRestartsOfKafka(t *testing.T) {
	server := lab.NewServer(t, "kafka4", "WAYBILL_ENV_KAFKA4_JARS="+testenv.Kafka4Jars(t), "WAYBILL_ENV_KAFKA4_HEAP=256m")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(server.Up())
	b, err := kafka.Open(t.Context(), &kafka.Config{Brokers: []string{server.Address()}, Replicas: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	if err := b.EnsureTopics(t.Context(), []broker.TopicSpec{{Name: topic, Partitions: 4}}); err != nil {
		t.Fatal(err)
	}

	st := memstore.New(nil)
	spent := make(chan string, keys*rounds)
	r, err := relay.New(st, b, &relay.Config{
		PublishTimeout: 3 * time.Second, LeaseTTL: 3 * time.Second, PublishBatch: 50,
		Events: relay.Events{Failed: func(info relay.FailedInfo) {
			switch info.Class {
			case broker.ClassUnavailable.String(), broker.ClassUnknown.String(), broker.ClassPredecessor.String():
			default:
				spent <- fmt.Sprintf("%s: %s: %v", info.EventID, info.Class, info.Err)
			}
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	relayed := make(chan error, 1)
	go func() { relayed <- r.Run(ctx) }()

	reader := &reader{next: make(map[string]int)}
	read := make(chan error, 1)
	sub, err := b.Subscribe(ctx, broker.SubscribeRequest{Group: "inventory", Topics: []string{topic}})
	if err != nil {
		t.Fatal(err)
	}
	go func() { read <- reader.run(ctx, sub, keys*rounds) }()

	writer := outbox.NewWriter(st, nil)
	for n := range rounds {
		tx, err := st.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for key := range keys {
			err := writer.Append(ctx, tx, waybill.Event{
				ID: fmt.Sprintf("%d-%d", key, n), Type: "OrderChanged", Topic: topic, AggregateType: "order",
				AggregateID: fmt.Sprintf("order-%d", key), AggregateVersion: int64(n + 1), Data: []byte("{}"),
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		switch n {
		case rounds / 4:
			must(server.Kill())
		case rounds / 3:
			lab.Until(t, patience, "a red relay", func() bool { return r.Health().State == relay.Red })
			must(server.Up())
		case rounds / 2:
			must(server.Down())
			must(server.Up())
		}
	}
	select {
	case err := <-read:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatalf("not all events arrived: health %+v", r.Health())
	}
	lab.Until(t, patience, "an empty queue and a green relay", func() bool {
		counts, err := st.Counts(ctx)
		return err == nil && counts.Pending+counts.Dead == 0 && r.Health().State == relay.Green
	})
	stop()
	if err := <-relayed; err != nil {
		t.Error(err)
	}
	close(spent)
	for what := range spent {
		t.Errorf("an outage spent an attempt of %s", what)
	}
	_ = sub.Close()
}

// reader checks that the first arrivals of each key come in order.
type reader struct{ next map[string]int }

func (r *reader) run(ctx context.Context, sub broker.Subscription, n int) error {
	for seen := 0; seen < n; {
		batch, err := sub.Poll(ctx, 100, 200*time.Millisecond)
		if ctx.Err() != nil {
			return fmt.Errorf("%d of %d events came, last error: %w", seen, n, err)
		}
		var positions []broker.Position
		for _, d := range batch {
			_, text, _ := strings.Cut(d.Record.EventID, "-")
			i, err := strconv.Atoi(text)
			if err != nil || i > r.next[d.Record.Key] {
				return fmt.Errorf("%s came when %d was due of %s", d.Record.EventID, r.next[d.Record.Key], d.Record.Key)
			}
			if i == r.next[d.Record.Key] {
				r.next[d.Record.Key]++
				seen++
			}
			positions = append(positions, broker.Position{Partition: broker.Partition{Topic: topic, ID: d.Partition}, Settled: d.Position})
		}
		if len(positions) > 0 {
			_ = sub.Commit(ctx, positions) // a lost commit only repeats
		}
	}
	return nil
}
