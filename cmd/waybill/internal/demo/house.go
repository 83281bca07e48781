package demo

import (
	"context"
	"fmt"
	"net"

	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/natsjs"
)

// brokerHouse is a NATS server that can go away and come back with all it had.
type brokerHouse struct {
	dir    string
	port   int
	server *natsjs.Embedded // nil while it is away
}

func (h *brokerHouse) url() string { return fmt.Sprintf("nats://%s", address(h.port)) }

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// open starts the server and makes the topic if it is missing.
func (h *brokerHouse) open(ctx context.Context) error {
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
	return client.EnsureTopics(ctx, []broker.TopicSpec{{Name: topic}})
}

func (h *brokerHouse) close() error {
	if h.server == nil {
		return nil
	}
	err := h.server.Close()
	h.server = nil
	return err
}

// freePort returns a port that nobody listens on at this moment.
func freePort(ctx context.Context) (int, error) {
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", address(0))
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// configText is the configuration of the demo's relay. It also serves a reader
// afterwards, when the demo's broker is gone: so the broker is embedded here.
func configText(port int) string {
	return fmt.Sprintf(`# The configuration of the demo.
store:
  kind: sqlite
  dsn: %[1]s
broker:
  kind: embedded
  url: nats://%[2]s
  dir: nats
  port: %[3]d
relay:
  lease_ttl: 2s
  topics:
    %[4]s:
      format: envelope
inboxes:
  %[5]s:
    dsn: %[6]s
`, ordersFile, address(port), port, topic, group, inventoryFile)
}
