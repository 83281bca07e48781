package trial

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/waybillhq/waybill/reconcile"
)

// truth is what was done to which purchase, and when.
type truth struct {
	mu      sync.Mutex
	entries map[string]*entry // by purchase
	strange map[string]bool   // findings that nothing explains
}

type entry struct {
	fault *fault
	name  string
	at    time.Time                     // when it was done
	seen  map[reconcile.Class]time.Time // when a run first reported it
}

func newTruth() *truth {
	return &truth{entries: make(map[string]*entry), strange: make(map[string]bool)}
}

func (u *truth) note(f *fault, name string) *entry {
	u.mu.Lock()
	defer u.mu.Unlock()
	e := &entry{fault: f, name: name, seen: make(map[reconcile.Class]time.Time)}
	u.entries[name] = e
	return e
}

func (u *truth) done(e *entry) {
	u.mu.Lock()
	defer u.mu.Unlock()
	e.at = time.Now()
}

// report takes over what a run says, and returns what nothing explains.
func (u *truth) report(r *reconcile.Report, dense bool) (strange []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.Class == reconcile.InFlight {
			continue
		}
		e := u.entries[f.Key]
		if e == nil || !slices.Contains(e.fault.wanted(dense), f.Class) || f.Unconfirmed {
			name := fmt.Sprintf("%s %s (%s): %s", f.Class, f.Key, faultOf(e), f.Detail)
			u.strange[name] = true
			strange = append(strange, name)
			continue
		}
		if e.seen[f.Class].IsZero() {
			e.seen[f.Class] = r.FinishedAt
		}
	}
	return strange
}

func faultOf(e *entry) string {
	if e == nil {
		return "nothing was done"
	}
	return e.fault.name
}

func (f *fault) wanted(dense bool) []reconcile.Class {
	if dense && f.dense != nil {
		return f.dense
	}
	return f.want
}

// score is how good the findings of all runs were.
type score struct {
	faults, wanted, found, strange int
	text                           string
}

func (s *score) recall() float64    { return float64(s.found) / float64(max(s.wanted, 1)) }
func (s *score) precision() float64 { return float64(s.found) / float64(max(s.found+s.strange, 1)) }

// matrix counts what was found of each fault, and how long that took.
func (u *truth) matrix() *score {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := &score{strange: len(u.strange)}
	type cell struct {
		done, missed int
		found        map[reconcile.Class]int
	}
	cells := make(map[*fault]*cell)
	delays := make(map[reconcile.Class][]time.Duration)
	for _, e := range u.entries {
		c := cells[e.fault]
		if c == nil {
			c = &cell{found: make(map[reconcile.Class]int)}
			cells[e.fault] = c
		}
		c.done++
		want := slices.Clone(e.fault.want)
		if e.fault.dense != nil {
			want = e.fault.dense
		}
		if len(want) > 0 {
			s.faults++
		}
		s.wanted += len(want)
		for _, class := range want {
			at := e.seen[class]
			if at.IsZero() {
				c.missed++
				continue
			}
			c.found[class]++
			s.found++
			delays[class] = append(delays[class], max(at.Sub(e.at), 0))
		}
	}
	var b strings.Builder
	classes := []reconcile.Class{reconcile.MissingEvent, reconcile.OrphanEvent, reconcile.MismatchWrite, reconcile.MismatchRead}
	fmt.Fprintf(&b, "%-36s %6s", "what was done", "times")
	for _, class := range classes {
		fmt.Fprintf(&b, " %15s", class)
	}
	fmt.Fprintf(&b, " %7s\n", "missed")
	for i := range faults {
		c := cells[&faults[i]]
		if c == nil {
			continue
		}
		fmt.Fprintf(&b, "%-36s %6d", faults[i].name, c.done)
		for _, class := range classes {
			fmt.Fprintf(&b, " %15d", c.found[class])
		}
		fmt.Fprintf(&b, " %7d\n", c.missed)
	}
	fmt.Fprintf(&b, "%-36s %6d\n\ndelay from the fault to the report, seconds\n%-16s %6s %6s %6s\n", "nothing, and reported", len(u.strange), "class", "p50", "p90", "max")
	for _, class := range classes {
		all := delays[class]
		if len(all) == 0 {
			continue
		}
		slices.SortFunc(all, func(a, b time.Duration) int { return cmp.Compare(a, b) })
		at := func(share float64) float64 { return all[min(int(share*float64(len(all))), len(all)-1)].Seconds() }
		fmt.Fprintf(&b, "%-16s %6.1f %6.1f %6.1f\n", class, at(0.5), at(0.9), all[len(all)-1].Seconds())
	}
	s.text = b.String()
	return s
}

// missed lists what no run has reported.
func (u *truth) missed() (lines []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, e := range u.entries {
		for _, class := range e.fault.wanted(e.fault.dense != nil) {
			if e.seen[class].IsZero() {
				lines = append(lines, fmt.Sprintf("%s: %s, planted %s", e.name, e.fault.name, e.at.UTC().Format(time.TimeOnly)))
			}
		}
	}
	slices.Sort(lines)
	return lines
}
