package membroker

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
)

// DefaultPartitions is the number of partitions of a topic that names none.
const DefaultPartitions = 4

// DefaultMaxRecordBytes bounds key, value and headers of one record together.
const DefaultMaxRecordBytes = 4 << 20

var (
	errClosed      = errors.New("the client is closed")
	errUnreachable = errors.New("the broker cannot be reached")
	errDenied      = errors.New("access to the topic is denied")
	errNoTopic     = errors.New("the topic does not exist")
)

const hintCreateTopic = "create the topic first, with EnsureTopics"

// Broker is one client of an in-memory broker. It implements
// [broker.Publisher], [broker.Subscriber], [broker.TopicAdmin] and
// [broker.Checker]; its subscriptions have their partitions assigned by the
// broker. All methods may be called from several goroutines.
type Broker struct {
	*server
	closed bool // guarded by server.mu
}

// server is what all clients share.
type server struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced whenever anything changes
	topics  map[string]*topic
	groups  map[string]*group
	faults  faults
	// retention is what topics are said to have, where it is not for ever.
	retention map[string]time.Duration

	calls      int
	inFlight   map[topicKey]int
	violations []string
}

type topicKey struct{ topic, key string }

// topic is a list of partitions, and the order in which all of them accepted.
type topic struct {
	partitions [][]broker.Delivery
	accepted   []broker.Delivery
}

// New makes an empty broker with these topics, of [DefaultPartitions] each.
func New(topics ...string) *Broker {
	s := &server{
		changed:  make(chan struct{}),
		topics:   make(map[string]*topic),
		groups:   make(map[string]*group),
		inFlight: make(map[topicKey]int),
	}
	s.faults.maxRecordBytes = DefaultMaxRecordBytes
	for _, name := range topics {
		s.topics[name] = &topic{partitions: make([][]broker.Delivery, DefaultPartitions)}
	}
	return &Broker{server: s}
}

// Connect returns another client of the same broker.
func (b *Broker) Connect() *Broker { return &Broker{server: b.server} }

// Close ends this client and its subscriptions' use of it. The broker and what
// it holds stay, for other clients.
func (b *Broker) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for _, g := range b.groups {
		for _, m := range slices.Clone(g.members) {
			if m.client == b {
				g.leave(m)
			}
		}
	}
	b.notify()
	return nil
}

// EnsureTopics creates the topics that do not exist.
func (b *Broker) EnsureTopics(ctx context.Context, topics []broker.TopicSpec) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.usable(); err != nil {
		return err
	}
	var errs []error
	for _, spec := range topics {
		fail := func(err error) {
			errs = append(errs, &waybill.Error{Op: "ensure topic", Key: spec.Name, Err: err})
		}
		have, exists := b.topics[spec.Name]
		switch {
		case !waybill.ValidTopic(spec.Name):
			fail(errors.New("illegal name"))
		case spec.Partitions < 0:
			fail(fmt.Errorf("%d partitions", spec.Partitions))
		case exists && spec.Partitions != 0 && spec.Partitions != len(have.partitions):
			fail(fmt.Errorf("it has %d partitions, not %d", len(have.partitions), spec.Partitions))
		case !exists:
			n := spec.Partitions
			if n == 0 {
				n = DefaultPartitions
			}
			b.topics[spec.Name] = &topic{partitions: make([][]broker.Delivery, n)}
		}
	}
	b.notify()
	return errors.Join(errs...)
}

// Check reports whether the broker can be reached and the topics exist.
func (b *Broker) Check(_ context.Context, topics []string) []broker.Check {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.usable(); err != nil {
		return []broker.Check{{Name: "reachable", Detail: err.Error()}}
	}
	checks := []broker.Check{{Name: "reachable", OK: true, Detail: "in memory; nothing survives this process"}}
	for _, name := range topics {
		check := broker.Check{Name: "topic " + name}
		if t := b.topics[name]; t != nil {
			check.OK, check.Detail = true, fmt.Sprintf("%d partitions", len(t.partitions))
		} else {
			check.Detail, check.Hint = errNoTopic.Error(), hintCreateTopic
		}
		checks = append(checks, check)
	}
	return checks
}

// usable reports why this client can do nothing now. The caller holds mu.
func (b *Broker) usable() error {
	switch {
	case b.closed:
		return broker.Unavailable(broker.ScopeBroker, errClosed, "")
	case b.faults.outage:
		return broker.Unavailable(broker.ScopeBroker, errUnreachable, "")
	}
	return nil
}

// notify wakes all who wait for a change. The caller holds mu.
func (s *server) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// PartitionOf returns the partition, of n, that a key belongs to.
func PartitionOf(key string, n int) int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return int32(h.Sum32() % uint32(n))
}

func cloneRecord(r waybill.Record) waybill.Record {
	r.Value = slices.Clone(r.Value)
	r.Headers = slices.Clone(r.Headers)
	for i := range r.Headers {
		r.Headers[i].Value = slices.Clone(r.Headers[i].Value)
	}
	return r
}

func cloneDelivery(d broker.Delivery) broker.Delivery {
	d.Record = cloneRecord(d.Record)
	return d
}

func cloneDeliveries(all []broker.Delivery) []broker.Delivery {
	out := make([]broker.Delivery, len(all))
	for i := range all {
		out[i] = cloneDelivery(all[i])
	}
	return out
}
