package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker/natsjs"
)

// producer is what somebody would use who has the broker's own library and no
// adapter: it is given records, all on their way at once, and returns when all
// are confirmed.
type producer interface {
	produce(ctx context.Context, records []waybill.Record) error
	close()
}

func (h *house) producer(ctx context.Context) (producer, error) {
	switch h.kind {
	case kindKafka:
		k, err := kafkaClient(h.url)
		return kafkaProducer{k}, err
	case kindNATS:
		return newNATSProducer(ctx, h)
	}
	return noProducer{}, nil
}

type noProducer struct{}

func (noProducer) produce(context.Context, []waybill.Record) error { return nil }
func (noProducer) close()                                          {}

type kafkaProducer struct{ client *kgo.Client }

func (p kafkaProducer) close() { p.client.Close() }

func (p kafkaProducer) produce(ctx context.Context, records []waybill.Record) error {
	var (
		all   sync.WaitGroup
		mu    sync.Mutex
		first error
	)
	all.Add(len(records))
	for i := range records {
		r := &records[i]
		k := &kgo.Record{Topic: r.Topic, Key: []byte(r.Key), Value: r.Value, Headers: make([]kgo.RecordHeader, len(r.Headers))}
		for j, h := range r.Headers {
			k.Headers[j] = kgo.RecordHeader{Key: h.Key, Value: h.Value}
		}
		p.client.Produce(ctx, k, func(_ *kgo.Record, err error) {
			if err != nil {
				mu.Lock()
				first = errors.Join(first, err)
				mu.Unlock()
			}
			all.Done()
		})
	}
	all.Wait()
	return first
}

// natsPending bounds the messages without an answer, as the adapter does.
const natsPending = 4096

type natsProducer struct {
	conn   *nats.Conn
	js     jetstream.JetStream
	topic  string
	parts  int
	prefix string
}

func newNATSProducer(ctx context.Context, h *house) (*natsProducer, error) {
	conn, err := nats.Connect(h.url)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(natsPending))
	if err != nil {
		conn.Close()
		return nil, err
	}
	p := &natsProducer{conn: conn, js: js, topic: h.topic}
	if err := p.learn(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return p, nil
}

// learn finds the subjects of the topic's stream.
func (p *natsProducer) learn(ctx context.Context) error {
	for info := range p.js.ListStreams(ctx).Info() {
		if info.Config.Metadata["waybill-topic"] != p.topic || len(info.Config.Subjects) != 1 {
			continue
		}
		pattern := info.Config.Subjects[0]
		p.prefix = pattern[:len(pattern)-1]
		_, err := fmt.Sscan(info.Config.Metadata["waybill-partitions"], &p.parts)
		return err
	}
	return fmt.Errorf("topic %s has no stream", p.topic)
}

func (p *natsProducer) close() { p.conn.Close() }

func (p *natsProducer) produce(ctx context.Context, records []waybill.Record) error {
	answers := make([]jetstream.PubAckFuture, len(records))
	for i := range records {
		r := &records[i]
		m := &nats.Msg{Subject: fmt.Sprintf("%s%d", p.prefix, natsjs.PartitionOf(r.Key, p.parts)), Data: r.Value, Header: make(nats.Header, len(r.Headers)+1)}
		for _, h := range r.Headers {
			m.Header[h.Key] = []string{string(h.Value)}
		}
		m.Header[jetstream.MsgIDHeader] = []string{r.EventID}
		var err error
		if answers[i], err = p.js.PublishMsgAsync(m, jetstream.WithStallWait(natsStall)); err != nil {
			return err
		}
	}
	for _, a := range answers {
		select {
		case <-a.Ok():
		case err := <-a.Err():
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

const natsStall = 10_000_000_000

func natsVersion(url string) string {
	conn, err := nats.Connect(url)
	if err != nil {
		return ""
	}
	defer conn.Close()
	return conn.ConnectedServerVersion()
}
