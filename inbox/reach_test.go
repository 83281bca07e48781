package inbox

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/store/memstore"
)

// punctual notes the longest time between two polls of its subscriptions, as a
// broker does that waits for its readers only so long.
type punctual struct {
	broker.Subscriber

	mu   sync.Mutex
	last time.Time
	most time.Duration
}

func (p *punctual) Subscribe(ctx context.Context, request broker.SubscribeRequest) (broker.Subscription, error) {
	s, err := p.Subscriber.Subscribe(ctx, request)
	return &punctualReader{Subscription: s, of: p}, err
}

type punctualReader struct {
	broker.Subscription
	of *punctual
}

func (r *punctualReader) Poll(ctx context.Context, limit int, wait time.Duration) ([]broker.Delivery, error) {
	r.of.mu.Lock()
	if at := now(); !r.of.last.IsZero() {
		r.of.most = max(r.of.most, at.Sub(r.of.last))
	}
	r.of.mu.Unlock()
	deliveries, err := r.Subscription.Poll(ctx, limit, wait)
	r.of.mu.Lock()
	r.of.last = now()
	r.of.mu.Unlock()
	return deliveries, err
}

// After an unclean stop events are handled one by one. However slow that is, the
// broker is not kept waiting for a whole window of them.
func TestReaderPollsSoonWhileEventsAreHandledAlone(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		dying := make(chan string, 1)
		r.publish(ev("first", 1))
		r.crash(func() *running {
			run := r.start(killer(func(waybill.Event) bool { return true }, dying), r.config())
			<-dying
			return run
		}())
		var all []waybill.Event
		for n := range int64(600) {
			all = append(all, ev(fmt.Sprintf("k%d", n%7), n/7+1))
		}
		r.publish(all...)
		const each = 100 * time.Millisecond
		var handled atomic.Int64
		slow := func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
			if handled.Add(1) < 100 {
				pauseFor(ctx, each)
			}
			return apply(ctx, tx, event)
		}
		config := r.config()
		config.BatchSize = 100
		b := &punctual{Subscriber: r.b.Connect()}
		r.startOn(r.st, b, slow, config)
		r.until("lag 0", func() bool { return r.b.Lag("g", topic) == 0 })
		r.wantHeld()
		if len(r.history()) != 8 {
			t.Errorf("history of %d keys", len(r.history()))
		}
		// Of each partition that was left uncleanly 100 are handled alone; a window is 400.
		if most := 2 * firstReach * each; b.most > most {
			t.Errorf("the broker was not asked for %v, want at most %v", b.most, most)
		}
	})
}
