package natsjs_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/waybillhq/waybill/broker/brokertest"
	"github.com/waybillhq/waybill/broker/natsjs"
	"github.com/waybillhq/waybill/internal/testenv"
)

// testServer is an embedded server that can be stopped and started again at the
// same address.
type testServer struct {
	config natsjs.EmbeddedConfig
	*natsjs.Embedded
}

func startServer(t testing.TB) *testServer {
	t.Helper()
	s := &testServer{config: natsjs.EmbeddedConfig{StoreDir: filepath.Join(t.TempDir(), "nats"), Port: testenv.FreePorts(t, 1)}}
	s.start(t)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func (s *testServer) start(t testing.TB) {
	t.Helper()
	e, err := natsjs.StartEmbedded(t.Context(), &s.config)
	if err != nil {
		t.Fatal(err)
	}
	s.Embedded = e
}

func (s *testServer) stop(t testing.TB) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func (s *testServer) address() string {
	return fmt.Sprintf("127.0.0.1:%d", s.config.Port)
}

func open(t testing.TB, url string, config *natsjs.Config) *natsjs.Broker {
	t.Helper()
	b, err := natsjs.Open(t.Context(), url, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func TestConformance(t *testing.T) {
	server := startServer(t)
	between := startProxy(t, server.address())
	brokertest.Run(t, brokertest.Harness{
		Open: func(t testing.TB) brokertest.Client {
			b := open(t, between.url(), nil)
			return brokertest.Client{Publisher: b, Subscriber: b, Admin: b, Checker: b}
		},
		TooLarge: natsjs.EmbeddedMaxPayload + 1,
		Stop:     server.stop,
		Start:    server.start,
		Freeze:   between.freeze,

		ServerPackages: []string{"github.com/nats-io/nats-server/v2/server"},
	})
}

func BenchmarkBroker(b *testing.B) {
	server := startServer(b)
	brokertest.Bench(b, brokertest.Harness{Open: func(t testing.TB) brokertest.Client {
		client := open(t, server.ClientURL(), nil)
		return brokertest.Client{Publisher: client, Subscriber: client, Admin: client}
	}})
}
