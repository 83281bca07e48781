package kafka

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// counts remembers how many partitions each topic had when it was first used. A
// key stays in its partition as long as this process runs, also when the topic
// is given more.
type counts struct {
	changed func(PartitionsChangedInfo)

	mu     sync.Mutex
	topics map[string]*count
}

type count struct {
	first, now int
}

// see notes a topic's number of partitions and returns the one to work with. A
// smaller number than before means that the topic was made anew.
func (c *counts) see(topic string, n int) int {
	c.mu.Lock()
	known := c.topics[topic]
	if known == nil || n < known.first {
		known = &count{first: n, now: n}
		c.topics[topic] = known
	}
	changed := n > known.now
	known.now = n
	info := PartitionsChangedInfo{Topic: topic, Before: known.first, Now: n}
	c.mu.Unlock()
	if changed {
		c.changed(info)
	}
	return info.Before
}

// has notes that a partition of a topic exists.
func (c *counts) has(topic string, id int32) {
	c.mu.Lock()
	known := c.topics[topic]
	more := known != nil && int(id) >= known.now
	c.mu.Unlock()
	if more {
		c.see(topic, int(id)+1)
	}
}

// current returns how many partitions a topic has now, or 0 when that is not known.
func (c *counts) current(topic string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.topics[topic]; known != nil {
		return known.now
	}
	return 0
}

// forget makes a topic one that was never used.
func (c *counts) forget(topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.topics, topic)
}

// partitioner chooses partitions as the Java client does, by murmur2 of the key,
// among as many as the topic had at first.
type partitioner struct {
	inner  kgo.Partitioner
	counts *counts
}

func newPartitioner(c *counts) kgo.Partitioner {
	return &partitioner{inner: kgo.StickyKeyPartitioner(nil), counts: c}
}

// ForTopic implements [kgo.Partitioner].
func (p *partitioner) ForTopic(topic string) kgo.TopicPartitioner {
	return &topicPartitioner{TopicPartitioner: p.inner.ForTopic(topic), topic: topic, counts: p.counts}
}

type topicPartitioner struct {
	kgo.TopicPartitioner
	topic  string
	counts *counts
	last   int // what counts made of seen
	seen   int
}

// Partition implements [kgo.TopicPartitioner].
func (p *topicPartitioner) Partition(r *kgo.Record, n int) int {
	if n != p.seen {
		p.seen, p.last = n, p.counts.see(p.topic, n)
	}
	return p.TopicPartitioner.Partition(r, p.last)
}

// PartitionOf returns the partition, of n, that a key belongs to.
func PartitionOf(key string, n int) int32 {
	r := &kgo.Record{Key: []byte(key)}
	return int32(kgo.StickyKeyPartitioner(nil).ForTopic("").Partition(r, n))
}
