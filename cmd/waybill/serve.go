package main

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/cmd/waybill/internal/adapter"
	"github.com/waybillhq/waybill/cmd/waybill/internal/config"
	"github.com/waybillhq/waybill/ops"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/telemetry/promwaybill"
)

type serveCmd struct {
	Listen string `placeholder:"ADDRESS" help:"Where probes and metrics are, instead of serve.listen."`
}

// Help has the examples.
func (serveCmd) Help() string {
	return `The relay, with a cleanup on a schedule, the checks of reconcile.checks when they are due, and an HTTP listener, on loopback
by default:

	/healthz  200, or 503 when events do not flow; what is wrong by name, with a fix, as JSON
	/readyz   200 while the relay works, 503 while it starts or stops
	/livez    200; for those who restart what hangs: a restart mends no broker
	/metrics  for Prometheus

It ends in good order at the first SIGTERM or SIGINT.

Examples:

	waybill serve
	waybill serve --listen 127.0.0.1:9999
	waybill serve --set cleanup.retention=168h`
}

func (c *serveCmd) Run(a *app) (err error) {
	loaded, err := a.load()
	if err != nil {
		return err
	}
	address := loaded.Serve.Listen
	if c.Listen != "" {
		address = c.Listen
	}
	if err := checkRetention(&loaded.Config); err != nil && !loaded.Cleanup.Off {
		return err
	}
	watched, err := a.newWatch(&loaded.Config)
	if err != nil {
		return err
	}
	listener, err := listen(a.ctx, address)
	if err != nil {
		return err
	}
	st, err := a.openStore(loaded)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	topics := &promwaybill.Config{MaxTopics: loaded.Serve.MaxTopics, Topics: slices.Sorted(maps.Keys(loaded.Relay.Topics))}
	metrics := promwaybill.NewRelay(topics)
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics, promwaybill.NewOutbox(st, 0), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if watched != nil {
		registry.MustRegister(promwaybill.NewReconcile(watched, watched.checks, 0))
	}
	probes := newProbes(st, ops.StatusConfig{MaxPendingAge: loaded.Status.MaxPendingAge, NoTrigger: loaded.Store.NoTrigger}, a.secrets)
	server := &http.Server{Handler: handler(probes, registry), ReadHeaderTimeout: 5 * time.Second, ErrorLog: slog.NewLogLogger(a.logger.Handler(), slog.LevelWarn)}
	var beside sync.WaitGroup
	beside.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			a.logger.Error("probes and metrics ended", "error", err)
		}
	})
	defer func() {
		_ = server.Close() // a scrape that is cut off is repeated
		beside.Wait()
	}()
	a.logger.Info("probes and metrics are served", "at", "http://"+listener.Addr().String())
	if !loaded.Cleanup.Off {
		ctx, stop := context.WithCancel(a.ctx)
		defer stop()
		beside.Go(func() { a.cleanRegularly(ctx, st, &loaded.Config, watched) })
	}
	if watched != nil {
		ctx, stop := context.WithCancel(a.ctx)
		defer stop()
		beside.Go(func() { watched.run(ctx) })
	}
	return a.relay(loaded, st, metrics.Events, probes)
}

// listen tells what to do about an address that is taken.
func listen(ctx context.Context, address string) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	hint := "give another address by serve.listen or --listen"
	switch {
	case err == nil:
		return listener, nil
	case errors.Is(err, syscall.EADDRINUSE):
		hint = "another program listens there, perhaps a second waybill serve; " + hint
	case errors.Is(err, syscall.EACCES):
		hint = "ports below 1024 need a right of their own; " + hint
	}
	return nil, &waybill.Error{Op: "listen", Key: address, Hint: hint, Err: cause(err)}
}

// cause leaves out what the caller says itself.
func cause(err error) error {
	var failed *net.OpError
	if errors.As(err, &failed) && failed.Err != nil {
		return failed.Err
	}
	return err
}

func handler(p *probes, registry *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", p.health)
	mux.HandleFunc("GET /readyz", p.ready)
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		p.writeJSON(w, http.StatusOK, map[string]bool{"alive": true})
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux
}

// cleanRegularly does rounds until ctx ends. A round that fails is logged and
// tried again after the usual rest.
func (a *app) cleanRegularly(ctx context.Context, st adapter.Store, c *config.Config, watched *watch) {
	every := c.Cleanup.Every
	if every <= 0 {
		every = 10 * time.Minute
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		removed, err := a.cleanOnce(ctx, c.Cleanup, st, c, watched)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			a.logger.Warn("cleanup failed, to be repeated", "error", err, "in", every.String())
		case removed.Events+removed.Consumed > 0:
			a.logger.Info("cleanup", "events", removed.Events, "consumed", removed.Consumed)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// chain puts hooks before others.
type chain func(next relay.Events) relay.Events
