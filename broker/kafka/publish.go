package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
)

// Publish gives all records to a producer of its own at once. Those of a key are
// in one partition, in order, and an idempotent producer's batches are taken in
// sequence or not at all, so none is stored behind one that was not.
func (b *Broker) Publish(ctx context.Context, records []waybill.Record) []error {
	c := &call{broker: b, records: records, errs: make([]error, len(records)), failed: make(map[topicKey]struct{})}
	if len(records) == 0 {
		return c.errs
	}
	if err := b.usable(ctx); err != nil {
		return c.failAll(err)
	}
	if err := ctx.Err(); err != nil {
		return c.failAll(broker.Unknown(err))
	}
	ctx, cancel := context.WithTimeout(ctx, b.config.DeliveryTimeout+time.Second)
	defer cancel()
	defer context.AfterFunc(b.life, cancel)()
	b.limits.learn(ctx, c.topics()...)
	c.run(ctx)
	return c.errs
}

type topicKey struct{ topic, key string }

// call is one Publish on its way.
type call struct {
	broker  *Broker
	sender  *sender
	records []waybill.Record
	kafka   []*kgo.Record
	errs    []error
	failed  map[topicKey]struct{} // nothing of these may follow
	moved   []string              // topics that may have been made anew
	// relearnt are the topics whose limits this call has asked for again.
	relearnt []string
}

type answer struct {
	index int
	err   error
}

