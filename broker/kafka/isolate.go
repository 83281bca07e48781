package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybillhq/waybill/broker"
)

// A Kafka broker takes or refuses a batch as a whole, the library then fails all
// that waits for the same partition, and a batch may hold records of several
// calls. So the refusal of one record reaches many that are without fault.
//
// They are sent again by a producer that nobody else uses meanwhile and whose
// batches are what is given to it at once, in halves until those that are to
// blame stand alone.
type alone struct {
	broker *Broker
	// turn is held while the producer is in use, and guards what follows.
	turn    chan struct{}
	client  *kgo.Client
	closed  bool
	closing sync.WaitGroup // former producers

	staleMu sync.Mutex
	stale   []string // topics that were made anew
}

var errNotAlone = errors.New("a batch was refused because of another record")

func (s *alone) init(b *Broker) { s.broker, s.turn = b, make(chan struct{}, 1) }

// isolate settles the refused records of a call. Each belongs to another key.
func (c *call) isolate(ctx context.Context) {
	refused := c.refused
	c.refused = nil
	slices.SortFunc(refused, func(a, b answer) int { return a.index - b.index })
	groups := make(map[broker.Partition][]answer)
	var order []broker.Partition
	for _, a := range refused {
		p := broker.Partition{Topic: c.kafka[a.index].Topic, ID: c.kafka[a.index].Partition}
		if groups[p] == nil {
			order = append(order, p)
		}
		groups[p] = append(groups[p], a)
	}
	select {
	case c.broker.alone.turn <- struct{}{}:
		defer func() { <-c.broker.alone.turn }()
	case <-ctx.Done():
		c.refused = refused
		c.giveUpRefused()
		return
	}
	for _, p := range order {
		c.isolateGroup(ctx, groups[p])
	}
}

// isolateGroup sends records of one partition together.
func (c *call) isolateGroup(ctx context.Context, group []answer) {
	if ctx.Err() != nil {
		c.refused = append(c.refused, group...)
		c.giveUpRefused()
		return
	}
	var again []answer
	for i, err := range c.broker.alone.send(ctx, c, group) {
		a := answer{group[i].index, err}
		switch {
		case err == nil:
			c.settle(a.index, nil)
		case refusal(err):
			again = append(again, a)
		default:
			c.fail(a)
		}
	}
	switch n := len(again); {
	case n == 0:
	case n == 1 && len(group) == 1:
		if matches(again[0].err, tooLarges) {
			c.broker.limits.relearn(ctx, c.records[again[0].index].Topic) // to tell the right one
		}
		c.fail(again[0])
	case n == 1:
		c.isolateGroup(ctx, again)
	default:
		c.isolateGroup(ctx, again[:n/2])
		c.isolateGroup(ctx, again[n/2:])
	}
}

// giveUpRefused settles refused records for whose isolation no time is left.
// They were not stored, and nothing says that they are to blame.
func (c *call) giveUpRefused() {
	for _, a := range c.refused {
		c.settle(a.index, broker.Unavailable(broker.ScopePartition, fmt.Errorf("topic %s: %w: %w", c.records[a.index].Topic, errNotAlone, a.err), ""))
	}
	c.refused = nil
}

// send is called by the holder of the turn.
func (s *alone) send(ctx context.Context, c *call, group []answer) []error {
	errs := make([]error, len(group))
	client, err := s.open()
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	answers := make(chan answer, len(group))
	for i, a := range group {
		record := *c.kafka[a.index]
		record.Context = nil
		client.Produce(ctx, &record, func(_ *kgo.Record, err error) { answers <- answer{i, err} })
	}
	if err := client.Flush(ctx); err != nil {
		// What is left may be on its way. It must not go out with what is sent next.
		for i := range errs {
			errs[i] = err
		}
		s.client = nil
		s.closing.Go(client.Close)
		return errs
	}
	for range group {
		a := <-answers
		errs[a.index] = a.err
	}
	return errs
}

func (s *alone) open() (*kgo.Client, error) {
	if s.closed {
		return nil, kgo.ErrClientClosed
	}
	if s.client == nil {
		client, err := kgo.NewClient(append(s.broker.producerOptions(), kgo.ManualFlushing(), kgo.ProducerLinger(0))...)
		if err != nil {
			return nil, err
		}
		s.client = client
	}
	s.staleMu.Lock()
	stale := s.stale
	s.stale = nil
	s.staleMu.Unlock()
	s.client.PurgeTopicsFromProducing(stale...)
	return s.client, nil
}

func (s *alone) close() {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	s.closed = true
	if s.client != nil {
		s.client.Close()
	}
	s.closing.Wait()
}

// forget may be called while the producer is in use.
func (s *alone) forget(topic string) {
	s.staleMu.Lock()
	defer s.staleMu.Unlock()
	s.stale = append(s.stale, topic)
}
