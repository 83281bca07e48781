package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/relay"
)

// relay drains the queue with a relay whose settings are the defaults.
func (t *task) relay(ctx context.Context, d *database, h *house) (*outcome, error) {
	publisher, err := h.publisher(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = publisher.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	result := &outcome{}
	var last time.Time
	var failed error
	r, err := relay.New(d.store, publisher, &relay.Config{
		Forget: t.Forget, Logger: quiet(), Default: relay.TopicConfig{Format: waybill.Format(t.Format)},
		Events: relay.Events{
			Settled: func(info relay.SettledInfo) {
				last = now()
				if result.Events += info.Sent; t.Events > 0 && result.Events >= t.Events {
					cancel()
				}
			},
			Failed: func(info relay.FailedInfo) { failed = errors.Join(failed, info.Err); cancel() },
		},
	})
	if err != nil {
		return nil, err
	}
	began := now()
	if err := r.Run(ctx); err != nil {
		return nil, err
	}
	result.Seconds = last.Sub(began).Seconds()
	if failed == nil && result.Events < t.Events {
		failed = fmt.Errorf("%d of %d events were sent", result.Events, t.Events)
	}
	return result, failed
}
