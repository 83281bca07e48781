package membroker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
)

// Publish stores the records in order, as far as the faults that are set allow.
func (b *Broker) Publish(ctx context.Context, records []waybill.Record) []error {
	errs := make([]error, len(records))
	fail := func(err error) []error {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	gate, delay := b.enter(records)
	defer b.leave(records)
	if gate != nil {
		if err := gate(ctx, records); err != nil {
			return fail(err)
		}
	}
	if delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return fail(broker.Unknown(err))
	}
	silent := false
	failed := make(map[topicKey]bool)
	for i := range records {
		key := topicKey{records[i].Topic, records[i].Key}
		if failed[key] {
			errs[i] = broker.ErrPredecessor
			continue
		}
		verdict := b.accept(ctx, &records[i])
		if verdict.Silent {
			silent = true
			errs[i] = errSilent
		} else {
			errs[i] = verdict.Err
		}
		failed[key] = errs[i] != nil
	}
	if silent {
		<-ctx.Done()
		for i := range errs {
			if errors.Is(errs[i], errSilent) {
				errs[i] = broker.Unknown(ctx.Err())
			}
		}
	}
	return errs
}

// accept decides on one record and stores it when it is to be stored.
func (b *Broker) accept(ctx context.Context, record *waybill.Record) Verdict {
	b.mu.Lock()
	if err := b.refusal(record); err != nil {
		b.mu.Unlock()
		return Verdict{Err: err}
	}
	verdict, custom := b.faults.verdict(record), b.faults.custom
	b.mu.Unlock()
	if verdict == (Verdict{}) && custom != nil {
		verdict = custom(ctx, *record) // without the lock: it may wait, or ask this broker
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.refusal(record); err != nil { // again: the custom fault took its time
		return Verdict{Err: err}
	}
	if verdict.Err != nil || verdict.Silent {
		if verdict.Stored {
			b.store(record)
		}
		return verdict
	}
	b.store(record)
	return verdict
}

// refusal is what a broker in order answers to a record it cannot take.
func (b *Broker) refusal(record *waybill.Record) error {
	if err := b.usable(); err != nil {
		return err
	}
	if b.faults.denied[record.Topic] {
		return broker.Unavailable(broker.ScopeTopic, fmt.Errorf("topic %s: %w", record.Topic, errDenied), "grant the access")
	}
	if b.topics[record.Topic] == nil {
		return broker.Unavailable(broker.ScopeTopic, fmt.Errorf("topic %s: %w", record.Topic, errNoTopic), hintCreateTopic)
	}
	if size := sizeOf(record); size > b.faults.maxRecordBytes {
		return broker.Permanent(fmt.Errorf("record %s is too large: %d bytes, limit %d", record.EventID, size, b.faults.maxRecordBytes), "")
	}
	return nil
}

func (b *Broker) store(record *waybill.Record) {
	t := b.topics[record.Topic]
	id := PartitionOf(record.Key, len(t.partitions))
	delivery := broker.Delivery{
		Record:    cloneRecord(*record),
		Partition: id,
		Position:  int64(len(t.partitions[id])),
		Timestamp: now(),
	}
	t.partitions[id] = append(t.partitions[id], delivery)
	t.accepted = append(t.accepted, delivery)
	record.Place = broker.Place(record.Topic, id, delivery.Position)
	b.notify()
}

// enter counts a call and notes it when one of its keys is in another call at
// the same time, which the contract of Publish forbids.
func (s *server) enter(records []waybill.Record) (Gate, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	mine := make(map[topicKey]bool, len(records))
	for i := range records {
		key := topicKey{records[i].Topic, records[i].Key}
		if mine[key] {
			continue
		}
		mine[key] = true
		if s.inFlight[key]++; s.inFlight[key] > 1 {
			s.violations = append(s.violations, fmt.Sprintf("key %q of topic %s is in %d calls of Publish at once (event %s)",
				key.key, key.topic, s.inFlight[key], records[i].EventID))
		}
	}
	s.notify()
	return s.faults.gate, s.faults.delay
}

func (s *server) leave(records []waybill.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	mine := make(map[topicKey]bool, len(records))
	for i := range records {
		key := topicKey{records[i].Topic, records[i].Key}
		if mine[key] {
			continue
		}
		mine[key] = true
		if s.inFlight[key]--; s.inFlight[key] == 0 {
			delete(s.inFlight, key)
		}
	}
	s.notify()
}

func sizeOf(record *waybill.Record) int {
	size := len(record.Key) + len(record.Value)
	for _, h := range record.Headers {
		size += len(h.Key) + len(h.Value)
	}
	return size
}