func (c *call) topics() []string {
	var names []string
	for i := range c.records {
		if name := c.records[i].Topic; len(names) == 0 || names[len(names)-1] != name {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (c *call) run(ctx context.Context) {
	c.kafka = encode(c.records)
	all, unfit := make([]int, 0, len(c.records)), make(map[topicKey]bool)
	var late []answer // of records that are not sent
	for i := range c.records {
		record := &c.records[i]
		if unfit[c.key(i)] {
			late = append(late, answer{i, broker.ErrPredecessor})
		} else if size := recordSize(record); size > c.limit(ctx, record.Topic, size) {
			unfit[c.key(i)] = true
			late = append(late, answer{i, tooLarge(record, size, c.limit(ctx, record.Topic, 0))})
		} else {
			all = append(all, i)
		}
	}
	c.sendAll(ctx, all)
	for _, a := range late {
		c.settle(a.index, a.err)
	}
}

func (c *call) sendAll(ctx context.Context, indices []int) {
	if len(indices) == 0 {
		return
	}
	// Not before now: finding the limits may have made the former ones useless.
	var err error
	if c.sender, err = c.broker.senders.take(); err != nil {
		for _, i := range indices {
			c.settle(i, broker.Unavailable(broker.ScopeBroker, errClosed, ""))
		}
		return
	}
	defer c.broker.senders.put(c.sender)
	c.isolate(ctx, c.send(ctx, indices))
}

// limit returns the size that a record of the topic may have. Before it refuses
// one, it asks once more.
func (c *call) limit(ctx context.Context, topic string, size int) int {
	l := &c.broker.limits
	limit := int(l.batch(topic))
	if size <= limit || limit == c.broker.config.MaxRecordBytes || slices.Contains(c.relearnt, topic) {
		return limit
	}
	c.relearnt = append(c.relearnt, topic)
	if l.relearn(ctx, topic) {
		c.broker.senders.renew()
	}
	return int(l.batch(topic))
}

// send sends the records of which nothing has failed before, and settles them,
// except those that were in a batch that the cluster refused.
func (c *call) send(ctx context.Context, indices []int) (refused []answer) {
	indices = slices.DeleteFunc(indices, func(i int) bool {
		_, failed := c.failed[c.key(i)]
		if failed {
			c.errs[i] = broker.ErrPredecessor
		}
		return failed
	})
	if len(indices) == 0 {
		return nil
	}
	batch := make([]*kgo.Record, len(indices))
	for i, index := range indices {
		batch[i] = c.kafka[index]
	}
	before := c.sender.produced.Load()
	errs, ended := c.sender.send(ctx, c.broker, batch)
	sent := c.sender.produced.Load() != before
	for i, err := range errs {
		index := indices[i]
		switch {
		case err == nil:
			c.records[index].Place = broker.Place(batch[i].Topic, batch[i].Partition, batch[i].Offset)
			c.settle(index, nil)
		case refusal(err):
			refused = append(refused, answer{index, err})
		default:
			c.fail(index, err, sent, ended)
		}
	}
	return refused
}

// fail settles a record that was not stored, or of which nothing is known. sent
// tells whether it may have left this process, ended why the call did.
func (c *call) fail(i int, err error, sent bool, ended error) {
	if matches(err, topicMoved) {
		c.lookAgain(c.records[i].Topic, err)
	}
	if ended != nil && errors.Is(err, kgo.ErrClientClosed) {
		err = ended
	}
	c.settle(i, c.broker.classify(err, &c.records[i], sent))
}

// settle notes a record's answer. The first of a key to fail says why, those
// behind it that they were not stored because of it.
func (c *call) settle(i int, err error) {
	if err != nil {
		if _, again := c.failed[c.key(i)]; again {
			err = broker.ErrPredecessor
		}
		c.failed[c.key(i)] = struct{}{}
	}
	c.errs[i] = err
}

func (c *call) key(i int) topicKey { return topicKey{c.records[i].Topic, c.records[i].Key} }

// lookAgain drops what is known of a topic that may have been made anew.
func (c *call) lookAgain(topic string, err error) {
	if slices.Contains(c.moved, topic) {
		return
	}
	c.moved = append(c.moved, topic)
	c.broker.counts.forget(topic)
	c.broker.limits.forget(topic)
	if !errors.Is(err, kerr.UnknownTopicOrPartition) { // which the library asks about itself
		c.broker.senders.renew()
	}
}

func (c *call) failAll(err error) []error {
	for i := range c.errs {
		c.errs[i] = err
	}
	return c.errs
}

// A Kafka broker takes or refuses a batch as a whole, and the library then fails
// all that waits for the same partition: the refusal of one record reaches many
// that are without fault. They are sent again, in halves until those that are to
// blame stand alone.

var errNotAlone = errors.New("a batch was refused because of another record")

func (c *call) isolate(ctx context.Context, refused []answer) {
	groups := make(map[broker.Partition][]answer)
	var order []broker.Partition
	for _, a := range refused {
		p := broker.Partition{Topic: c.kafka[a.index].Topic, ID: c.kafka[a.index].Partition}
		if groups[p] == nil {
			order = append(order, p)
		}
		groups[p] = append(groups[p], a)
	}
	for _, p := range order {
		c.isolateGroup(ctx, groups[p])
	}
}

// isolateGroup sends records of one partition together.
func (c *call) isolateGroup(ctx context.Context, group []answer) {
	if ctx.Err() != nil || c.sender.closed {
		// They were not stored, and nothing says that they are to blame.
		for _, a := range group {
			c.settle(a.index, broker.Unavailable(broker.ScopePartition,
				fmt.Errorf("topic %s: %w: %w", c.records[a.index].Topic, errNotAlone, a.err), ""))
		}
		return
	}
	indices := make([]int, len(group))
	for i, a := range group {
		indices[i] = a.index
	}
	refused := c.send(ctx, indices)
	switch n := len(refused); {
	case n == 0:
	case len(group) == 1:
		if matches(refused[0].err, tooLarges) {
			c.broker.limits.relearn(ctx, c.records[refused[0].index].Topic) // to tell the right one
		}
		c.fail(refused[0].index, refused[0].err, true, nil)
	case n == 1:
		c.isolateGroup(ctx, refused)
	default:
		c.isolateGroup(ctx, refused[:n/2])
		c.isolateGroup(ctx, refused[n/2:])
	}
}
