package natsjs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
)

const (
	// fetchRecords and fetchBytes bound one request, and so what a partition may
	// have in memory: the buffer is filled again when it is half empty.
	fetchRecords = 256
	fetchBytes   = 4 << 20
	// fetchWait is how long an idle request stays at the server.
	fetchWait = 20 * time.Second
	// fetchBeat is how often the server says meanwhile that it is still there.
	fetchBeat = 5 * time.Second
	// inactive is when the server forgets a consumer nobody asks anything of.
	inactive = time.Minute
	retryMin = 20 * time.Millisecond
	retryMax = 2 * time.Second
)

var (
	errMissed    = errors.New("a message was missed")
	errReconnect = errors.New("the connection changed")
	errTookAway  = errors.New("the partition was taken away")
)

// reader reads one partition into a buffer, by itself, until it is stopped.
type reader struct {
	subscription *subscription
	partition    broker.Partition
	cancel       context.CancelCauseFunc
	ctx          context.Context
	stopped      chan struct{}
	room         chan struct{} // has room for one: the buffer is half empty

	mu       sync.Mutex
	from     *topic
	next     uint64 // the first sequence number not yet buffered
	buffer   []broker.Delivery
	trouble  error // why nothing comes; nil when all is well
	consumer jetstream.Consumer
	order    uint64 // of the consumer's last message
}

// newReader finds out where the group has to read on.
func (s *subscription) newReader(ctx context.Context, p broker.Partition) (*reader, error) {
	ctx, done := s.broker.ask(ctx, "")
	defer done()
	t, info, err := s.broker.look(ctx, p.Topic)
	if err != nil {
		return nil, err
	}
	if t.partitions != s.topics[p.Topic].partitions {
		return nil, fmt.Errorf("the topic has %d partitions now, it had %d", t.partitions, s.topics[p.Topic].partitions)
	}
	at, err := s.positions.read(ctx, p.Topic, p.ID)
	if err != nil {
		return nil, verdict(ctx, err)
	}
	next := uint64(max(at.settled, 0)) + 1
	log := s.broker.config.Logger
	switch {
	case at.revision == 0:
		next = 1
	case at.made != t.made.UnixNano():
		log.Warn("the position belongs to a former stream of this topic; reading from the oldest record",
			"group", s.group, "topic", p.Topic, "partition", p.ID, "position", at.settled)
		next = 1
	case next > info.State.LastSeq+1:
		// The server lost records that it had confirmed, as by a power failure. Their
		// numbers are given to new records, so the position says nothing any more.
		log.Warn("the position lies beyond the end of the stream; reading from the oldest record",
			"group", s.group, "topic", p.Topic, "partition", p.ID, "position", at.settled, "end", info.State.LastSeq)
		next = 1
	}
	r := &reader{
		subscription: s, partition: p, from: t, next: next,
		stopped: make(chan struct{}), room: make(chan struct{}, 1),
	}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	return r, nil
}

func (r *reader) start() { go r.run() }

// stopReaders returns when none of them runs any more.
func stopReaders(readers []*reader) {
	for _, r := range readers {
		r.cancel(errTookAway)
	}
	for _, r := range readers {
		<-r.stopped
	}
}

func (r *reader) stream() *topic {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.from
}

// take moves buffered deliveries into the batch, up to its limit.
func (r *reader) take(batch []broker.Delivery, limit int) ([]broker.Delivery, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(limit-len(batch), len(r.buffer))
	batch = append(batch, r.buffer[:n]...)
	clear(r.buffer[:n])
	r.buffer = r.buffer[n:]
	if len(r.buffer) <= fetchRecords/2 {
		select {
		case r.room <- struct{}{}:
		default:
		}
	}
	return batch, r.trouble
}

func (r *reader) run() {
	defer close(r.stopped)
	defer r.dropConsumer()
	backoff := retryMin
	for r.waitForRoom() {
		changed := r.subscription.broker.linkChange()
		err := r.fetch(changed)
		switch {
		case r.ctx.Err() != nil:
			return
		case err == nil:
			backoff = retryMin
			r.report(nil)
			continue
		case errors.Is(err, errMissed):
			r.dropConsumer()
			continue
		}
		r.dropConsumer()
		r.report(classifyLookup(err))
		timer := time.NewTimer(backoff)
		select {
		case <-changed: // the connection is back, perhaps
			backoff = retryMin
		case <-timer.C:
			backoff = min(2*backoff, retryMax)
		case <-r.ctx.Done():
		case <-r.subscription.broker.closed:
		}
		timer.Stop()
	}
}

