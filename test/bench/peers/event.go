package main

import (
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybillhq/waybill"
)

// source makes the events that every arm is given: keys in turn, each key's
// versions rising, data that does not compress much better than real data.
type source struct {
	topic   string
	keys    int
	payload int
	next    int
	random  *rand.Rand
}

func newSource(topic string, o *options) *source {
	return &source{topic: topic, keys: o.keys, payload: o.payload, random: rand.New(rand.NewPCG(1, 2))}
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 -"

func (s *source) event() waybill.Event {
	n := s.next
	s.next++
	data := append(make([]byte, 0, s.payload), `{"n":`...)
	data = strconv.AppendInt(data, int64(n), 10)
	data = append(data, `,"pad":"`...)
	for len(data) < s.payload-2 {
		for bits, i := s.random.Uint64(), 0; i < 10 && len(data) < s.payload-2; i++ {
			data = append(data, letters[bits&63])
			bits >>= 6
		}
	}
	data = append(data, `"}`...)
	return waybill.Event{
		ID: waybill.NewID(), Type: "order.changed", Topic: s.topic, AggregateType: "order",
		AggregateID: fmt.Sprintf("order-%07d", n%s.keys), AggregateVersion: int64(n/s.keys) + 1, Data: data,
	}
}

func (s *source) events(n int) []waybill.Event {
	events := make([]waybill.Event, n)
	for i := range events {
		events[i] = s.event()
	}
	return events
}

// batches calls do with n events, a thousand at a time.
func (s *source) batches(n int, do func([]waybill.Event) error) error {
	for n > 0 {
		part := min(n, 1000)
		if err := do(s.events(part)); err != nil {
			return err
		}
		n -= part
	}
	return nil
}

// row is what an arm of ours reads of an event.
type row struct {
	id                       int64
	eventID, kind, aggregate string
	aggregateID, topic       string
	version                  int64
	payload                  []byte
}

func (r *row) targets() []any {
	return []any{&r.id, &r.eventID, &r.kind, &r.aggregate, &r.aggregateID, &r.version, &r.topic, &r.payload}
}

// record has the headers of the raw format.
func (r *row) record() *kgo.Record {
	return &kgo.Record{
		Topic: r.topic, Key: []byte(r.aggregateID), Value: r.payload,
		Headers: []kgo.RecordHeader{
			{Key: "id", Value: []byte(r.eventID)},
			{Key: "eventType", Value: []byte(r.kind)},
			{Key: "aggregateType", Value: []byte(r.aggregate)},
			{Key: "aggregateId", Value: []byte(r.aggregateID)},
			{Key: "aggregateVersion", Value: strconv.AppendInt(nil, r.version, 10)},
		},
	}
}
