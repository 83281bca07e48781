package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/cdc"
	"github.com/waybillhq/waybill/cmd/waybill/internal/adapter"
	"github.com/waybillhq/waybill/cmd/waybill/internal/config"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/store"
)

// relay drains the queue with a relay whose settings are the defaults.
func (t *task) relay(ctx context.Context, d *database, h *house) (*outcome, error) {
	publisher, err := h.publisher(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = publisher.Close() }()
	var source cdc.Source // nil where the relay polls
	if t.Mode == store.ModeCDC {
		own, done, err := t.log()
		if err != nil {
			return nil, err
		}
		defer done()
		source = own
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	result := &outcome{}
	var last time.Time
	var failed error
	began := now()
	r, err := relay.New(d.store, publisher, &relay.Config{
		Source: source, Mode: t.Mode, Forget: t.Forget, Logger: quiet(), Default: relay.TopicConfig{Format: waybill.Format(t.Format)},
		Events: relay.Events{
			Settled: func(info relay.SettledInfo) {
				last = now()
				if result.Events += info.Sent; t.Events > 0 && result.Events >= t.Events {
					cancel()
				}
			},
			Failed: func(info relay.FailedInfo) { failed = errors.Join(failed, info.Err); cancel() },
			Feed: func(info relay.FeedInfo) {
				if info.State == cdc.Streaming && result.Follows == 0 {
					result.Follows = since(began)
				}
			},
			Stats: func(info relay.Stats) {
				if info.Feed != nil {
					result.Told = info.Feed.Told
				}
			},
		},
	})
	if err != nil {
		return nil, err
	}
	began = now()
	if err := r.Run(ctx); err != nil {
		return nil, err
	}
	result.Seconds = last.Sub(began).Seconds()
	if failed == nil && result.Events < t.Events {
		failed = fmt.Errorf("%d of %d events were sent", result.Events, t.Events)
	}
	return result, failed
}

// log returns the log of the task's database, and what leaves it as it was.
func (t *task) log() (adapter.Source, func(), error) {
	settings := &config.Config{}
	settings.Store.Kind, settings.Store.DSN, settings.Relay.Mode = t.Store, t.DSN, t.Mode
	source, err := adapter.OpenSource(settings, quiet())
	if err != nil {
		return nil, nil, err
	}
	return source, func() {
		// A database with a replication slot cannot be dropped.
		ctx, cancel := context.WithTimeout(context.Background(), dropLimit)
		defer cancel()
		_ = errors.Join(source.Drop(ctx), source.Close())
	}, nil
}
