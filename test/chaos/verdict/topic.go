package verdict

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ReadTopic reads all that a Kafka topic has, partition by partition.
func ReadTopic(ctx context.Context, address, topic string) ([]Record, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(address))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("ends of %s: %w", topic, err)
	}
	partitions := make(map[int32]kgo.Offset)
	left := make(map[int32]int64) // offset at which a partition is read
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			partitions[o.Partition], left[o.Partition] = kgo.NewOffset().AtStart(), o.Offset
		}
	})
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: partitions})
	var all []Record
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return nil, fmt.Errorf("read %s: %w", topic, err)
		}
		for _, e := range fetches.Errors() {
			return nil, fmt.Errorf("read %s/%d: %w", topic, e.Partition, e.Err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			headers := make(map[string]string, len(r.Headers))
			for _, h := range r.Headers {
				headers[h.Key] = string(h.Value)
			}
			all = append(all, RecordOf(r.Topic, r.Partition, r.Offset, r.Timestamp, string(r.Key), r.Value, headers["id"]))
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	return all, nil
}

// RecordOf takes an envelope apart. One that says another id than the header is
// a record of no event.
func RecordOf(topic string, partition int32, offset int64, at time.Time, key string, value []byte, id string) Record {
	var envelope struct {
		EventID          string          `json:"eventId"`
		EventType        string          `json:"eventType"`
		AggregateID      string          `json:"aggregateId"`
		AggregateVersion int64           `json:"aggregateVersion"`
		Data             json.RawMessage `json:"data"`
	}
	r := Record{Topic: topic, Partition: partition, Offset: offset, At: at, Key: key}
	if err := json.Unmarshal(value, &envelope); err != nil || envelope.EventID != id {
		r.Intent = Intent{ID: fmt.Sprintf("header %q, value %.80q", id, value)}
		return r
	}
	r.Intent = Intent{
		ID: id, Key: envelope.AggregateID, Version: envelope.AggregateVersion, Type: envelope.EventType,
		Amount: amountOf(envelope.Data), Sum: Sum(envelope.Data),
	}
	return r
}
