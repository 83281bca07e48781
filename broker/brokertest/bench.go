package brokertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
)

// Bench measures publishing, in calls of 500 records of 100 keys and 250 bytes,
// and consuming, a record being one operation.
func Bench(b *testing.B, h Harness) {
	s := &suite{h}
	b.Run("publish", func(b *testing.B) {
		c := s.open(b)
		topic := s.topic(b, c, 16)
		batch := benchBatch(topic)
		b.SetBytes(int64(len(batch[0].Value)))
		b.ResetTimer()
		for sent := 0; sent < b.N; sent += len(batch) {
			publish(b, c.Publisher, batch[:min(len(batch), b.N-sent)]...)
		}
	})
	b.Run("consume", func(b *testing.B) {
		c := s.open(b)
		topic := s.topic(b, c, 16)
		batch := benchBatch(topic)
		for sent := 0; sent < b.N; sent += len(batch) {
			publish(b, c.Publisher, batch[:min(len(batch), b.N-sent)]...)
		}
		sub := subscribe(b, c, groupName(), topic)
		b.SetBytes(int64(len(batch[0].Value)))
		b.ResetTimer()
		for got := 0; got < b.N; {
			deliveries, err := sub.Poll(b.Context(), 500, time.Second)
			if err != nil {
				b.Fatal(err)
			}
			if len(deliveries) > 0 {
				commit(b, sub, deliveries...)
			}
			got += len(deliveries)
		}
	})
}

func benchBatch(topic string) []waybill.Record {
	batch := make([]waybill.Record, 500)
	for i := range batch {
		batch[i] = record(topic, fmt.Sprintf("key-%d", i%100), fmt.Sprintf("event-%d", i))
		batch[i].Value = make([]byte, 250)
	}
	return batch
}