// waitForRoom reports false when it is time to stop.
func (r *reader) waitForRoom() bool {
	for {
		if r.ctx.Err() != nil || r.subscription.broker.isClosed() {
			return false
		}
		r.mu.Lock()
		full := len(r.buffer) > fetchRecords/2
		r.mu.Unlock()
		if !full {
			return true
		}
		select {
		case <-r.room:
		case <-r.ctx.Done():
			return false
		case <-r.subscription.broker.closed:
			return false
		}
	}
}

// fetch makes one request and buffers what it brings. It returns early when the
// connection changes, because the request is lost then.
func (r *reader) fetch(changed <-chan struct{}) error {
	if err := r.subscription.broker.usable(); err != nil {
		return err
	}
	if r.consumer == nil {
		if err := r.createConsumer(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(r.ctx, fetchWait)
	defer cancel()
	maxBytes := max(fetchBytes, int(r.subscription.broker.conn.MaxPayload())+4096)
	batch, err := r.consumer.Fetch(fetchRecords, jetstream.FetchMaxBytes(maxBytes),
		jetstream.FetchContext(ctx), jetstream.FetchHeartbeat(fetchBeat))
	if err != nil {
		return err
	}
	messages := batch.Messages()
	for {
		select {
		case m, more := <-messages:
			if !more {
				if err := batch.Error(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
					return err
				}
				return nil
			}
			if err := r.keep(m); err != nil {
				return err
			}
		case <-changed:
			return errReconnect
		}
	}
}

// keep buffers one message, unless one before it was missed.
func (r *reader) keep(m jetstream.Msg) error {
	meta, err := m.Metadata()
	if err != nil {
		return err
	}
	if meta.Sequence.Consumer != r.order+1 {
		return errMissed
	}
	r.order++
	delivery := broker.Delivery{
		Record:    waybill.Record{Topic: r.partition.Topic, Value: m.Data()},
		Partition: r.partition.ID,
		Position:  int64(meta.Sequence.Stream),
		Timestamp: meta.Timestamp,
	}
	decodeHeaders(m.Headers(), &delivery.Record)
	r.mu.Lock()
	r.buffer = append(r.buffer, delivery)
	r.next = meta.Sequence.Stream + 1
	r.trouble = nil
	r.mu.Unlock()
	r.subscription.notify()
	return nil
}

// createConsumer makes a consumer that starts at the next record.
func (r *reader) createConsumer() error {
	b := r.subscription.broker
	ctx, done := b.ask(r.ctx, "")
	defer done()
	t, _, err := b.look(ctx, r.partition.Topic)
	if err != nil {
		return err
	}
	r.mu.Lock()
	if !t.made.Equal(r.from.made) {
		b.config.Logger.Warn("the stream was made anew; reading from its oldest record", "group", r.subscription.group, "topic", t.name, "partition", r.partition.ID)
		r.next = 1
	}
	if t.partitions != r.from.partitions {
		r.mu.Unlock()
		return fmt.Errorf("the topic has %d partitions now, it had %d", t.partitions, r.from.partitions)
	}
	r.from = t
	next := r.next
	r.mu.Unlock()
	r.consumer, err = b.js.CreateConsumer(ctx, t.stream, jetstream.ConsumerConfig{
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       next,
		FilterSubject:     b.config.subject(t.name, t.partitions, r.partition.ID),
		AckPolicy:         jetstream.AckNonePolicy,
		InactiveThreshold: inactive,
		MemoryStorage:     true,
		Replicas:          1,
	})
	r.order = 0
	if err != nil {
		r.consumer = nil // not an interface that holds nothing
		return verdict(ctx, err)
	}
	return nil
}

// dropConsumer deletes the consumer, or leaves it to the server to forget it.
func (r *reader) dropConsumer() {
	if r.consumer == nil {
		return
	}
	b, info := r.subscription.broker, r.consumer.CachedInfo()
	r.consumer = nil
	if b.usable() != nil {
		return
	}
	ctx, done := b.ask(context.Background(), "")
	defer done()
	_ = b.js.DeleteConsumer(ctx, info.Stream, info.Name)
}

func (r *reader) report(trouble error) {
	r.mu.Lock()
	r.trouble = trouble
	r.mu.Unlock()
}
