package mybinlog_test

import (
	"fmt"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// BenchmarkTransaction reads one transaction of b.N events with payloads of 250
// bytes, and says how much memory the reader took at most. A million are read with
//
//	go test -run '^$' -bench Transaction -benchtime 1000000x ./cdc/mybinlog
func BenchmarkTransaction(b *testing.B) {
	for _, s := range servers {
		for _, compressed := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/compressed=%v", s.name, compressed), func(b *testing.B) {
				s.start(b)
				d := s.database(b)
				if compressed {
					d.compress(b)
					d = d.again(b)
				}
				f := follow(b, d.source(b), "")
				f.toMark(b)
				begin := f.after
				f.close(b)
				d.fill(b, b.N)
				peak := watchMemory()
				b.ResetTimer()
				before := cpuTime(b)
				stream, err := f.source.Open(b.Context(), begin)
				if err != nil {
					b.Fatal(err)
				}
				told := 0
				for told < b.N {
					batch, err := stream.Next(b.Context())
					if err != nil {
						b.Fatal(err)
					}
					told += len(batch.IDs)
				}
				b.StopTimer()
				b.ReportMetric(float64(told)/b.Elapsed().Seconds(), "ids/s")
				b.ReportMetric((cpuTime(b)-before).Seconds()/float64(told)*1e6, "cpu-s/M")
				b.ReportMetric(float64(peak())/(1<<20), "peak-MB")
				if err := stream.Close(b.Context()); err != nil {
					b.Fatal(err)
				}
				if told != b.N {
					b.Errorf("got %d ids, want %d", told, b.N)
				}
			})
		}
	}
}

// fill commits n events in one transaction.
func (d *database) fill(tb testing.TB, n int) {
	tb.Helper()
	x := d.begin(tb)
	for done := 0; done < n; done += 1_000_000 {
		run(tb, x.conn, fmt.Sprintf("INSERT INTO outbox_event (event_id, payload) "+
			"SELECT CONCAT('e', %d + a.n * 1000 + b.n), REPEAT(SHA2(a.n * 1000 + b.n, 256), 4) FROM "+
			"(WITH RECURSIVE r (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM r WHERE n < 999) SELECT n FROM r) a, "+
			"(WITH RECURSIVE q (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM q WHERE n < 999) SELECT n FROM q) b LIMIT %d", done, min(n-done, 1_000_000)))
	}
	x.Commit(tb)
}

// watchMemory samples what the Go runtime has from the system, and returns the
// most that it saw.
func watchMemory() func() uint64 {
	runtime.GC()
	var most atomic.Uint64
	done := make(chan struct{})
	go func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}}
		for {
			metrics.Read(samples)
			most.Store(max(most.Load(), samples[0].Value.Uint64()+samples[1].Value.Uint64()))
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	}()
	return func() uint64 { close(done); return most.Load() }
}

// cpuTime is what this process has used.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
