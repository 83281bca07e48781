package relay_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
)

// applied counts walks, loads and settling transactions.
type applied struct {
	counting
	applies atomic.Int32
}

func (s *applied) Apply(ctx context.Context, guard store.Guard, changes store.Changes) error {
	if len(changes.Settled) > 0 {
		s.applies.Add(1)
	}
	return s.Outbox.Apply(ctx, guard, changes)
}

// What comes one by one is read and settled together, and a single event that
// comes after a quiet time is settled at once.
func TestTrickleIsGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		b := membroker.New("orders").Connect()
		counted, settled := &applied{counting: counting{Outbox: s}}, 0
		var publishedAt, settledAt time.Time
		config := &relay.Config{Logger: slog.New(slog.DiscardHandler)}
		config.Events.Published = func(relay.PublishedInfo) { publishedAt = time.Now() }
		config.Events.Settled = func(i relay.SettledInfo) { settled, settledAt = settled+i.Sent, time.Now() }
		r, err := relay.New(counted, b, config)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		add := func(i int) {
			t.Helper()
			tx, err := s.Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			key := fmt.Sprint("k", i)
			_, err = s.Append(ctx, tx, []waybill.Event{{
				ID: fmt.Sprint(i), Type: "Changed", Topic: "orders", Key: key, AggregateType: "order", AggregateID: key, Data: []byte("{}"),
			}})
			if err == nil {
				err = tx.Commit(ctx)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		const events = 1000
		time.Sleep(time.Second) // of the bubble
		walks := counted.walks.Load()
		for i := range events {
			add(i)
			time.Sleep(time.Millisecond)
		}
		walks = counted.walks.Load() - walks
		time.Sleep(time.Second)
		synctest.Wait()
		if settled != events {
			t.Errorf("%d of %d events are settled", settled, events)
		}
		// Every 8 and every 20 ms.
		if loads, applies := counted.loads.Load(), counted.applies.Load(); walks > 140 || loads > 140 || applies > 60 {
			t.Errorf("%d walks, %d loads and %d transactions for a second of events", walks, loads, applies)
		}
		add(events)
		time.Sleep(time.Second)
		synctest.Wait()
		if settled != events+1 || !settledAt.Equal(publishedAt) {
			t.Errorf("%d events settled; the last one %v after it was sent", settled, settledAt.Sub(publishedAt))
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
