// Command order-service takes orders over HTTP and ships the ones that are
// paid. It is one process for the sake of the example: the order service with
// its relay, and the shipping consumer with a database of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/natsjs"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/relay"
)

type options struct {
	listen   string
	data     string
	database string
	shipping string
	nats     string
}

func main() {
	var o options
	flag.StringVar(&o.listen, "listen", "127.0.0.1:8080", "address of the HTTP service")
	flag.StringVar(&o.data, "data", "order-service-data", "folder of the SQLite files and of the broker inside this process")
	flag.StringVar(&o.database, "database", "", "postgres:// URL of the order service's database; empty: SQLite in -data")
	flag.StringVar(&o.shipping, "shipping-database", "", "postgres:// URL of the consumer's database; empty: the same as -database")
	flag.StringVar(&o.nats, "nats", "", "URL of a NATS server with JetStream; empty: one inside this process")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, &o); err != nil {
		fmt.Fprintln(os.Stderr, "order-service:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends, and returns when everything under way is finished.
func run(ctx context.Context, o *options) (err error) {
	orders, shipping, err := openDatabases(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shipping.close(), orders.close()) }()
	nats, closeBroker, err := openBroker(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeBroker()) }()
	if err := nats.EnsureTopics(ctx, []broker.TopicSpec{{Name: topic}}); err != nil {
		return err
	}

	r, err := relay.New(orders.outbox, nats, nil)
	if err != nil {
		return err
	}
	consumer, err := shipping.consume(nats, &inbox.Config{Group: "shipping", Topics: []string{topic}})
	if err != nil {
		return err
	}
	service := &service{
		db: orders.sql, shipments: shipping.sql, wake: r.Wake,
		writer: outbox.NewWriter(orders.appender, &outbox.Config{Source: "/order-service"}),
	}
	health := func() (relay.Health, inbox.Health) { return r.Health(), consumer.Health() }
	return serve(ctx, o.listen, service.handler(health), r.Run, consumer.Run)
}

// openBroker connects to a NATS server, or starts one in this process first.
func openBroker(ctx context.Context, o *options) (*natsjs.Broker, func() error, error) {
	url, stop := o.nats, func() error { return nil }
	if url == "" {
		server, err := natsjs.StartEmbedded(ctx, &natsjs.EmbeddedConfig{StoreDir: filepath.Join(o.data, "nats")})
		if err != nil {
			return nil, nil, err
		}
		url, stop = server.ClientURL(), server.Close
	}
	nats, err := natsjs.Open(ctx, url, nil)
	if err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return nats, func() error { return errors.Join(nats.Close(), stop()) }, nil
}

// serve runs the HTTP service and the workers. When ctx ends, or one of them
// does, the service stops first, so that no order comes in that nobody will
// relay before the process ends; then the workers finish what they have begun.
func serve(ctx context.Context, address string, handler http.Handler, workers ...func(context.Context) error) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	var wg sync.WaitGroup
	failed := make([]error, len(workers)+1)
	for i, run := range workers {
		wg.Go(func() {
			defer cancel() // one without the others is of no use
			failed[i] = run(work)
		})
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	wg.Go(func() {
		defer cancel()
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			failed[len(workers)] = err
		}
	})
	slog.Info("order service listens", "url", "http://"+listener.Addr().String())

	<-ctx.Done()
	grace, done := context.WithTimeout(work, 10*time.Second)
	defer done()
	err = server.Shutdown(grace)
	stopWork()
	wg.Wait()
	slog.Info("order service stopped")
	return errors.Join(err, errors.Join(failed...))
}
