package pgwal_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/waybillhq/waybill/cdc/pgwal"
)

// One transaction of a million events: how fast its ids come once it has
// committed, and how much memory the reader needs at most.
//
//	go test -run - -bench LargeTransaction -benchtime 1x .
func BenchmarkLargeTransaction(b *testing.B) {
	const events = 1_000_000
	for _, server := range servers {
		b.Run(server.name, func(b *testing.B) {
			o := newOutbox(b, server.shared.open(b, server.dsn(b)), "outbox_event")
			s := o.source(b, func(*pgwal.Config) {})
			r := open(b, s, "")
			r.toMark(b, s, "begin")
			var most uint64
			var reading time.Duration
			for b.Loop() {
				tx := o.begin(b)
				tx.run(b, "INSERT INTO "+o.table()+" (event_id, payload) SELECT 'e' || g, repeat('x', 250) FROM generate_series(1, 1000000) AS g")
				if err := s.Mark(b.Context(), "here"); err != nil {
					b.Fatal(err)
				}
				tx.Commit(b)
				begun, got := time.Now(), 0
				for got < events {
					batch, err := r.Next(b.Context())
					if err != nil {
						b.Fatal(err)
					}
					got += len(batch.IDs)
					if batch.Position != "" {
						r.Ack(batch.Position)
					}
					var m runtime.MemStats
					runtime.ReadMemStats(&m)
					most = max(most, m.HeapSys+m.StackSys)
				}
				reading += time.Since(begun)
			}
			b.ReportMetric(float64(events*b.N)/reading.Seconds(), "ids/s")
			b.ReportMetric(float64(most)/(1<<20), "MiB")
		})
	}
}
