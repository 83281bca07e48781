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
	roundFlag = flag.Int("rounds", 3, "how often the benchmark goes through its phases")
)

// A phase is what happens beside the application.
type phase struct {
	name                     string
	stalled, cleanup, forget bool
}

// The control is a healthy relay that keeps all. It comes before and after each
// of the phases, which are compared with these two, so that what the machine
// does meanwhile is in them too.
var (
	control = phase{name: "control"}
	phases  = []phase{
		{name: "stalled", stalled: true, cleanup: true},
		{name: "cleanup", cleanup: true},
		{name: "forget", forget: true, cleanup: true},
	}
)

// BenchmarkApplication measures business transactions at a fixed rate, from the
// moment they are due, beside each phase. Its figures are, over all rounds, the
// medians of the 50th and 99th percentiles in milliseconds, and of the ratio of
// the latter to the mean of those of the controls around it.
func BenchmarkApplication(b *testing.B) {
	for _, k := range slices.Concat(concurrent, serial) {
		b.Run(k.name, func(b *testing.B) { measure(b, k.open(b)) })
	}
}

func measure(b *testing.B, d *database) {
	a := &application{database: d, payload: bytes.Repeat([]byte("x"), 250)}
	figures := make(map[string][]float64)
	note := func(name string, value float64) { figures[name] = append(figures[name], value) }
	one := func(p phase) float64 {
		out := a.beside(b, p)
		out.check(b)
		p50, p99 := quantile(out.took, 0.5), quantile(out.took, 0.99)
		note(p.name+"-p50-ms", milliseconds(p50))
		note(p.name+"-p99-ms", milliseconds(p99))
		b.Logf("%s: %d transactions, p50 %v, p99 %v, max %v", p.name, len(out.took), round(p50), round(p99), round(quantile(out.took, 1)))
		return milliseconds(p99)
	}
	before := one(control)
	for range *roundFlag {
		for _, p := range phases {
			beside := one(p)
			after := one(control)
			note(p.name+"/control", 2*beside/(before+after))
			before = after
		}
	}
	for name, values := range figures {
		b.ReportMetric(quantile(values, 0.5), name)
	}
	b.ReportMetric(0, "ns/op")
}

// beside runs the application at its rate beside one phase, and drains the
// outbox afterwards.
func (a *application) beside(b *testing.B, p phase) outcome {
	broker := membroker.New(topic)
	// Beside the control, too: what is written here reaches the disk later.
	a.seed(b, *seedFlag)
	stopRelay := move(b, a.database, broker, relay.Config{})
	settled(b, a.database)
	stopRelay()
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

func quantile[T cmp.Ordered](all []T, q float64) (found T) {
	if len(all) == 0 {
		return found
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
