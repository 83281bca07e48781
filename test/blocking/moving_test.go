package blocking

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/ops"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/test/lab"
)

const patience = 3 * time.Minute

// stall makes each Publish hang until it is given up, or the stall ends.
func stall(b *membroker.Broker) (stalled *atomic.Int32, end func()) {
	gone := make(chan struct{})
	stalled = &atomic.Int32{}
	b.SetGate(func(ctx context.Context, _ []waybill.Record) error {
		stalled.Add(1)
		select {
		case <-gone:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return stalled, func() {
		b.SetGate(nil)
		close(gone)
	}
}

// move runs a relay, and stops it.
func move(tb testing.TB, d *database, b *membroker.Broker, config relay.Config) (stop func()) {
	tb.Helper()
	config.Logger = slog.New(slog.DiscardHandler)
	r, err := relay.New(d.outbox, b, &config)
	if err != nil {
		tb.Fatal(err)
	}
	return running(tb, r.Run)
}

// tidy runs a cleanup of whatever is settled, round after round.
func tidy(tb testing.TB, d *database, config ops.CleanupConfig) (stop func()) {
	tb.Helper()
	config.Retention = time.Millisecond
	logs := &lab.Output{}
	config.Logger = slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelWarn}))
	c, err := ops.NewCleanup(d.outbox, nil, &config)
	if err != nil {
		tb.Fatal(err)
	}
	halt := running(tb, c.Run)
	return func() {
		halt()
		if text := logs.String(); text != "" {
			tb.Errorf("cleanup failed:\n%s", text)
		}
	}
}

func running(tb testing.TB, run func(context.Context) error) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			tb.Errorf("Run returned %v, want nil", err)
		}
	}
	tb.Cleanup(stop)
	return stop
}

// settled waits until the queue is empty.
func settled(tb testing.TB, d *database) {
	tb.Helper()
	lab.Until(tb, patience, "an empty queue", func() bool {
		counts, err := d.outbox.Counts(tb.Context())
		return err == nil && counts.Pending == 0
	})
}
