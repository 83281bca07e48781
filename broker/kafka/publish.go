package kafka

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
)

const (
	// patienceWithoutConnection is how long a call waits for a lost connection
	// before it takes its records back.
	patienceWithoutConnection = 500 * time.Millisecond
	// takeBack is how long it then waits for the library to give them up.
	takeBack = time.Second
)

// Publish sends each record as soon as the one before it of its topic and key is
// confirmed, and does not wait between records of different keys. So a key never
// has two records on their way, whatever the cluster makes of the first one.
func (b *Broker) Publish(ctx context.Context, records []waybill.Record) []error {
	c := newCall(b, records)
	if len(records) == 0 {
		return c.errs
	}
	if err := b.usable(ctx); err != nil {
		return c.failAll(err)
	}
	if err := ctx.Err(); err != nil {
		return c.failAll(broker.Unknown(err))
	}
	b.limits.learn(ctx, c.topics()...)
	c.run(ctx)
	return c.errs
}

type answer struct {
	index int
	err   error
}

// call is one Publish on its way.
type call struct {
	broker  *Broker
	records []waybill.Record
	kafka   []*kgo.Record
	errs    []error
	next    []int // of each record, the following one of its topic and key, or -1
	ready   []int // may be sent now
	waiting map[int]struct{}
	refused []answer    // in a batch that the cluster did not take
	answers chan answer // has room for an answer to each record, so nobody blocks
	before  int64       // produce requests when the call began
	moved   []string    // topics that may have been made anew
	// relearnt are the topics whose limits this call has asked for again.
	relearnt []string
	lost     error // why no broker can be reached
}

func newCall(b *Broker, records []waybill.Record) *call {
	c := &call{
		broker:  b,
		records: records,
		errs:    make([]error, len(records)),
		next:    make([]int, len(records)),
		waiting: make(map[int]struct{}, len(records)),
		answers: make(chan answer, len(records)),
		before:  b.link.produced.Load(),
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
	// Ends with the call, so that the library forgets what has no answer by then.
	sending, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(c.broker.life, stop)()
	lost := c.broker.link.loss()
	var patience <-chan time.Time
	for {
		for len(c.ready) > 0 {
			i := c.ready[0]
			c.ready = c.ready[1:]
			c.send(sending, i)
		}
		if len(c.waiting) == 0 {
			if len(c.refused) == 0 {
				return
			}
			c.isolate(sending)
			continue
		}
		select {
		case a := <-c.answers:
			c.take(a)
		case <-lost:
			lost, patience = nil, time.After(patienceWithoutConnection)
		case <-patience:
			if c.lost != nil {
				c.giveUp(context.DeadlineExceeded)
				return
			}
			if c.lost = c.broker.probe(ctx); c.lost == nil {
				lost, patience = c.broker.link.loss(), nil
			} else {
				stop()
				patience = time.After(takeBack)
			}
		case <-ctx.Done():
			c.giveUp(ctx.Err())
			return
		case <-c.broker.life.Done():
			c.giveUp(errClosed)
			return
		}
	}
}

// send hands a record to the library. Its answer arrives in c.answers.
func (c *call) send(ctx context.Context, i int) {
	record := &c.records[i]
	if size := recordSize(record); size > c.limit(ctx, record.Topic, size) {
		c.settle(i, tooLarge(record, size, c.limit(ctx, record.Topic, 0), ""))
		return
	}
	c.waiting[i] = struct{}{}
	c.broker.producer.Produce(ctx, c.kafka[i], func(_ *kgo.Record, err error) {
		c.answers <- answer{i, err}
	})
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
		c.broker.alone.forget(topic) // which the producer's refusal will lead to
	}
	return int(l.batch(topic))
}

func (c *call) take(a answer) {
	delete(c.waiting, a.index)
	switch {
	case a.err == nil:
		c.settle(a.index, nil)
	case refusal(a.err):
		c.refused = append(c.refused, a)
	default:
		c.fail(a)
	}
}

// fail settles a record that was not stored, or of which nothing is known.
func (c *call) fail(a answer) {
	b := c.broker
	if matches(a.err, topicMoved) {
		c.lookAgain(c.records[a.index].Topic)
	}
	sent := b.link.produced.Load() != c.before
	c.settle(a.index, b.classify(a.err, &c.records[a.index], sent, c.lost))
}

// lookAgain drops what is known of a topic that may have been made anew.
func (c *call) lookAgain(topic string) {
	if slices.Contains(c.moved, topic) {
		return
	}
	c.moved = append(c.moved, topic)
	c.broker.counts.forget(topic)
	c.broker.limits.forget(topic)
	c.broker.producer.PurgeTopicsFromProducing(topic)
	c.broker.alone.forget(topic)
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
func (c *call) giveUp(err error) {
	for {
		select {
		case a := <-c.answers:
			c.take(a)
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
	c.giveUpRefused()
}

func (c *call) failAll(err error) []error {
	for i := range c.errs {
		c.errs[i] = err
	}
	return c.errs
}
