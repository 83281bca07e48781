package natsjs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
)

// subscription is a member of a group. It implements [broker.Assigner].
type subscription struct {
	broker    *Broker
	group     string
	topics    map[string]*topic // as they were at Subscribe
	positions *positions

	arrived chan struct{} // has room for one: something was buffered or went wrong

	mu       sync.Mutex
	closed   bool
	readers  []*reader // of the assigned partitions
	rotation int       // lets every partition be the first to fill a batch in its turn
	done     chan struct{}
}

// Subscribe joins a group. Nothing is read before partitions are assigned.
func (b *Broker) Subscribe(ctx context.Context, request broker.SubscribeRequest) (broker.Subscription, error) {
	fail := func(err error) (broker.Subscription, error) {
		return nil, &waybill.Error{Op: "subscribe", Key: request.Group, Err: err}
	}
	if request.Group == "" || len(request.Topics) == 0 {
		return fail(errors.New("group and topics are required"))
	}
	if err := b.usable(); err != nil {
		return fail(err)
	}
	topics := make(map[string]*topic, len(request.Topics))
	for _, name := range request.Topics {
		t, _, err := b.look(ctx, name)
		if err != nil {
			return fail(fmt.Errorf("topic %s: %w", name, classifyLookup(err)))
		}
		topics[name] = t
	}
	positions, err := b.openPositions(ctx, request.Group)
	if err != nil {
		return fail(fmt.Errorf("open bucket %s: %w", b.config.positionsBucket(), classifyLookup(err)))
	}
	return &subscription{
		broker: b, group: request.Group, topics: topics, positions: positions,
		arrived: make(chan struct{}, 1), done: make(chan struct{}),
	}, nil
}

// Partitions lists the partitions of all topics. It fails when a topic was made
// anew with another number of them: their keys are distributed otherwise.
func (s *subscription) Partitions(ctx context.Context) ([]broker.Partition, error) {
	fail := func(err error) ([]broker.Partition, error) {
		return nil, &waybill.Error{Op: "list partitions", Key: s.group, Err: err}
	}
	if err := s.usable(); err != nil {
		return fail(err)
	}
	var all []broker.Partition
	for name, before := range s.topics {
		now, _, err := s.broker.look(ctx, name)
		if err != nil {
			return fail(fmt.Errorf("topic %s: %w", name, classifyLookup(err)))
		}
		if now.partitions != before.partitions {
			return fail(fmt.Errorf("topic %s has %d partitions now, it had %d", name, now.partitions, before.partitions))
		}
		for id := range now.partitions {
			all = append(all, broker.Partition{Topic: name, ID: int32(id)})
		}
	}
	slices.SortFunc(all, comparePartitions)
	return all, nil
}

// Assign starts and stops the readers of partitions.
func (s *subscription) Assign(ctx context.Context, partitions []broker.Partition) error {
	fail := func(err error) error { return &waybill.Error{Op: "assign", Key: s.group, Err: err} }
	for _, p := range partitions {
		if t := s.topics[p.Topic]; t == nil || p.ID < 0 || int(p.ID) >= t.partitions {
			return fail(fmt.Errorf("there is no partition %s/%d", p.Topic, p.ID))
		}
	}
	if err := s.usable(); err != nil {
		return fail(err)
	}
	s.mu.Lock()
	var keep, drop []*reader
	missing := slices.Clone(partitions)
	for _, r := range s.readers {
		if slices.Contains(partitions, r.partition) {
			keep = append(keep, r)
			missing = slices.DeleteFunc(missing, func(p broker.Partition) bool { return p == r.partition })
		} else {
			drop = append(drop, r)
		}
	}
	s.readers = keep
	s.mu.Unlock()
	stopReaders(drop)

	slices.SortFunc(missing, comparePartitions)
	var fresh []*reader
	for _, p := range slices.Compact(missing) {
		r, err := s.newReader(ctx, p)
		if err != nil {
			return fail(fmt.Errorf("%s/%d: %w", p.Topic, p.ID, classifyLookup(err)))
		}
		fresh = append(fresh, r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fail(errClosed)
	}
	for _, r := range fresh {
		r.start()
	}
	s.readers = append(s.readers, fresh...)
	slices.SortFunc(s.readers, func(a, b *reader) int { return comparePartitions(a.partition, b.partition) })
	return nil
}

// Poll returns what the readers have buffered.
func (s *subscription) Poll(ctx context.Context, limit int, wait time.Duration) ([]broker.Delivery, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for expired := wait <= 0; ; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		batch, trouble, closed := s.take(max(limit, 1))
		switch {
		case closed:
			return nil, &waybill.Error{Op: "poll", Key: s.group, Err: broker.Unavailable(broker.ScopeBroker, errClosed, "")}
		case len(batch) > 0:
			return batch, nil
		case expired && trouble != nil: // only now: it may have passed meanwhile
			return nil, &waybill.Error{Op: "poll", Key: s.group, Err: trouble}
		case expired:
			return nil, nil
		}
		select {
		case <-s.arrived:
		case <-timer.C:
			expired = true
		case <-s.done:
		case <-s.broker.closed:
		case <-ctx.Done():
		}
	}
}

