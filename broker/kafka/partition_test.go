package kafka_test

import (
	"bufio"
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/kafka"
)

// The file comes from Apache Kafka's own client: see testdata/Partitions.java.
func javaPartitions(t *testing.T) map[string]int32 {
	t.Helper()
	file, err := os.Open("testdata/partitions_of_12.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	out := make(map[string]int32)
	for lines := bufio.NewScanner(file); lines.Scan(); {
		partition, key, _ := strings.Cut(lines.Text(), "\t")
		n, err := strconv.Atoi(partition)
		if err != nil {
			t.Fatal(err)
		}
		out[key] = int32(n)
	}
	if len(out) != 1000 {
		t.Fatalf("the file has %d keys, want 1000", len(out))
	}
	return out
}

func TestPartitionsAreThoseOfTheJavaClient(t *testing.T) {
	want := javaPartitions(t)
	for key, partition := range want {
		if got := kafka.PartitionOf(key, 12); got != partition {
			t.Errorf("key %q: got partition %d, want %d", key, got, partition)
		}
	}
	eachServer(t, func(t *testing.T, brokers []string) {
		b := open(t, &kafka.Config{Brokers: brokers})
		topic := newTopic(t, b, 12)
		var records []waybill.Record
		for key := range want {
			records = append(records, record(topic, key, key))
		}
		publishAll(t, b, records...)
		for _, d := range readAll(t, b, topic, len(want)) {
			if d.Partition != want[d.Record.Key] {
				t.Errorf("key %q is in partition %d, want %d", d.Record.Key, d.Partition, want[d.Record.Key])
			}
		}
	})
}

func TestKeysStayWhenATopicGetsMorePartitions(t *testing.T) {
	eachServer(t, func(t *testing.T, brokers []string) {
		changes := make(chan kafka.PartitionsChangedInfo, 10)
		b := open(t, &kafka.Config{Brokers: brokers, Events: kafka.Events{PartitionsChanged: func(info kafka.PartitionsChangedInfo) { changes <- info }}})
		topic := newTopic(t, b, 2)
		var keys []waybill.Record
		for i := range 40 {
			keys = append(keys, record(topic, "key-"+strconv.Itoa(i), "first"))
		}
		publishAll(t, b, keys...)
		admin(t, brokers, func(ctx context.Context, a *kadm.Client) error {
			_, err := a.UpdatePartitions(ctx, 5, topic)
			return err
		})
		found := false
		for deadline := time.NewTimer(patience); !found; {
			for _, check := range b.Check(t.Context(), []string{topic}) {
				found = found || !check.OK && strings.Contains(check.Detail, "had 2 partitions") && check.Hint != ""
			}
			select {
			case <-deadline.C:
				t.Fatal("no check tells of the new partitions")
			default:
			}
		}
		if info := <-changes; info.Topic != topic || info.Before != 2 || info.Now != 5 {
			t.Errorf("got change %+v", info)
		}
		for range 3 { // sooner or later the client knows of the new partitions
			publishAll(t, b, keys...)
		}
		home := make(map[string]int32)
		for _, d := range readAll(t, b, topic, 4*len(keys)) {
			if before, seen := home[d.Record.Key]; seen && before != d.Partition {
				t.Errorf("%s is in partitions %d and %d", d.Record.Key, before, d.Partition)
			}
			home[d.Record.Key] = d.Partition
		}
		if err := b.EnsureTopics(t.Context(), []broker.TopicSpec{{Name: topic, Partitions: 2}}); err == nil {
			t.Error("a topic with more partitions than asked for was taken for right")
		}
	})
}

// The topic is given partitions while nobody of the group is there.
func TestALaterProcessFindsThatATopicWasGivenMorePartitions(t *testing.T) {
	eachServer(t, func(t *testing.T, brokers []string) {
		first := open(t, &kafka.Config{Brokers: brokers})
		topic := newTopic(t, first, 2)
		const total = 20
		for i := range total {
			publishAll(t, first, record(topic, "key-"+strconv.Itoa(i), "first"))
		}
		group := "group of " + topic
		sub := subscribe(t, first, group, topic)
		read := 0
		for read < total {
			batch := poll(t, sub)
			read += len(batch)
			if err := sub.Commit(t.Context(), settled(topic, batch)); err != nil {
				t.Fatal(err)
			}
		}
		for i := range total {
			publishAll(t, first, record(topic, "key-"+strconv.Itoa(i), "second"))
		}
		if err := sub.Close(); err != nil {
			t.Fatal(err)
		}
		finding := func(b *kafka.Broker) string {
			for _, check := range b.Check(t.Context(), []string{topic}) {
				if strings.HasPrefix(check.Name, "positions of "+group) && !check.OK && check.Hint != "" {
					return check.Detail
				}
			}
			return ""
		}
		if got := finding(first); got != "" {
			t.Errorf("before the change, a check says: %s", got)
		}
		admin(t, brokers, func(ctx context.Context, a *kadm.Client) error {
			_, err := a.UpdatePartitions(ctx, 5, topic)
			return err
		})
		changes := make(chan kafka.PartitionsChangedInfo, 10)
		later := open(t, &kafka.Config{Brokers: brokers, Events: kafka.Events{PartitionsChanged: func(info kafka.PartitionsChangedInfo) { changes <- info }}})
		until(t, "the check of the later process", func() bool {
			got := finding(later)
			return strings.Contains(got, "had 2 partitions, it has 5, and "+strconv.Itoa(total)+" records")
		})
		sub = subscribe(t, later, group, topic)
		for read = 0; read < total; {
			batch := poll(t, sub)
			read += len(batch)
			if err := sub.Commit(t.Context(), settled(topic, batch)); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case info := <-changes:
			if want := (kafka.PartitionsChangedInfo{Group: group, Topic: topic, Before: 2, Now: 5}); info != want {
				t.Errorf("got %+v, want %+v", info, want)
			}
		default:
			t.Error("nobody was told")
		}
		if len(changes) > 0 {
			t.Errorf("told again: %+v", <-changes)
		}
		if got := finding(later); got != "" {
			t.Errorf("all is read, and a check says: %s", got)
		}
	})
}

// settled are the positions of all deliveries of a batch.
func settled(topic string, batch []broker.Delivery) (positions []broker.Position) {
	for _, d := range batch {
		positions = append(positions, broker.Position{Partition: broker.Partition{Topic: topic, ID: d.Partition}, Settled: d.Position})
	}
	return positions
}

func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); {
		if time.Now().After(deadline) {
			t.Fatalf("never came: %s", what)
		}
	}
}

