package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
)

// leaveTimeout bounds the farewell to a group whose coordinator may be away.
const leaveTimeout = 2 * time.Second

var errNotOwned = errors.New("the partition does not belong to this member any more, its session was lost")

// subscription is a member of a group.
type subscription struct {
	broker *Broker
	group  string
	link   *link
	client *kgo.Client

	grown map[string]bool // topics of whose new partitions was told; only fetched uses it

	mu     sync.Mutex
	owned  map[broker.Partition]*place
	closed bool
	done   chan struct{}
	ended  chan struct{} // closed when Close is through
}

// place is where this member is in a partition. All are positions to read next,
// -1 where nothing is known.
type place struct {
	committed int64
	read      int64
}

// Subscribe joins a group. The cluster shares the topics' partitions among its
// members.
func (b *Broker) Subscribe(ctx context.Context, request broker.SubscribeRequest) (broker.Subscription, error) {
	fail := func(err error) (broker.Subscription, error) {
		return nil, &waybill.Error{Op: "subscribe", Key: request.Group, Err: err}
	}
	if request.Group == "" || len(request.Topics) == 0 {
		return fail(errors.New("group and topics are required"))
	}
	if err := b.usable(ctx); err != nil {
		return fail(err)
	}
	for _, name := range request.Topics {
		detail, err := b.look(ctx, name)
		if err != nil {
			return fail(fmt.Errorf("topic %s: %w", name, b.link.classifyRequest(err)))
		}
		b.counts.see(name, len(detail.Partitions))
	}
	s := &subscription{
		broker: b, group: request.Group, link: newLink(b.config.Logger),
		owned: make(map[broker.Partition]*place), grown: make(map[string]bool),
		done: make(chan struct{}), ended: make(chan struct{}),
	}
	client, err := kgo.NewClient(s.options(request.Topics)...)
	if err != nil {
		return fail(err)
	}
	s.client = client
	b.mu.Lock()
	closed := b.closed
	if !closed {
		b.subscriptions[s] = struct{}{}
	}
	b.mu.Unlock()
	if closed {
		_ = s.Close()
		return fail(broker.Unavailable(broker.ScopeBroker, errClosed, ""))
	}
	return s, nil
}

func (s *subscription) options(topics []string) []kgo.Opt {
	c := &s.broker.config
	return append(c.options(),
		kgo.WithHooks(s.link),
		kgo.ConsumerGroup(s.group),
		kgo.ConsumeTopics(topics...),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.SessionTimeout(c.SessionTimeout),
		kgo.HeartbeatInterval(min(c.SessionTimeout/10, 3*time.Second)),
		kgo.RebalanceTimeout(c.RebalanceTimeout),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		// What was never read is read from the oldest record on, and so is a
		// partition whose position does not exist: again rather than never.
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(500*time.Millisecond),
		kgo.OnPartitionsAssigned(s.assigned),
		kgo.OnPartitionsRevoked(s.taken),
		kgo.OnPartitionsLost(s.taken),
		kgo.OnOffsetsFetched(s.fetched),
	)
}

func (s *subscription) assigned(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for topic, ids := range partitions {
		for _, id := range ids {
			s.owned[broker.Partition{Topic: topic, ID: id}] = &place{committed: -1, read: -1}
		}
		if len(ids) > 0 {
			s.broker.counts.has(topic, slices.Max(ids))
		}
	}
}

func (s *subscription) taken(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for topic, ids := range partitions {
		for _, id := range ids {
			delete(s.owned, broker.Partition{Topic: topic, ID: id})
		}
	}
}

// fetched learns where the group is in partitions that were assigned.
func (s *subscription) fetched(_ context.Context, _ *kgo.Client, response *kmsg.OffsetFetchResponse) error {
	before := make(map[string]int)
	defer func() { s.compareCounts(before) }()
	s.mu.Lock()
	defer s.mu.Unlock()
	see := func(topic string, id int32, offset int64, metadata *string) {
		if metadata != nil {
			before[topic] = max(before[topic], noted(*metadata))
		}
		if p := s.owned[broker.Partition{Topic: topic, ID: id}]; p != nil && offset >= 0 {
			p.committed, p.read = max(p.committed, offset), max(p.read, offset)
		}
	}
	for _, t := range response.Topics {
		for _, p := range t.Partitions {
			see(t.Topic, p.Partition, p.Offset, p.Metadata)
		}
	}
	for _, g := range response.Groups {
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				see(t.Topic, p.Partition, p.Offset, p.Metadata)
			}
		}
	}
	return nil
}

