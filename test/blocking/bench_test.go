package blocking

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/ops"
	"github.com/waybillhq/waybill/relay"
)

var (
	stallFlag = flag.Duration("stall", 30*time.Second, "how long the benchmark's broker is stalled")
	phaseFlag = flag.Duration("phase", 10*time.Second, "how long the benchmark's other phases take")
	rateFlag  = flag.Int("rate", 200, "transactions of the benchmark, per second")
	seedFlag  = flag.Int("seed", 20_000, "settled events that each cleanup of the benchmark finds")
)

// A phase is what happens beside the application.
type phase struct {
	name                     string
	stalled, cleanup, forget bool
}

// The controls are a healthy relay that keeps all. They come before, between
// and after the others, so that what the machine does meanwhile is in them too.
var phases = []phase{
	{name: "control"},
	{name: "stalled", stalled: true, cleanup: true},
	{name: "control"},
	{name: "cleanup", cleanup: true},
	{name: "control"},
	{name: "forget", forget: true, cleanup: true},
	{name: "control"},
}

// BenchmarkApplication measures business transactions at a fixed rate, from the
// moment they are due, beside each phase. The figures are medians and 99th
// percentiles in milliseconds, and the latter divided by that of all controls.
func BenchmarkApplication(b *testing.B) {
	for _, k := range slices.Concat(concurrent, serial) {
		b.Run(k.name, func(b *testing.B) { measure(b, k.open(b)) })
	}
}

func measure(b *testing.B, d *database) {
	a := &application{database: d, payload: bytes.Repeat([]byte("x"), 250)}
	took := make(map[string][]time.Duration)
	for _, p := range phases {
		out := a.beside(b, p)
		out.check(b)
		took[p.name] = append(took[p.name], out.took...)
		b.Logf("%s: %d transactions, p50 %v, p99 %v, max %v", p.name, len(out.took),
			round(quantile(out.took, 0.5)), round(quantile(out.took, 0.99)), round(quantile(out.took, 1)))
	}
	control := quantile(took["control"], 0.99)
	for name, all := range took {
		b.ReportMetric(milliseconds(quantile(all, 0.5)), name+"-p50-ms")
		b.ReportMetric(milliseconds(quantile(all, 0.99)), name+"-p99-ms")
		if name != "control" {
			b.ReportMetric(float64(quantile(all, 0.99))/float64(control), name+"/control")
		}
	}
	b.ReportMetric(0, "ns/op")
}

// beside runs the application at its rate beside one phase, and drains the
// outbox afterwards.
func (a *application) beside(b *testing.B, p phase) outcome {
	broker := membroker.New(topic)
	if p.cleanup {
		a.seed(b, *seedFlag)
		stopRelay := move(b, a.database, broker, relay.Config{})
		settled(b, a.database)
		stopRelay()
	}
	defer move(b, a.database, broker, relay.Config{Forget: p.forget})()
	long, end := *phaseFlag, func() {}
	if p.stalled {
		long = *stallFlag
		_, end = stall(broker)
	}
	if p.cleanup {
		stop := tidy(b, a.database, ops.CleanupConfig{Every: 100 * time.Millisecond}) // batch and pause are the defaults
		defer stop()
	}
	every := workers * time.Second / time.Duration(*rateFlag)
	out := a.run(b.Context(), load{transactions: int(long / every), every: every})
	end()
	settled(b, a.database)
	return out
}

// seed appends events in transactions of a thousand.
func (a *application) seed(b *testing.B, n int) {
	for ; n > 0; n -= 1000 {
		tx, err := a.app.BeginTx(b.Context(), nil)
		if err != nil {
			b.Fatal(err)
		}
		events := make([]waybill.Event, 0, 1000)
		for i := range min(n, 1000) {
			e := named(waybill.NewID())
			e.Key, e.Data = fmt.Sprint("seed-", i%100), a.payload
			events = append(events, e)
		}
		if err := a.writer.Append(b.Context(), tx, events...); err != nil {
			b.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			b.Fatal(err)
		}
	}
}

func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.SortedFunc(slices.Values(all), cmp.Compare[time.Duration])
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