func TestATopicThatIsMadeAnewIsUsedAnew(t *testing.T) {
	eachServer(t, func(t *testing.T, brokers []string) {
		b := open(t, &kafka.Config{Brokers: brokers})
		topic := newTopic(t, b, 6)
		var records []waybill.Record
		for i := range 30 {
			records = append(records, record(topic, "key-"+strconv.Itoa(i), strconv.Itoa(i)))
		}
		publishAll(t, b, records...)
		admin(t, brokers, func(ctx context.Context, a *kadm.Client) error {
			_, err := a.DeleteTopic(ctx, topic)
			return err
		})
		ensure(t, b, topic, 3)
		untilStored(t, b, records...)
		got := make(map[string]bool)
		sub := subscribe(t, b, "group-"+waybill.NewID(), topic)
		for len(got) < len(records) {
			for _, d := range poll(t, sub) {
				got[d.Record.EventID] = true
				if want := kafka.PartitionOf(d.Record.Key, 3); d.Partition != want {
					t.Errorf("%s is in partition %d, want %d", d.Record.Key, d.Partition, want)
				}
			}
		}
	})
}

// admin runs f with a client of its own.
func admin(t testing.TB, brokers []string, f func(ctx context.Context, a *kadm.Client) error, options ...kgo.Opt) {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(brokers...)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := f(t.Context(), kadm.NewClient(client)); err != nil {
		t.Fatal(err)
	}
}
