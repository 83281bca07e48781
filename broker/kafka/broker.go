package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
)

const (
	// requestTimeout bounds one question to the cluster.
	requestTimeout = 10 * time.Second
	// probeTimeout bounds the question whether a lost cluster is back.
	probeTimeout = 2 * time.Second
	// recordTries bounds how often a record is sent within DeliveryTimeout; what
	// the server last said about it is then the answer.
	recordTries = 10
	// unknownTopicTries is how often metadata may lack a topic. A new topic takes
	// a moment to be known everywhere.
	unknownTopicTries = 2
	maxBuffered       = 1 << 20 // records of a call
)

var errClosed = errors.New("the client is closed")

const hintBroker = "start the brokers, or look at network, TLS and credentials; the client connects again by itself"

// Broker is a client of a Kafka cluster. It implements [broker.Publisher],
// [broker.Subscriber], [broker.TopicAdmin] and [broker.Checker]. All methods may
// be called from several goroutines.
type Broker struct {
	config  Config
	link    *link
	counts  *counts
	client  *kgo.Client // asks questions
	admin   *kadm.Client
	limits  limits
	senders senders

	mu            sync.Mutex
	closed        bool
	subscriptions map[*subscription]struct{}
	// life ends with Close.
	life context.Context
	end  context.CancelFunc
}

// Open connects to a cluster. It fails when no broker answers now; later the
// client connects again for ever.
func Open(ctx context.Context, config *Config) (*Broker, error) {
	c, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	b := &Broker{
		config:        c,
		link:          newLink(c.Logger),
		counts:        &counts{topics: make(map[string]*count)},
		subscriptions: make(map[*subscription]struct{}),
	}
	b.life, b.end = context.WithCancel(context.Background())
	b.counts.changed = b.partitionsChanged
	b.limits.init(b)
	b.senders.broker = b
	fail := func(err error) (*Broker, error) {
		return nil, &waybill.Error{Op: "connect to kafka", Key: fmt.Sprint(c.Brokers), Err: err, Hint: "are the brokers running, and are the credentials right?"}
	}
	if b.client, err = kgo.NewClient(append(c.options(), kgo.WithHooks(b.link))...); err != nil {
		return fail(err)
	}
	ping, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := b.client.Ping(ping); err != nil {
		b.client.Close()
		return fail(err)
	}
	b.admin = kadm.NewClient(b.client)
	b.admin.SetTimeoutMillis(int32(requestTimeout / time.Millisecond))
	return b, nil
}

func (b *Broker) producerOptions() []kgo.Opt {
	codec, _ := b.config.codec()
	return append(b.config.options(),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(newPartitioner(b.counts)),
		kgo.ProducerBatchCompression(codec),
		kgo.ProducerBatchMaxBytesFn(b.limits.batch),
		kgo.BrokerMaxWriteBytes(int32(max(100<<20, b.config.MaxRecordBytes+1<<20))),
		kgo.MaxBufferedRecords(maxBuffered),
		kgo.RecordDeliveryTimeout(b.config.DeliveryTimeout),
		kgo.ProduceRequestTimeout(b.config.DeliveryTimeout),
		kgo.RecordRetries(recordTries),
		kgo.UnknownTopicRetries(unknownTopicTries),
		kgo.ManualFlushing(),
	)
}

// Close ends all subscriptions and closes all connections.
func (b *Broker) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	b.end()
	open := b.subscriptions
	b.subscriptions = nil
	b.mu.Unlock()
	var all sync.WaitGroup
	for s := range open {
		all.Go(func() { _ = s.Close() })
	}
	all.Wait()
	b.senders.close()
	b.client.Close()
	return nil
}

func (b *Broker) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// usable reports why nothing can be sent now. While there is no connection it
// asks whether the cluster is back, so that nothing is given to a client that
// would keep it.
func (b *Broker) usable(ctx context.Context) error {
	if b.isClosed() {
		return broker.Unavailable(broker.ScopeBroker, errClosed, "")
	}
	if trouble := b.probe(ctx); trouble != nil {
		return noConnection(trouble)
	}
	return nil
}

// probe returns nil when a broker can be reached. It asks only where the last
// attempt to connect has failed.
func (b *Broker) probe(ctx context.Context) error {
	trouble := b.link.trouble()
	if trouble == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if b.client.Ping(ctx) == nil {
		return nil
	}
	return trouble
}

func noConnection(trouble error) error {
	return broker.Unavailable(broker.ScopeBroker, fmt.Errorf("there is no connection: %w", trouble), hintBroker)
}

func (b *Broker) partitionsChanged(info PartitionsChangedInfo) {
	b.config.Logger.Warn("a topic was given more partitions: keys stay where they were until this process ends, and belong to others then",
		"topic", info.Topic, "before", info.Before, "now", info.Now)
	if hook := b.config.Events.PartitionsChanged; hook != nil {
		hook(info)
	}
}

// limits knows the largest batch of each topic.
type limits struct {
	broker *Broker

	mu     sync.Mutex
	topics map[string]int32 // 0: asked in vain
}

func (l *limits) init(b *Broker) { l.broker, l.topics = b, make(map[string]int32) }

// batch returns the bytes that a batch of a topic may have.
func (l *limits) batch(topic string) int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	limit := int32(l.broker.config.MaxRecordBytes)
	if of := l.topics[topic]; of > 0 {
		return max(min(limit, of), 512)
	}
	return limit
}

// learn asks for the limits of topics that are not known. Where this client has
// not the right to know, what the server refuses tells.
func (l *limits) learn(ctx context.Context, topics ...string) {
	l.mu.Lock()
	topics = slices.DeleteFunc(topics, func(name string) bool { _, known := l.topics[name]; return known })
	l.mu.Unlock()
	if len(topics) > 0 {
		l.ask(ctx, topics)
	}
}

// relearn asks again, and reports whether the limit is another one now.
func (l *limits) relearn(ctx context.Context, topic string) bool {
	before := l.batch(topic)
	l.ask(ctx, []string{topic})
	return l.batch(topic) != before
}

func (l *limits) ask(ctx context.Context, topics []string) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	configs, err := l.broker.admin.DescribeTopicConfigs(ctx, topics...)
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, config := range configs {
		if config.Err != nil && !deniedError(config.Err) {
			continue // it may be made later
		}
		l.topics[config.Name] = 0
		if value, ok := intConfig(config, "max.message.bytes"); ok {
			l.topics[config.Name] = int32(value)
		}
	}
}

func (l *limits) forget(topic string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.topics, topic)
}