// Poll lets partitions move first, and keeps them where they are once it
// returns records.
func (s *subscription) Poll(ctx context.Context, limit int, wait time.Duration) ([]broker.Delivery, error) {
	fail := func(err error) ([]broker.Delivery, error) {
		return nil, &waybill.Error{Op: "poll", Key: s.group, Err: s.link.classifyRequest(err)}
	}
	if s.isClosed() {
		return fail(kgo.ErrClientClosed)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.client.AllowRebalance()
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	var timer <-chan time.Time
	if wait > 0 {
		timer = time.After(wait)
		go func() {
			select {
			case <-timer:
			case <-s.done:
			case <-waiting.Done():
			}
			cancel()
		}()
	} else {
		waiting = nil // what is there already
	}
	fetches := s.client.PollRecords(waiting, max(limit, 1))
	batch, err := s.deliver(fetches)
	switch {
	case len(batch) > 0:
		return batch, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case s.isClosed():
		return fail(kgo.ErrClientClosed)
	case err != nil:
		return fail(err)
	}
	if trouble := s.link.trouble(); trouble != nil {
		return fail(noConnection(trouble))
	}
	return nil, nil
}

func (s *subscription) deliver(fetches kgo.Fetches) (batch []broker.Delivery, trouble error) {
	fetches.EachError(func(topic string, id int32, err error) {
		var loss *kgo.ErrDataLoss
		switch {
		case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		case errors.As(err, &loss): // seen by deliverPartition as well, when records come
			s.broker.config.Logger.Error("the cluster lost records", "group", s.group, "topic", topic, "partition", id, "error", err)
		default:
			trouble = err
			if topic != "" {
				trouble = fmt.Errorf("%s/%d: %w", topic, id, err)
			}
		}
	})
	var resets []PositionResetInfo
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		if len(p.Records) > 0 {
			var reset *PositionResetInfo
			batch, reset = s.deliverPartition(batch, p)
			if reset != nil {
				resets = append(resets, *reset)
			}
		}
	})
	for _, info := range resets {
		s.broker.config.Logger.Error("a group's position did not exist", "reset", info)
		if hook := s.broker.config.Events.PositionReset; hook != nil {
			hook(info)
		}
	}
	return batch, trouble
}

func (s *subscription) deliverPartition(batch []broker.Delivery, p kgo.FetchTopicPartition) ([]broker.Delivery, *PositionResetInfo) {
	first, last := p.Records[0], p.Records[len(p.Records)-1]
	var reset *PositionResetInfo
	s.mu.Lock()
	if at := s.owned[broker.Partition{Topic: p.Topic, ID: p.Partition}]; at != nil {
		// A gap alone may be compaction or a transaction's mark. It is a loss when the
		// log begins behind the wanted position.
		if at.read >= 0 && (first.Offset < at.read || p.LogStartOffset > at.read) {
			reset = &PositionResetInfo{Group: s.group, Topic: p.Topic, Partition: p.Partition, Wanted: at.read, Got: first.Offset}
			at.committed = min(at.committed, first.Offset)
		}
		at.read = last.Offset + 1
	}
	s.mu.Unlock()
	for _, r := range p.Records {
		batch = append(batch, broker.Delivery{Record: decode(r), Partition: r.Partition, Position: r.Offset, Timestamp: r.Timestamp})
	}
	return batch, reset
}

// Commit stores positions of partitions that belong to this member.
func (s *subscription) Commit(ctx context.Context, positions []broker.Position) error {
	fail := func(err error) error {
		return &waybill.Error{Op: "commit", Key: s.group, Err: s.link.classifyRequest(err)}
	}
	if s.isClosed() {
		return fail(kgo.ErrClientClosed)
	}
	offsets, err := s.higher(positions)
	if err != nil {
		return fail(err)
	}
	if len(offsets) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	s.client.CommitOffsetsSync(s.withCounts(ctx), offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, response *kmsg.OffsetCommitResponse, failure error) {
		if err = failure; err == nil {
			err = s.committed(offsets, response)
		}
	})
	if err != nil {
		return fail(err)
	}
	return nil
}

// higher returns the positions that are greater than what was committed.
func (s *subscription) higher(positions []broker.Position) (map[string]map[int32]kgo.EpochOffset, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]map[int32]kgo.EpochOffset)
	for _, position := range positions {
		p := position.Partition
		at := s.owned[p]
		if at == nil {
			return nil, fmt.Errorf("%s/%d: %w", p.Topic, p.ID, errNotOwned)
		}
		next := position.Settled + 1
		if next <= at.committed || next <= out[p.Topic][p.ID].Offset {
			continue
		}
		if out[p.Topic] == nil {
			out[p.Topic] = make(map[int32]kgo.EpochOffset)
		}
		out[p.Topic][p.ID] = kgo.EpochOffset{Epoch: -1, Offset: next}
	}
	return out, nil
}

func (s *subscription) committed(offsets map[string]map[int32]kgo.EpochOffset, response *kmsg.OffsetCommitResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	answered := 0
	var failure error
	for _, t := range response.Topics {
		for _, p := range t.Partitions {
			answered++
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				failure = fmt.Errorf("%s/%d: %w", t.Topic, p.Partition, err)
				continue
			}
			if at := s.owned[broker.Partition{Topic: t.Topic, ID: p.Partition}]; at != nil {
				at.committed = max(at.committed, offsets[t.Topic][p.Partition].Offset)
			}
		}
	}
	if failure == nil && answered == 0 {
		return errors.New("the cluster confirmed nothing")
	}
	return failure
}

// Close leaves the group.
func (s *subscription) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		<-s.ended
		return nil
	}
	s.closed = true
	close(s.done)
	s.mu.Unlock()
	defer close(s.ended)
	s.broker.mu.Lock()
	delete(s.broker.subscriptions, s)
	s.broker.mu.Unlock()
	s.client.AllowRebalance()
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	_ = s.client.LeaveGroupContext(ctx) // else the session times out
	s.client.CloseAllowingRebalance()
	return nil
}

func (s *subscription) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}
