package membroker

import (
	"context"
	"slices"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
)

// Records returns what a topic holds, in the order of acceptance across its
// partitions.
func (b *Broker) Records(topicName string) []waybill.Record {
	all := b.Deliveries(topicName)
	out := make([]waybill.Record, len(all))
	for i := range all {
		out[i] = all[i].Record
	}
	return out
}

// Deliveries is Records with partition, position and time of each.
func (b *Broker) Deliveries(topicName string) []broker.Delivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.topics[topicName]; t != nil {
		return cloneDeliveries(t.accepted)
	}
	return nil
}

// EventIDs returns the ids of what a topic holds, in the order of acceptance.
func (b *Broker) EventIDs(topicName string) []string {
	var ids []string
	for _, r := range b.Records(topicName) {
		ids = append(ids, r.EventID)
	}
	return ids
}

// Committed returns the position up to which a group has settled a partition,
// or false when it has committed none.
func (b *Broker) Committed(groupName string, partition broker.Partition) (int64, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if g := b.groups[groupName]; g != nil {
		at, ok := g.committed[partition]
		return at, ok
	}
	return 0, false
}

// Lag returns the number of records of a topic that a group has not settled.
func (b *Broker) Lag(groupName, topicName string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.topics[topicName]
	if t == nil {
		return 0
	}
	lag := len(t.accepted)
	if g := b.groups[groupName]; g != nil {
		for id := range t.partitions {
			if at, ok := g.committed[broker.Partition{Topic: topicName, ID: int32(id)}]; ok {
				lag -= int(at) + 1
			}
		}
	}
	return lag
}

// Calls returns the number of calls of Publish so far.
func (b *Broker) Calls() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls
}

// Violations lists what publishers did against the contract: a key in two calls
// of Publish at the same time.
func (b *Broker) Violations() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.violations)
}

// Wait returns when condition holds, which is asked again after each change of
// the broker, or with the context's error.
func (b *Broker) Wait(ctx context.Context, condition func() bool) error {
	for {
		b.mu.Lock()
		changed := b.changed
		b.mu.Unlock()
		if condition() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// WaitRecords returns a topic's records as soon as there are n of them.
func (b *Broker) WaitRecords(ctx context.Context, topicName string, n int) ([]waybill.Record, error) {
	var records []waybill.Record
	err := b.Wait(ctx, func() bool {
		records = b.Records(topicName)
		return len(records) >= n
	})
	return records, err
}
