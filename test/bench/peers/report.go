package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
)

// report is what a part found, as text.
type report struct{ text string }

func newReport(ctx context.Context, o *options, s *site) *report {
	kernel, _ := os.ReadFile(procfs + "/sys/kernel/osrelease")
	return &report{text: fmt.Sprintf("%s, %s; Kafka 4.4.0; Debezium 3.6.1 in Kafka Connect 4.3.1; watermill-sql v4.1.2, watermill v1.5.1; %s\n%s, kernel %s, %d cores of %s; load %s before\n%d keys, %d bytes of payload\n\n",
		s.version(ctx), s.durable(ctx), runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH, strings.TrimSpace(string(kernel)), runtime.NumCPU(), valueOf("cpuinfo", "model name"), load(),
		o.keys, o.payload)}
}

// drained writes the table of the drains. The ratio is the median of those of
// the runs, each of which had the same neighbours for all arms.
func (r *report) drained(all []*contender) {
	var b strings.Builder
	first := all[0]
	fmt.Fprintf(&b, "%d runs\n", len(first.results))
	fmt.Fprintf(&b, "%-14s %10s %19s %12s %8s %9s %12s\n", "events/s", "median", "lowest..highest", "CPU us/event", "MB", "events", first.name+" is")
	for _, c := range all {
		rates := collect(c.results, (*outcome).rate)
		ratios := make([]float64, len(c.results))
		for i := range c.results {
			ratios[i] = ratio(first.results[i].rate(), c.results[i].rate())
		}
		fmt.Fprintf(&b, "%-14s %10.0f %19s %12.1f %8.0f %9d %11.2fx\n", c.name, median(rates), spread(rates, "%.0f"),
			median(collect(c.results, (*outcome).cpuPerEvent)), median(collect(c.results, func(o *outcome) float64 { return o.PeakMB })), c.events, median(ratios))
	}
	r.text += b.String()
}

func collect[T any](from []T, figure func(*T) float64) []float64 {
	figures := make([]float64, len(from))
	for i := range from {
		figures[i] = figure(&from[i])
	}
	return figures
}

func spread(figures []float64, format string) string {
	if len(figures) == 0 {
		return ""
	}
	return fmt.Sprintf(format+".."+format, slices.Min(figures), slices.Max(figures))
}

// median of figures; of an even number of them the mean of the middle two.
func median(figures []float64) float64 {
	if len(figures) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(figures))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// quantile returns the figure below which a share q of the sorted figures lies.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(math.Ceil(q*float64(len(sorted)))), len(sorted))-1]
}

// ratio returns a / b, or 0 where b is nothing.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func perSecond(n float64) string {
	if n >= 10_000 {
		return fmt.Sprintf("%.1f k/s", n/1000)
	}
	return fmt.Sprintf("%.0f/s", n)
}