func (s *subscription) take(limit int) (batch []broker.Delivery, trouble error, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.broker.isClosed() {
		return nil, nil, true
	}
	s.rotation++
	for i := range s.readers {
		r := s.readers[(i+s.rotation)%len(s.readers)]
		var err error
		if batch, err = r.take(batch, limit); err != nil {
			trouble = err
		}
	}
	if trouble == nil {
		trouble = s.broker.usable()
	}
	return batch, trouble, false
}

// Commit raises the positions in the bucket, all of them at the same time.
func (s *subscription) Commit(ctx context.Context, positions []broker.Position) error {
	fail := func(err error) error { return &waybill.Error{Op: "commit", Key: s.group, Err: err} }
	if err := s.usable(); err != nil {
		return fail(err)
	}
	topics := make([]*topic, len(positions))
	for i, p := range positions {
		t := s.topics[p.Partition.Topic]
		if t == nil || p.Partition.ID < 0 || int(p.Partition.ID) >= t.partitions {
			return fail(fmt.Errorf("there is no partition %s/%d", p.Partition.Topic, p.Partition.ID))
		}
		topics[i] = s.streamOf(p.Partition, t)
	}
	ctx, done := s.broker.ask(ctx, "")
	defer done()
	errs := make([]error, len(positions))
	var all sync.WaitGroup
	for i, p := range positions {
		all.Go(func() { errs[i] = s.positions.raise(ctx, topics[i], p.Partition.ID, p.Settled) })
	}
	all.Wait()
	for i, err := range errs {
		if err != nil {
			p := positions[i].Partition
			return fail(fmt.Errorf("%s/%d: %w", p.Topic, p.ID, classifyLookup(verdict(ctx, err))))
		}
	}
	return nil
}

// streamOf returns the stream that the partition's deliveries came from, which
// may have been made anew since Subscribe.
func (s *subscription) streamOf(p broker.Partition, otherwise *topic) *topic {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.readers {
		if r.partition == p {
			return r.stream()
		}
	}
	return otherwise
}

// Close stops the readers.
func (s *subscription) Close() error {
	s.mu.Lock()
	readers := s.readers
	s.readers = nil
	if !s.closed {
		s.closed = true
		close(s.done)
	}
	s.mu.Unlock()
	stopReaders(readers)
	return nil
}

func (s *subscription) usable() error {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return broker.Unavailable(broker.ScopeBroker, errors.New("the subscription is closed"), "")
	}
	return s.broker.usable()
}

// notify wakes Poll.
func (s *subscription) notify() {
	select {
	case s.arrived <- struct{}{}:
	default:
	}
}

func comparePartitions(a, b broker.Partition) int {
	switch {
	case a.Topic < b.Topic:
		return -1
	case a.Topic > b.Topic:
		return 1
	}
	return int(a.ID) - int(b.ID)
}
