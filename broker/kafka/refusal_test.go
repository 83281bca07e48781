package kafka_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/kafka"
)

// big makes a record that is too large for a topic whose limit was lowered.
func big(topic, key, id string) waybill.Record {
	r := record(topic, key, id)
	r.Value = make([]byte, 5000)
	_, _ = rand.Read(r.Value)
	return r
}

// The limit is lowered after the client has learnt it, so that the server is the
// one who refuses.
func TestRefusedBatchBlamesNobodyButTheGuilty(t *testing.T) {
	eachServer(t, func(t *testing.T, brokers []string) {
		b := open(t, &kafka.Config{Brokers: brokers, Compression: "none"})
		topic := newTopic(t, b, 1)
		publishAll(t, b, record(topic, "a", "a0"))
		limit := func(bytes string) {
			admin(t, brokers, func(ctx context.Context, a *kadm.Client) error {
				_, err := a.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &bytes}}, topic)
				return err
			})
		}
		limit("2000")
		untilRefused(t, brokers, topic)
		want := []string{"a0"}
		var calls sync.WaitGroup
		for other := range 3 { // calls without fault share the partition, and its batches
			var batch []waybill.Record
			for i := range 20 {
				key := fmt.Sprintf("other-%d-%d", other, i%10)
				batch = append(batch, record(topic, key, fmt.Sprintf("%s-%d", key, i)))
				want = append(want, batch[i].EventID)
			}
			calls.Go(func() {
				for i, err := range publish(t, b, batch...) {
					if err != nil {
						t.Errorf("%s: %v", batch[i].EventID, err)
					}
				}
			})
		}
		errs := publish(t, b,
			record(topic, "a", "a1"), big(topic, "b", "b1"), record(topic, "c", "c1"), record(topic, "a", "a2"),
			record(topic, "b", "b2"), record(topic, "b", "b3"), record(topic, "c", "c2"), big(topic, "d", "d1"))
		calls.Wait()
		if got, want := classesOf(errs), []string{"ok", "permanent", "ok", "ok", "predecessor", "predecessor", "ok", "permanent"}; !slices.Equal(got, want) {
			t.Fatalf("got answers %v, want %v: %v", got, want, errs)
		}
		for _, part := range []string{"b1", "too large", "limit 2000"} {
			if !strings.Contains(errs[1].Error(), part) {
				t.Errorf("the error %q does not say %s", errs[1], part)
			}
		}
		publishAll(t, b, record(topic, "b", "b2"))
		limit("20000")                                // of which the client has to become aware, so that the large one can be retried
		for deadline := time.Now().Add(patience); ; { // a broker takes a moment to apply it
			errs := publish(t, b, big(topic, "d", "d1"))
			if errs[0] == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal(errs[0])
			}
		}
		publishAll(t, b, record(topic, "z", "last"))
		want = append(want, "a1", "a2", "c1", "c2", "b2", "d1", "last")
		var got []string
		for sub := subscribe(t, b, "group-"+waybill.NewID(), topic); len(got) < len(want); {
			for _, d := range poll(t, sub) {
				if d.Record.Key != "probe" {
					got = append(got, d.Record.EventID)
				}
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("stored are %v, want %v", got, want)
		}
	})
}

// untilRefused waits until the broker refuses what is larger than the limit.
func untilRefused(t *testing.T, brokers []string, topic string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		probe := &kgo.Record{Topic: topic, Key: []byte("probe"), Value: big(topic, "", "").Value}
		if err := client.ProduceSync(ctx, probe).FirstErr(); errors.Is(err, kerr.MessageTooLarge) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// produceControl answers the produce requests for which code returns an error.
// The topics of its tests have one partition, so a request has one batch.
func produceControl(cluster *kfake.Cluster, code func(batch []byte) error) {
	cluster.ControlKey(0, func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		request := r.(*kmsg.ProduceRequest)
		response := request.ResponseKind().(*kmsg.ProduceResponse)
		refused := false
		for _, topic := range request.Topics {
			out := kmsg.NewProduceResponseTopic()
			out.Topic, out.TopicID = topic.Topic, topic.TopicID
			for _, partition := range topic.Partitions {
				p := kmsg.NewProduceResponseTopicPartition()
				p.Partition = partition.Partition
				if err := code(partition.Records); err != nil {
					p.ErrorCode, refused = kafkaError(err).Code, true
				}
				out.Partitions = append(out.Partitions, p)
			}
			response.Topics = append(response.Topics, out)
		}
		if !refused {
			return nil, nil, false
		}
		return response, nil, true
	})
}

