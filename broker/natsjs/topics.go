package natsjs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
)

const (
	maxPartitions = 1024
	metaTopic     = "waybill-topic"
	metaCount     = "waybill-partitions"
	// lookupTimeout bounds one question about a stream.
	lookupTimeout = 5 * time.Second
)

const hintCreateTopic = "create the topic first, with EnsureTopics"

// topic is what is known of a topic's stream.
type topic struct {
	name       string
	stream     string
	partitions int
	// made tells a stream from a former one of the same name, whose sequence
	// numbers mean nothing here.
	made time.Time
}

// EnsureTopics makes a stream for each topic that has none.
func (b *Broker) EnsureTopics(ctx context.Context, topics []broker.TopicSpec) error {
	var errs []error
	for _, spec := range topics {
		if err := b.ensure(ctx, spec); err != nil {
			errs = append(errs, &waybill.Error{Op: "ensure topic", Key: spec.Name, Err: err})
		}
	}
	return errors.Join(errs...)
}

func (b *Broker) ensure(ctx context.Context, spec broker.TopicSpec) error {
	switch {
	case !waybill.ValidTopic(spec.Name):
		return errors.New("illegal name")
	case spec.Partitions < 0 || spec.Partitions > maxPartitions:
		return fmt.Errorf("%d partitions: use 1 to %d", spec.Partitions, maxPartitions)
	}
	if err := b.usable(); err != nil {
		return err
	}
	count := spec.Partitions
	if count == 0 {
		count = b.config.Partitions
	}
	have, _, err := b.look(ctx, spec.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = b.createStream(ctx, spec.Name, count)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another process was faster
			have, _, err = b.look(ctx, spec.Name)
		}
	}
	switch {
	case err != nil:
		return classifyLookup(err)
	case have != nil && spec.Partitions != 0 && have.partitions != spec.Partitions:
		return fmt.Errorf("it has %d partitions, not %d", have.partitions, spec.Partitions)
	}
	return nil
}

func (b *Broker) createStream(ctx context.Context, name string, partitions int) error {
	config := b.streamConfig(name, partitions)
	ctx, done := b.ask(ctx, "$JS.API.STREAM.CREATE."+config.Name)
	defer done()
	_, err := b.js.CreateStream(ctx, config)
	return verdict(ctx, err)
}

func (b *Broker) streamConfig(name string, partitions int) jetstream.StreamConfig {
	config := jetstream.StreamConfig{
		Name:        b.config.streamName(name),
		Description: "waybill topic " + name,
		Subjects:    []string{b.config.subjects(name, partitions)},
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardNew,
		Storage:     jetstream.FileStorage,
		Replicas:    b.config.Replicas,
		MaxAge:      max(b.config.Retention, 0),
		AllowDirect: true,
		Metadata:    map[string]string{metaTopic: name, metaCount: strconv.Itoa(partitions)},
	}
	if b.config.MaxBytes > 0 {
		config.MaxBytes = b.config.MaxBytes
	}
	if config.MaxAge > 0 {
		config.Duplicates = min(2*time.Minute, config.MaxAge)
	}
	return config
}

// topic returns what is known of a topic, asking the server the first time.
func (b *Broker) topic(ctx context.Context, name string) (*topic, error) {
	b.mu.Lock()
	known := b.topics[name]
	b.mu.Unlock()
	if known != nil {
		return known, nil
	}
	found, _, err := b.look(ctx, name)
	return found, err
}

// look asks the server about a topic's stream and remembers the answer.
func (b *Broker) look(ctx context.Context, name string) (*topic, *jetstream.StreamInfo, error) {
	ctx, done := b.ask(ctx, "$JS.API.STREAM.INFO."+b.config.streamName(name))
	defer done()
	stream, err := b.js.Stream(ctx, b.config.streamName(name))
	if err != nil {
		return nil, nil, verdict(ctx, err)
	}
	info := stream.CachedInfo()
	count, err := strconv.Atoi(info.Config.Metadata[metaCount])
	if err != nil || count < 1 || count > maxPartitions || info.Config.Metadata[metaTopic] != name {
		return nil, nil, fmt.Errorf("stream %s does not say that it holds this topic: %w", info.Config.Name, errForeignStream)
	}
	found := &topic{name: name, stream: info.Config.Name, partitions: count, made: info.Created}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.topics[name] = found
	return found, info, nil
}

// forget drops what is known of all topics, or of the given ones.
func (b *Broker) forget(names ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(names) == 0 {
		clear(b.topics)
	}
	for _, name := range names {
		delete(b.topics, name)
	}
}
