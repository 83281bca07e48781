package relay_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/cdc"
	"github.com/waybillhq/waybill/cdc/memlog"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
)

// A log whose connection breaks every few seconds is opened again at once each
// time: only one that shows nothing is left alone for longer and longer.
func TestSoundStreamsAreOpenedAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(memlog.Log)
		states := make(chan cdc.State, 1000)
		r, err := relay.New(memstore.New(nil), membroker.New("orders").Connect(), &relay.Config{
			Source: log.Source("memory"), Mode: store.ModeCDC,
			Events: relay.Events{Feed: func(i relay.FeedInfo) { states <- i.State }},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		until := func(state cdc.State) {
			for <-states != state {
			}
		}
		until(cdc.Streaming)
		const breaks = 20
		var away time.Duration
		for range breaks {
			time.Sleep(2 * time.Second) // of the bubble
			began := time.Now()
			log.Break()
			until(cdc.Unreachable)
			until(cdc.Streaming)
			away += time.Since(began)
		}
		if mean := away / breaks; mean > time.Second {
			t.Errorf("the log was not followed for %v after each break", mean)
		}

		// One that opens and shows nothing is tried more and more rarely.
		log.Freeze(true)
		log.Break()
		time.Sleep(5 * time.Minute)
		tries := 0
		for len(states) > 0 {
			if <-states == cdc.Opening {
				tries++
			}
		}
		if tries == 0 || tries > 30 {
			t.Errorf("a log that shows nothing was opened %d times in five minutes", tries)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