func TestRecordsThatTheServerFindsInvalidAreFound(t *testing.T) {
	cluster, brokers := startFake(t)
	b := open(t, &kafka.Config{Brokers: brokers, Compression: "none"})
	topic := newTopic(t, b, 1)
	var requests atomic.Int64
	produceControl(cluster, func(batch []byte) error {
		requests.Add(1)
		if bytes.Contains(batch, []byte("poison")) {
			return kerr.InvalidRecord
		}
		return nil
	})
	const n = 200
	var records []waybill.Record
	for i := range n {
		records = append(records, record(topic, fmt.Sprintf("key-%d", i), fmt.Sprintf("event-%d", i)))
	}
	for _, i := range []int{0, 57, 199} {
		records[i].Value = []byte("poison")
	}
	for i, err := range publish(t, b, records...) {
		want := "ok"
		if i == 0 || i == 57 || i == 199 {
			want = "permanent"
		}
		if got := classOf(err); got != want {
			t.Errorf("record %d: got %v, want %s", i, err, want)
		}
	}
	if got := requests.Load(); got > 60 {
		t.Errorf("it took %d requests to find 3 of %d records", got, n)
	}
	if got := len(readAll(t, b, topic, n-3)); got != n-3 {
		t.Errorf("%d records are stored, want %d", got, n-3)
	}
}

// The records of one key fill several batches, all on their way at once, and the
// server refuses the first batch.
func TestNothingIsTakenBehindARefusedBatchOfItsKey(t *testing.T) {
	cluster, brokers := startFake(t)
	b := open(t, &kafka.Config{Brokers: brokers, Compression: "none", MaxRecordBytes: 2000})
	topic := newTopic(t, b, 1)
	publishAll(t, b, record(topic, "a", "a0")) // from now on the library sends without waiting
	var batches atomic.Int64
	produceControl(cluster, func(batch []byte) error {
		batches.Add(1)
		if bytes.Contains(batch, []byte("poison")) {
			return kerr.InvalidRecord
		}
		return nil
	})
	records := make([]waybill.Record, 60)
	for i := range records {
		records[i] = record(topic, "a", fmt.Sprintf("a%d", i+1))
		records[i].Value = bytes.Repeat([]byte("v"), 200)
	}
	records[3].Value = []byte("poison")
	for i, err := range publish(t, b, records...) {
		want := "predecessor"
		switch {
		case i < 3:
			want = "ok"
		case i == 3:
			want = "permanent"
		}
		if got := classOf(err); got != want {
			t.Errorf("record %d: got %v, want %s", i, err, want)
		}
	}
	if batches.Load() < 3 {
		t.Errorf("there were %d batches: the test proves nothing", batches.Load())
	}
	publishAll(t, b, record(topic, "b", "last"))
	var got []string
	for _, d := range readAll(t, b, topic, 5) {
		got = append(got, d.Record.EventID)
	}
	if want := []string{"a0", "a1", "a2", "a3", "last"}; !slices.Equal(got, want) {
		t.Errorf("stored are %v, want %v", got, want)
	}
}

