package storetest

import (
	"fmt"
	"testing"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// Bench measures what a service and a relay do all the time. Each benchmark
// reports events per second; sizes stand in its name.
func Bench[TX any](b *testing.B, h Harness[TX]) {
	for _, batch := range []int{1, 100} {
		b.Run(fmt.Sprintf("append and commit/%d", batch), func(b *testing.B) { benchAppend(b, &suite[TX]{harness: h}, batch) })
	}
	for _, c := range []struct {
		name    string
		options Options
		forget  bool
	}{
		{"keep", Options{}, false},
		{"forget", Options{}, true},
		{"keep, no trigger", Options{NoTrigger: true}, false},
	} {
		b.Run("fetch and settle/"+c.name, func(b *testing.B) {
			benchSettle(b, &suite[TX]{harness: h, options: c.options}, c.forget)
		})
	}
	b.Run("fetch nothing", func(b *testing.B) { benchIdle(b, &suite[TX]{harness: h}) })
	b.Run("consume/100", func(b *testing.B) { benchConsume(b, &suite[TX]{harness: h}, 100) })
}

func (s *suite[TX]) benchEvents(n int) []waybill.Event {
	events := make([]waybill.Event, 0, n)
	for i := range n {
		e := s.event(fmt.Sprintf("key-%d", i%1000))
		e.ID = waybill.NewID()
		events = append(events, e)
	}
	return events
}

func perSecond(b *testing.B, events int) {
	b.Helper()
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
}

func benchAppend[TX any](b *testing.B, s *suite[TX], batch int) {
	s.open(b)
	for b.Loop() {
		s.append(b, s.benchEvents(batch)...)
	}
	perSecond(b, b.N*batch)
}

// benchSettle times one relay round of at most 1,000 rows; filling the queue
// is not counted.
func benchSettle[TX any](b *testing.B, s *suite[TX], forget bool) {
	const round = 1000
	s.open(b)
	guard := s.own(b)
	events := 0
	for b.Loop() {
		b.StopTimer()
		s.append(b, s.benchEvents(round)...)
		b.StartTimer()
		rows, err := Hot(b.Context(), s.Outbox, store.WalkRequest{Lanes: allCursors(), Limit: round})
		if err != nil {
			b.Fatal(err)
		}
		for half := range 2 {
			changes := settled(rows[half*round/2 : (half+1)*round/2]...)
			changes.Forget = forget
			s.apply(b, guard, changes)
		}
		events += len(rows)
	}
	perSecond(b, events)
}

func benchIdle[TX any](b *testing.B, s *suite[TX]) {
	s.open(b)
	for b.Loop() {
		if _, err := s.Outbox.Walk(b.Context(), store.WalkRequest{Lanes: allCursors(), Limit: 1000}); err != nil {
			b.Fatal(err)
		}
	}
}

func benchConsume[TX any](b *testing.B, s *suite[TX], batch int) {
	s.open(b)
	for b.Loop() {
		tx := s.beginInbox(b)
		for range batch {
			if err := tx.Savepoint(b.Context()); err != nil {
				b.Fatal(err)
			}
			mark(b, tx, waybill.NewID())
			if err := tx.Release(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		s.commitInbox(b, tx)
	}
	perSecond(b, b.N*batch)
}
