package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"

	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/natsjs"
)

// brokerHouse is a broker that can go away and come back with all it had.
type brokerHouse interface {
	// open lets the broker be there, the first time with the topic made.
	open(ctx context.Context) error
	// away takes it away. Where that cannot be done, reason says why.
	away() error
	reason() string
	// close ends what the demo itself started.
	close() error

	topic() string
	group() string
	subscriber(ctx context.Context) (broker.Subscriber, error)
	// settings are the broker's in the relay's configuration file, flags and
	// environment what the relay needs beside it in the folder dir, and files what
	// must not be read by others.
	settings() string
	flags() []string
	environment(dir string) []string
	files() map[string]string
	describe() string
}

// newBrokerHouse returns the one for a URL, or an embedded one without.
func newBrokerHouse(ctx context.Context, text, dir, name string) (brokerHouse, error) {
	if text == "" {
		port, err := freePort(ctx)
		return &embeddedHouse{dir: dir, port: port}, err
	}
	return newServerHouse(ctx, text, name)
}

// embeddedHouse is a NATS server of the demo's own.
type embeddedHouse struct {
	dir    string
	port   int
	server *natsjs.Embedded // nil while it is away
}

func (h *embeddedHouse) url() string { return fmt.Sprintf("nats://%s", address(h.port)) }

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// open starts the server and makes the topic if it is missing.
func (h *embeddedHouse) open(ctx context.Context) error {
	server, err := natsjs.StartEmbedded(ctx, &natsjs.EmbeddedConfig{StoreDir: h.dir, Port: h.port})
	if err != nil {
		return err
	}
	h.server = server
	client, err := natsjs.Open(ctx, h.url(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	return client.EnsureTopics(ctx, []broker.TopicSpec{{Name: h.topic()}})
}

func (h *embeddedHouse) away() error {
	if h.server == nil {
		return nil
	}
	err := h.server.Close()
	h.server = nil
	return err
}

func (h *embeddedHouse) reason() string { return "" }
func (h *embeddedHouse) close() error   { return h.away() }
func (h *embeddedHouse) topic() string  { return "orders" }
func (h *embeddedHouse) group() string  { return "inventory" }

func (h *embeddedHouse) subscriber(ctx context.Context) (broker.Subscriber, error) {
	return natsjs.Open(ctx, h.url(), nil)
}

// While the demo runs the broker is its own process; the file says embedded, for later.
func (h *embeddedHouse) flags() []string             { return []string{"--set", "broker.kind=nats"} }
func (h *embeddedHouse) environment(string) []string { return nil }
func (h *embeddedHouse) files() map[string]string    { return nil }
func (h *embeddedHouse) describe() string            { return "a NATS server" }

// The configuration also serves a reader afterwards, when the demo's broker is
// gone: so the broker is embedded there.
func (h *embeddedHouse) settings() string {
	return fmt.Sprintf(`  kind: embedded
  url: %s
  dir: nats
  port: %d
`, h.url(), h.port)
}

// freePort returns a port that nobody listens on at this moment, and that systems
// do not lend to clients. While the server is away those that call it could be
// lent its port, and it would not come back.
func freePort(ctx context.Context) (port int, err error) {
	const lowest, count, tries = 20000, 12000, 100
	for range tries {
		port = lowest + rand.IntN(count)
		var listen net.ListenConfig
		var l net.Listener
		if l, err = listen.Listen(ctx, "tcp", address(port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, err
}

// configText is the configuration of the demo's relay, which also serves a
// reader afterwards.
func configText(at *site, house brokerHouse) string {
	orders, inventory := "dsn: "+ordersFile, "dsn: "+inventoryFile
	if at.kind != kindSQLite {
		orders, inventory = "dsn_file: "+ordersDSN, fmt.Sprintf("kind: %s\n    dsn_file: %s", at.kind, inventoryDSN)
	}
	return fmt.Sprintf(`# The configuration of the demo.
store:
  kind: %s
  %s
broker:
%srelay:
  lease_ttl: 2s
  topics:
    %s:
      format: envelope
inboxes:
  %s:
    %s
`, at.kind, orders, house.settings(), house.topic(), house.group(), inventory)
}
