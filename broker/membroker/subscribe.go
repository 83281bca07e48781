package membroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
)

// group is the state of one consumer group. Guarded by server.mu.
type group struct {
	members   []*subscription // in the order of joining
	owners    map[broker.Partition]*subscription
	committed map[broker.Partition]int64
}

// subscription is one member of a group.
type subscription struct {
	client *Broker
	group  *group
	name   string // the group's
	topics []string
	closed bool
	// owned maps each partition that is being read to the next position.
	owned map[broker.Partition]int64
	// rotation lets every partition be the first to fill a batch in its turn.
	rotation int
}

// Subscribe joins a group. The broker assigns the partitions.
func (b *Broker) Subscribe(ctx context.Context, request broker.SubscribeRequest) (broker.Subscription, error) {
	sub, err := b.subscribe(ctx, request)
	if err != nil {
		return nil, err
	}
	return sub, nil
}

func (b *Broker) subscribe(ctx context.Context, request broker.SubscribeRequest) (*subscription, error) {
	fail := func(err error) (*subscription, error) {
		return nil, &waybill.Error{Op: "subscribe", Key: request.Group, Err: err}
	}
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	if request.Group == "" || len(request.Topics) == 0 {
		return fail(errors.New("group and topics are required"))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.usable(); err != nil {
		return fail(err)
	}
	for _, name := range request.Topics {
		if b.topics[name] == nil {
			return fail(broker.Unavailable(broker.ScopeTopic, fmt.Errorf("topic %s: %w", name, errNoTopic), hintCreateTopic))
		}
	}
	g := b.groups[request.Group]
	if g == nil {
		g = &group{owners: make(map[broker.Partition]*subscription), committed: make(map[broker.Partition]int64)}
		b.groups[request.Group] = g
	}
	topics := slices.Clone(request.Topics)
	slices.Sort(topics)
	return &subscription{
		client: b, group: g, name: request.Group,
		topics: slices.Compact(topics),
		owned:  make(map[broker.Partition]int64),
	}, nil
}

// Poll takes part in the sharing of partitions and returns records of those it
// owns. Partitions change hands here and nowhere else, as long as the session
// lives.
func (s *subscription) Poll(ctx context.Context, limit int, wait time.Duration) ([]broker.Delivery, error) {
	return s.poll(ctx, limit, wait, s.rebalance)
}

func (s *subscription) poll(ctx context.Context, limit int, wait time.Duration, prepare func()) ([]broker.Delivery, error) {
	b := s.client
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for expired := wait <= 0; ; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		b.mu.Lock()
		err := s.usable()
		var batch []broker.Delivery
		if err == nil {
			prepare()
			batch = s.take(max(limit, 1))
		}
		changed, closed := b.changed, s.closed || b.closed
		b.mu.Unlock()
		switch {
		case len(batch) > 0:
			return batch, nil
		case closed:
			return nil, err
		case expired: // an outage is reported only now: it may have ended meanwhile
			return nil, err
		}
		select {
		case <-changed:
		case <-timer.C:
			expired = true
		case <-ctx.Done():
		}
	}
}

// take returns the next records of the owned partitions.
func (s *subscription) take(limit int) []broker.Delivery {
	partitions := slices.SortedFunc(maps.Keys(s.owned), comparePartitions)
	if len(partitions) == 0 {
		return nil
	}
	s.rotation++
	var batch []broker.Delivery
	for i := range partitions {
		p := partitions[(i+s.rotation)%len(partitions)]
		records := s.client.topics[p.Topic].partitions[p.ID]
		next := s.owned[p]
		for next < int64(len(records)) && len(batch) < limit {
			batch = append(batch, cloneDelivery(records[next]))
			next++
		}
		s.owned[p] = next
	}
	return batch
}

// rebalance gives up what is another member's now and takes what is free.
func (s *subscription) rebalance() {
	g := s.group
	changed := false
	if !slices.Contains(g.members, s) {
		g.members = append(g.members, s)
		changed = true
	}
	target := s.client.target(g, s)
	for p := range s.owned {
		if !target[p] {
			delete(s.owned, p)
			delete(g.owners, p)
			changed = true
		}
	}
	for p := range target {
		if g.owners[p] == nil {
			g.owners[p] = s
			s.owned[p] = g.next(p)
			changed = true
		}
	}
	if changed {
		s.client.notify()
	}
}

// target returns the partitions that a member should have: every n-th of each
// topic, n being the number of members that read it.
func (s *server) target(g *group, member *subscription) map[broker.Partition]bool {
	target := make(map[broker.Partition]bool)
	for _, name := range member.topics {
		var place, readers int
		for _, m := range g.members {
			if m == member {
				place = readers
			}
			if slices.Contains(m.topics, name) {
				readers++
			}
		}
		for id := range s.topics[name].partitions {
			if id%readers == place {
				target[broker.Partition{Topic: name, ID: int32(id)}] = true
			}
		}
	}
	return target
}

// Commit stores positions of partitions that this member owns.
func (s *subscription) Commit(ctx context.Context, positions []broker.Position) error {
	return s.commit(ctx, positions, func(p broker.Partition) error {
		if s.group.owners[p] != s {
			return errors.New("the partition belongs to another member")
		}
		return nil
	})
}

func (s *subscription) commit(ctx context.Context, positions []broker.Position, allowed func(broker.Partition) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b := s.client
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := s.usable(); err != nil {
		return &waybill.Error{Op: "commit", Key: s.name, Err: err}
	}
	for _, position := range positions {
		p := position.Partition
		err := allowed(p)
		if t := b.topics[p.Topic]; err == nil && (t == nil || p.ID < 0 || int(p.ID) >= len(t.partitions)) {
			err = errors.New("no such partition")
		} else if err == nil && position.Settled >= int64(len(t.partitions[p.ID])) {
			err = fmt.Errorf("position %d lies beyond the end", position.Settled)
		}
		if err != nil {
			return &waybill.Error{Op: "commit", Key: fmt.Sprintf("%s %s/%d", s.name, p.Topic, p.ID), Err: err}
		}
	}
	for _, position := range positions {
		if position.Settled >= s.group.next(position.Partition) {
			s.group.committed[position.Partition] = position.Settled
		}
	}
	b.notify()
	return nil
}

// Close leaves the group.
func (s *subscription) Close() error {
	b := s.client
	b.mu.Lock()
	defer b.mu.Unlock()
	s.closed = true
	s.group.leave(s)
	b.notify()
	return nil
}

func (s *subscription) usable() error {
	if s.closed {
		return broker.Unavailable(broker.ScopeBroker, errors.New("the subscription is closed"), "")
	}
	return s.client.usable()
}

// next is the first position that is not settled.
func (g *group) next(p broker.Partition) int64 {
	if at, ok := g.committed[p]; ok {
		return at + 1
	}
	return 0
}

func (g *group) leave(s *subscription) {
	g.members = slices.DeleteFunc(g.members, func(m *subscription) bool { return m == s })
	for p, owner := range g.owners {
		if owner == s {
			delete(g.owners, p)
		}
	}
	clear(s.owned)
}

func comparePartitions(a, b broker.Partition) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.ID, b.ID))
}
