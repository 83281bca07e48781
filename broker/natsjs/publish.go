package natsjs

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
)

// window bounds the unanswered messages of one call.
const window = 2048

// Publish sends each record as soon as the one before it of its topic and key is
// confirmed, and does not wait between records of different keys: JetStream may
// refuse one message and store the next, so a key never has two on their way.
func (b *Broker) Publish(ctx context.Context, records []waybill.Record) []error {
	c := newCall(b, records)
	if err := b.usable(); err != nil {
		return c.failAll(err)
	}
	if err := ctx.Err(); err != nil {
		return c.failAll(broker.Unknown(err))
	}
	c.run(ctx)
	return c.errs
}

// answerTo is where the answer to a message goes.
type answerTo struct {
	call  *call
	index int
}

type answer struct {
	index    int
	sequence uint64 // of the stream, when stored
	err      error
}

// call is one Publish on its way.
type call struct {
	broker  *Broker
	records []waybill.Record
	errs    []error
	// partitions of each record's topic when it was sent.
	partitions []int
	next       []int // of each record, the following one of its topic and key, or -1
	ready      []int // may be sent now
	waiting    map[int]struct{}
	answers    chan answer // has room for an answer to each record, so nobody blocks
}

func newCall(b *Broker, records []waybill.Record) *call {
	c := &call{
		broker:     b,
		records:    records,
		errs:       make([]error, len(records)),
		partitions: make([]int, len(records)),
		next:       make([]int, len(records)),
		waiting:    make(map[int]struct{}, min(len(records), window)),
		answers:    make(chan answer, len(records)),
	}
	type topicKey struct{ topic, key string }
	last := make(map[topicKey]int, len(records))
	for i := range records {
		c.next[i] = -1
		key := topicKey{records[i].Topic, records[i].Key}
		if before, ok := last[key]; ok {
			c.next[before] = i
		} else {
			c.ready = append(c.ready, i)
		}
		last[key] = i
	}
	return c
}

func (c *call) run(ctx context.Context) {
	for {
		for len(c.ready) > 0 && len(c.waiting) < window {
			i := c.ready[0]
			c.ready = c.ready[1:]
			if err := c.send(ctx, i); err != nil {
				c.settle(i, err)
			} else {
				c.waiting[i] = struct{}{}
			}
		}
		if len(c.waiting) == 0 {
			return
		}
		select {
		case a := <-c.answers:
			c.take(ctx, a)
		case <-ctx.Done():
			c.giveUp(ctx, ctx.Err())
			return
		case <-c.broker.closed:
			c.giveUp(ctx, errClosed)
			return
		}
	}
}

// send hands a record to the client library. Its answer arrives in c.answers.
func (c *call) send(ctx context.Context, i int) error {
	b, record := c.broker, &c.records[i]
	if err := ctx.Err(); err != nil {
		return broker.Unknown(err)
	}
	t, err := b.topic(ctx, record.Topic)
	if err != nil {
		return classifySend(err, record)
	}
	c.partitions[i] = t.partitions
	m := &nats.Msg{
		Subject: b.config.subject(record.Topic, t.partitions, PartitionOf(record.Key, t.partitions)),
		Header:  encodeHeaders(record),
		Data:    record.Value,
	}
	if size, limit := headerSize(m.Header)+len(m.Data), b.conn.MaxPayload(); int64(size) > limit {
		return tooLarge(record, size, limit, "raise max_payload of the server, or send less")
	}
	b.mu.Lock()
	b.sent[m] = answerTo{call: c, index: i}
	b.mu.Unlock()
	// No retry: whether to send again is the caller's decision.
	if _, err := b.js.PublishMsgAsync(m, jetstream.WithRetryAttempts(0), jetstream.WithStallWait(stallWait)); err != nil {
		b.mu.Lock()
		delete(b.sent, m)
		b.mu.Unlock()
		return classifySend(err, record)
	}
	return nil
}

// take settles a record whose answer came.
func (c *call) take(ctx context.Context, a answer) {
	delete(c.waiting, a.index)
	if a.err == nil {
		record := &c.records[a.index]
		record.Place = broker.Place(record.Topic, PartitionOf(record.Key, c.partitions[a.index]), int64(a.sequence))
	}
	c.settle(a.index, c.classify(ctx, a))
}

// settle notes a record's answer, and releases or fails those behind it.
func (c *call) settle(i int, err error) {
	c.errs[i] = err
	if err == nil {
		if next := c.next[i]; next >= 0 {
			c.ready = append(c.ready, next)
		}
		return
	}
	for i = c.next[i]; i >= 0; i = c.next[i] {
		c.errs[i] = broker.ErrPredecessor
	}
}

// giveUp settles what has no answer, after taking those that have come.
func (c *call) giveUp(ctx context.Context, err error) {
	for {
		select {
		case a := <-c.answers:
			c.take(ctx, a)
			continue
		default:
		}
		break
	}
	for i := range c.waiting {
		c.settle(i, broker.Unknown(err))
	}
	for _, i := range c.ready { // never sent, but nobody has to know
		c.settle(i, broker.Unknown(err))
	}
}

func (c *call) failAll(err error) []error {
	for i := range c.errs {
		c.errs[i] = err
	}
	return c.errs
}

// answered and failed are called by the client library, which must not be kept
// waiting.
func (b *Broker) answered(_ jetstream.JetStream, m *nats.Msg, ack *jetstream.PubAck) {
	if ack.Duplicate {
		b.answer(m, 0, errDuplicate)
		return
	}
	b.answer(m, ack.Sequence, nil)
}

func (b *Broker) failed(_ jetstream.JetStream, m *nats.Msg, err error) { b.answer(m, 0, err) }

func (b *Broker) answer(m *nats.Msg, sequence uint64, err error) {
	b.mu.Lock()
	to, waiting := b.sent[m]
	delete(b.sent, m)
	b.mu.Unlock()
	if !waiting {
		return
	}
	to.call.answers <- answer{to.index, sequence, err}
}

// classify says what an answer means, asking the server about the stream where
// ctx leaves time for that.
func (c *call) classify(ctx context.Context, a answer) error {
	b, record := c.broker, &c.records[a.index]
	switch {
	case a.err == nil:
		return nil
	case errors.Is(a.err, errDuplicate):
		return broker.Retryable(a.err)
	case errors.Is(a.err, jetstream.ErrNoStreamResponse):
		b.forget(record.Topic) // made anew, with another number of partitions?
	case isTooLarge(a.err):
		if _, info, err := b.look(ctx, record.Topic); err == nil {
			return tooLarge(record, headerSize(encodeHeaders(record))+len(record.Value), int64(info.Config.MaxMsgSize), "raise max_msg_size of the stream, or send less")
		}
	}
	return classifySend(a.err, record)
}
