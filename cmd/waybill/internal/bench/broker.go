package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/kafka"
	"github.com/waybillhq/waybill/broker/natsjs"
)

// house is the broker with a topic made for the purpose.
type house struct {
	kind  string
	url   string
	topic string
	close func(context.Context) error // removes the topic, and ends what was started
}

// topicRetention bounds for how long a topic stays that could not be removed.
const topicRetention = time.Hour

func newHouse(ctx context.Context, text string) (*house, error) {
	kind, err := brokerOf(text)
	if err != nil {
		return nil, err
	}
	h := &house{kind: kind, url: text, topic: strings.ReplaceAll(newName(), "_", "-"), close: func(context.Context) error { return nil }}
	switch {
	case kind == kindNone:
		return h, nil
	case text == "":
		if err := h.start(ctx); err != nil {
			return nil, err
		}
	case kind == kindKafka:
		h.close = h.removeTopic
	}
	client, err := h.client(ctx)
	if err == nil {
		err = errors.Join(client.EnsureTopics(ctx, []broker.TopicSpec{{Name: h.topic}}), client.Close())
	}
	if err != nil {
		return nil, errors.Join(err, h.close(ctx))
	}
	return h, nil
}

// start starts a NATS server in this process.
func (h *house) start(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "waybill-bench-")
	if err != nil {
		return err
	}
	server, err := natsjs.StartEmbedded(ctx, &natsjs.EmbeddedConfig{StoreDir: dir})
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	h.url = server.ClientURL()
	h.close = func(context.Context) error { return errors.Join(server.Close(), os.RemoveAll(dir)) }
	return nil
}

// client is what both adapters are.
type client interface {
	broker.Subscriber
	broker.Publisher
	broker.TopicAdmin
}

func (h *house) client(ctx context.Context) (client, error) {
	if h.kind == kindKafka {
		c, err := kafka.ParseURL(h.url)
		if err != nil {
			return nil, err
		}
		c.TopicConfig = map[string]string{"retention.ms": fmt.Sprint(topicRetention.Milliseconds())}
		b, err := kafka.Open(ctx, c)
		if err != nil { // not b: a nil *kafka.Broker would not be a nil client
			return nil, err
		}
		return b, nil
	}
	b, err := natsjs.Open(ctx, h.url, &natsjs.Config{Retention: topicRetention})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// publisher is the one that a relay has.
func (h *house) publisher(ctx context.Context) (broker.Publisher, error) {
	if h.kind == kindNone {
		return nowhere{}, nil
	}
	return h.client(ctx)
}

// subscribe reads all partitions of the topic as the only member of a group.
func (h *house) subscribe(ctx context.Context, group string) (broker.Subscription, func(), error) {
	c, err := h.client(ctx)
	if err != nil {
		return nil, nil, err
	}
	subscription, err := c.Subscribe(ctx, broker.SubscribeRequest{Group: group, Topics: []string{h.topic}})
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	done := func() { _ = errors.Join(subscription.Close(), c.Close()) }
	if assigner, ok := subscription.(broker.Assigner); ok {
		partitions, err := assigner.Partitions(ctx)
		if err == nil {
			err = assigner.Assign(ctx, partitions)
		}
		if err != nil {
			done()
			return nil, nil, err
		}
	}
	return subscription, done, nil
}

// nowhere accepts everything: what is measured then is the relay and the
// database alone.
type nowhere struct{}

func (nowhere) Publish(_ context.Context, records []waybill.Record) []error {
	return make([]error, len(records))
}
func (nowhere) Close() error { return nil }

// removeTopic removes the topic from Kafka.
func (h *house) removeTopic(ctx context.Context) error {
	k, err := kafkaClient(h.url)
	if err != nil {
		return err
	}
	defer k.Close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropLimit)
	defer cancel()
	_, err = kadm.NewClient(k).DeleteTopic(ctx, h.topic)
	return err
}

func kafkaClient(url string) (*kgo.Client, error) {
	c, err := kafka.ParseURL(url)
	if err != nil {
		return nil, err
	}
	if c.TLS != nil || c.SASL != nil {
		return nil, optionError("--broker", errors.New("TLS and SASL"), "the raw limits are measured with a plain client: give a listener without them")
	}
	return kgo.NewClient(kgo.SeedBrokers(c.Brokers...), kgo.ClientID("waybill-bench"), kgo.ProducerBatchCompression(kgo.SnappyCompression()))
}

// version names the broker.
func (h *house) version(ctx context.Context) string {
	switch h.kind {
	case kindKafka:
		k, err := kafkaClient(h.url)
		if err != nil {
			return h.kind
		}
		defer k.Close()
		versions, err := kadm.NewClient(k).ApiVersions(ctx)
		if err != nil || len(versions) == 0 {
			return h.kind
		}
		for _, v := range versions {
			return h.kind + " " + kversion.FromString(v.VersionGuess()).VersionGuess()
		}
	case kindNATS:
		if v := natsVersion(h.url); v != "" {
			return h.kind + " " + v
		}
	}
	return h.kind
}

// quiet is for what would else be logged between the figures.
func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }
