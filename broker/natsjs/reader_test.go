package natsjs

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
)

// Nobody polls: the reader fills its buffer and then waits.
func TestAReaderKeepsALimitedNumberInMemoryAndStops(t *testing.T) {
	server, err := StartEmbedded(t.Context(), &EmbeddedConfig{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	b, err := Open(t.Context(), server.ClientURL(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	if err := b.EnsureTopics(t.Context(), []broker.TopicSpec{{Name: "orders", Partitions: 1}}); err != nil {
		t.Fatal(err)
	}
	var records []waybill.Record
	for range 5 * fetchRecords {
		records = append(records, waybill.Record{EventID: waybill.NewID(), Topic: "orders", Key: waybill.NewID()})
	}
	for _, err := range b.Publish(t.Context(), records) {
		if err != nil {
			t.Fatal(err)
		}
	}
	opened, err := b.Subscribe(t.Context(), broker.SubscribeRequest{Group: "g", Topics: []string{"orders"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = opened.Close() }()
	sub := opened.(*subscription)
	if err := sub.Assign(t.Context(), []broker.Partition{{Topic: "orders"}}); err != nil {
		t.Fatal(err)
	}
	r := sub.readers[0]
	buffered := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.buffer)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for buffered() < fetchRecords && ctx.Err() == nil {
		wait(ctx, time.Millisecond)
	}
	wait(ctx, 200*time.Millisecond) // it would go on
	if got, most := buffered(), fetchRecords+fetchRecords/2; got < fetchRecords || got > most {
		t.Errorf("%d records are in memory, want %d to %d", got, fetchRecords, most)
	}

	if err := sub.Assign(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.stopped:
	default:
		t.Error("the reader of a partition that was taken away still runs")
	}
}

// message is one that a consumer delivered as its n-th.
type message struct {
	jetstream.Msg
	n uint64
}

func (m message) Data() []byte         { return nil }
func (m message) Headers() nats.Header { return nil }
func (m message) Metadata() (*jetstream.MsgMetadata, error) {
	return &jetstream.MsgMetadata{Sequence: jetstream.SequencePair{Consumer: m.n, Stream: 10 * m.n}}, nil
}

func TestAReaderNoticesAMissedMessage(t *testing.T) {
	r := &reader{subscription: &subscription{arrived: make(chan struct{}, 1)}}
	for _, n := range []uint64{1, 2} {
		if err := r.keep(message{n: n}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.keep(message{n: 4}); !errors.Is(err, errMissed) {
		t.Errorf("got error %v, want %v", err, errMissed)
	}
	if r.next != 21 || len(r.buffer) != 2 {
		t.Errorf("goes on at %d with %d records kept, want 21 and 2", r.next, len(r.buffer))
	}
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
