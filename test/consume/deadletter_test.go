package consume

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/kafka"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/test/lab"
)

// Of two events that are DEAD one is as large as the cluster takes a record, so
// its dead letter, which has headers beside the record, fits nowhere; and the
// topic of dead letters does not exist. The topic is made, the letter that fits is
// in it, the other is given up once, and both events stay held as they came.
func TestDeadLettersInKafka(t *testing.T) {
	t.Parallel()
	k, err := kafka.Open(t.Context(), &kafka.Config{Brokers: []string{testenv.Kafka4(t)}, Replicas: 1, Partitions: 1, Compression: "none"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = k.Close() }()
	topic := "consume-" + waybill.NewID()
	if err := k.EnsureTopics(t.Context(), []broker.TopicSpec{{Name: topic, Partitions: 1}}); err != nil {
		t.Fatal(err)
	}
	records := []waybill.Record{record(t, topic, "small", 100), record(t, topic, "large", 100)}
	spare := kafka.DefaultMaxRecordBytes - len(records[1].Value) - 500
	records[1] = record(t, topic, "large", 100+spare)
	if err := errors.Join(k.Publish(t.Context(), records)...); err != nil {
		t.Fatal(err)
	}

	b := sqliteBench(t)
	var sent, givenUp atomic.Int64
	p, err := inbox.New(b.st, k, func(context.Context, *sql.Tx, waybill.Event) error { return errBoom }, &inbox.Config{
		Group: topic, Topics: []string{topic}, PollWait: 50 * time.Millisecond, Schedule: []time.Duration{}, PauseAfter: -1, CountEvery: 100 * time.Millisecond,
		DeadLetters: k, Logger: slog.New(slog.DiscardHandler),
		Events: inbox.Events{DeadLettered: func(i inbox.DeadLetterInfo) {
			switch {
			case i.GivenUp:
				givenUp.Add(1)
			case i.Err == nil:
				sent.Add(1)
			}
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	lab.Until(t, patience, "both letters settled", func() bool { return sent.Load() >= 1 && givenUp.Load() >= 1 })

	sub, err := k.Subscribe(t.Context(), broker.SubscribeRequest{Group: topic + "-letters", Topics: []string{topic + inbox.DeadLetterSuffix}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Close() }()
	var letters []broker.Delivery
	lab.Until(t, patience, "the letter", func() bool {
		batch, err := sub.Poll(t.Context(), 10, 100*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		letters = append(letters, batch...)
		return len(letters) > 0
	})
	if len(letters) != 1 || letters[0].Record.EventID != "small" || !bytes.Equal(letters[0].Record.Value, records[0].Value) {
		t.Errorf("%d letters, the first of %s", len(letters), letters[0].Record.EventID)
	}
	held, err := b.st.ListHeld(t.Context(), topic, store.HeldFilter{State: store.HeldDead})
	if err != nil || len(held) != 2 {
		t.Fatalf("%d held, %v", len(held), err)
	}
	for i, h := range held {
		isLarge := h.Event.ID == "large"
		if (h.DeadLetterNote != "") != isLarge || h.DeadLetterAt.IsZero() != isLarge || !bytes.Equal(h.Record.Value, records[i].Value) {
			t.Errorf("%s: note %q, sent %s, %d bytes of %d", h.Event.ID, h.DeadLetterNote, h.DeadLetterAt, len(h.Record.Value), len(records[i].Value))
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if sent.Load() != 1 || givenUp.Load() != 1 {
		t.Errorf("%d letters sent, %d given up; want one each", sent.Load(), givenUp.Load())
	}
}

// record encodes an event with data of a size.
func record(t *testing.T, topic, id string, size int) waybill.Record {
	t.Helper()
	e := waybill.Event{
		ID: id, Type: "OrderPlaced", Topic: topic, AggregateType: "order", AggregateID: id, Data: []byte(`"` + strings.Repeat("x", size) + `"`),
	}
	encoded, err := waybill.Encode(waybill.FormatEnvelope, &e)
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}
