package adapter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/natsjs"
	"github.com/waybillhq/waybill/cmd/waybill/internal/config"
)

func natsConfig(c config.Broker, logger *slog.Logger) *natsjs.Config {
	return &natsjs.Config{
		Prefix: c.Prefix, Partitions: c.Partitions, Replicas: c.Replicas, Retention: c.Retention,
		CredentialsFile: c.CredentialsFile, Logger: logger,
	}
}

var natsSchemes = []string{"nats", "tls", "ws", "wss"}

func openNATS(ctx context.Context, c config.Broker, logger *slog.Logger) (Broker, error) {
	if c.URL == "" {
		return nil, missing("broker.url")
	}
	if scheme, _, ok := strings.Cut(c.URL, "://"); ok && !slices.Contains(natsSchemes, scheme) {
		return nil, &ConfigError{&waybill.Error{
			Op: "configure", Key: "broker.url", Err: fmt.Errorf("begins with %s, but broker.kind is nats", scheme),
			Hint: "set broker.kind to the broker that is meant, or name the server of NATS as nats://HOST:PORT",
		}}
	}
	b, err := natsjs.Open(ctx, c.URL, natsConfig(c, logger))
	if err != nil {
		return nil, err
	}
	return b, nil
}

// openEmbedded starts a server in this process and connects to it.
func openEmbedded(ctx context.Context, c config.Broker, logger *slog.Logger) (Broker, error) {
	server, err := natsjs.StartEmbedded(ctx, &natsjs.EmbeddedConfig{StoreDir: c.Dir, Port: c.Port, SyncAlways: c.SyncAlways, Logger: logger})
	if err != nil {
		return nil, err
	}
	b, err := natsjs.Open(ctx, server.ClientURL(), natsConfig(c, logger))
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	logger.Info("embedded broker listens", "url", server.ClientURL(), "dir", c.Dir)
	return &embedded{Broker: b, server: server, topics: make(map[string]bool)}, nil
}

// embedded is a server of our own with a client of it. Since nobody
// administers it, it makes topics as they come.
type embedded struct {
	Broker
	server *natsjs.Embedded

	mu     sync.Mutex
	topics map[string]bool
}

// Publish implements [broker.Publisher].
func (e *embedded) Publish(ctx context.Context, records []waybill.Record) []error {
	for _, spec := range e.unknownTopics(records) {
		// A failure shows in what Publish answers for the topic's records.
		if e.EnsureTopics(ctx, []broker.TopicSpec{spec}) == nil {
			e.mu.Lock()
			e.topics[spec.Name] = true
			e.mu.Unlock()
		}
	}
	return e.Broker.Publish(ctx, records)
}

func (e *embedded) unknownTopics(records []waybill.Record) []broker.TopicSpec {
	e.mu.Lock()
	defer e.mu.Unlock()
	var specs []broker.TopicSpec
	seen := make(map[string]bool)
	for i := range records {
		if name := records[i].Topic; !e.topics[name] && !seen[name] {
			seen[name] = true
			specs = append(specs, broker.TopicSpec{Name: name})
		}
	}
	return specs
}

// Close closes the client and then the server.
func (e *embedded) Close() error { return errors.Join(e.Broker.Close(), e.server.Close()) }

// DescribeBroker names a broker for people, without what is secret in its URL.
func DescribeBroker(c config.Broker) string {
	if c.Kind == "embedded" {
		return fmt.Sprintf("embedded nats at 127.0.0.1:%d, streams in %s", c.Port, c.Dir)
	}
	return c.Kind + " " + config.Redact(c.URL, nil)
}