func TestAnswersOfTheServerAreClassified(t *testing.T) {
	cluster, brokers := startFake(t)
	var answer atomic.Pointer[kerr.Error]
	produceControl(cluster, func([]byte) error {
		if err := answer.Load(); err != nil {
			return err
		}
		return nil
	})
	for _, test := range []struct {
		answer error
		want   string
	}{
		{kerr.MessageTooLarge, "permanent"},
		{kerr.RecordListTooLarge, "permanent"},
		{kerr.InvalidTimestamp, "permanent"},
		{kerr.UnknownServerError, "unknown"},
		{kerr.PolicyViolation, "retryable"},
		{kerr.TopicAuthorizationFailed, "topic unavailable"},
		{kerr.InvalidTopicException, "topic unavailable"},
		{kerr.UnknownTopicOrPartition, "topic unavailable"},
		{kerr.UnknownTopicID, "topic unavailable"},
		{kerr.NotLeaderForPartition, "partition unavailable"},
		{kerr.LeaderNotAvailable, "partition unavailable"},
		{kerr.NotEnoughReplicas, "partition unavailable"},
		{kerr.KafkaStorageError, "partition unavailable"},
		{kerr.ClusterAuthorizationFailed, "broker unavailable"},
		{kerr.ThrottlingQuotaExceeded, "broker unavailable"},
		{kerr.RequestTimedOut, "unknown"},
		{kerr.NotEnoughReplicasAfterAppend, "unknown"},
		{kerr.CorruptMessage, "retryable"},
	} {
		t.Run(kafkaError(test.answer).Message, func(t *testing.T) {
			b := open(t, &kafka.Config{Brokers: brokers, DeliveryTimeout: 2 * time.Second})
			topic := newTopic(t, b, 1)
			answer.Store(kafkaError(test.answer))
			errs := publish(t, b, record(topic, "a", "a1"), record(topic, "a", "a2"))
			answer.Store(nil)
			if got := classesOf(errs); got[0] != test.want || got[1] != "predecessor" {
				t.Errorf("got %v, want %s and predecessor: %v", got, test.want, errs)
			}
			// Whatever it was, it passes.
			untilStored(t, b, record(topic, "a", "a1"), record(topic, "a", "a2"))
		})
	}
}

// The server takes a record and answers only after the call has ended. The next
// call sends it again; the one after it must come later.
func TestWhatWasNotAnsweredKeepsItsPlace(t *testing.T) {
	cluster, brokers := startFake(t)
	b := open(t, &kafka.Config{Brokers: brokers})
	topic := newTopic(t, b, 1)
	publishAll(t, b, record(topic, "a", "a0"))
	held := make(chan struct{})
	release := make(chan struct{})
	var once sync.Once
	cluster.ControlKey(0, func(kmsg.Request) (kmsg.Response, error, bool) {
		once.Do(func() { close(held) })
		cluster.SleepControl(func() { <-release })
		return nil, nil, false
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-held; cancel() }()
	errs := b.Publish(ctx, []waybill.Record{record(topic, "a", "a1"), record(topic, "a", "a2")})
	if got := classesOf(errs); got[0] != "unknown" || got[1] != "predecessor" {
		t.Errorf("got %v, want unknown and predecessor: %v", got, errs)
	}
	close(release)
	untilStored(t, b, record(topic, "a", "a1"), record(topic, "a", "a2"))
	untilStored(t, b, record(topic, "a", "last"))
	sub := subscribe(t, b, "group-"+waybill.NewID(), topic)
	var firsts []string
	for !slices.Contains(firsts, "last") {
		for _, d := range poll(t, sub) {
			if !slices.Contains(firsts, d.Record.EventID) {
				firsts = append(firsts, d.Record.EventID)
			}
		}
	}
	if want := []string{"a0", "a1", "a2", "last"}; !slices.Equal(firsts, want) {
		t.Errorf("first arrivals are %v, want %v", firsts, want)
	}
}

var _ broker.Publisher = (*kafka.Broker)(nil)

// kafkaError returns the error of the protocol that err is.
func kafkaError(err error) *kerr.Error {
	var answer *kerr.Error
	if !errors.As(err, &answer) {
		panic(fmt.Sprintf("%v is no error of the protocol", err))
	}
	return answer
}
