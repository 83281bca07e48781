package broker

import (
	"context"
	"strconv"

	"github.com/waybillhq/waybill"
)

// Publisher sends records to one broker.
//
// Publish makes one attempt and never retries: the relay decides. It returns
// one error per record, in the same order, nil meaning that the broker has
// stored the record as durably as the adapter was configured for. Errors are
// classified with [Permanent], [Retryable], [Unavailable] or [Unknown]; an
// unclassified error counts as Retryable, and one that wraps the context's
// error as Unknown.
//
// If record i fails, no later record with the same topic and key in the same
// call has been stored; those are answered with [ErrPredecessor], so per-key
// order survives a retry. An adapter whose broker cannot promise that sends
// one record per key at a time.
//
// Publish returns soon after ctx ends; records that have no answer by then are
// Unknown. It may be called from several goroutines, but never with one key in
// two calls at once. It changes nothing of the records but Place, which it sets
// where it learns it; see [Place]. Where records have no answer, it may read the
// bytes of their values and headers for a while after it has returned: nobody
// changes these.
type Publisher interface {
	Publish(ctx context.Context, records []waybill.Record) []error
	Close() error
}

// Place is how a publisher says where a record was stored.
func Place(topic string, partition int32, position int64) string {
	text := make([]byte, 0, len(topic)+24)
	text = append(text, topic...)
	text = append(text, '[')
	text = strconv.AppendInt(text, int64(partition), 10)
	text = append(text, "]@"...)
	return string(strconv.AppendInt(text, position, 10))
}

// TopicSpec describes one topic for [TopicAdmin].
type TopicSpec struct {
	Name       string
	Partitions int // 0 means the adapter's default
}

// TopicAdmin is what a broker offers whose topics can be created from here.
type TopicAdmin interface {
	// EnsureTopics creates the topics that do not exist. A topic that exists
	// with another number of partitions is left alone and reported as an error,
	// because a changed number would break the order of its keys.
	EnsureTopics(ctx context.Context, topics []TopicSpec) error
}

// Check is one answer of a [Checker].
type Check struct {
	Name   string // "acks", "min.insync.replicas", "reachable"
	OK     bool
	Detail string // what was found
	Hint   string // what to do when not OK
}

// Checker is what a broker offers that can be examined by the doctor: whether
// it answers, and whether its settings keep what it acknowledges.
type Checker interface {
	Check(ctx context.Context, topics []string) []Check
}
