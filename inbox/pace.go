package inbox

import (
	"sync/atomic"
	"time"
)

// worthwhile is how much handling a transaction should have, where there is a
// choice: its beginning and its end cost about as much.
const worthwhile = 5 * time.Millisecond

// pace is how long handlers take, as seen lately.
type pace struct{ each atomic.Int64 } // nanoseconds; 0: not known

// note takes over how long n handlers took one after the other.
func (p *pace) note(n int, took time.Duration) {
	if n == 0 {
		return
	}
	seen := max(int64(took)/int64(n), 1)
	if before := p.each.Load(); before > 0 {
		seen = max((3*before+seen)/4, 1)
	}
	p.each.Store(seen)
}

// parts returns among how many transactions n events are worth being divided, at
// most so many. Few quick ones are best kept together, and few slow ones not.
func (p *pace) parts(n, most int) int {
	each := p.each.Load()
	if each == 0 {
		return most
	}
	return int(min(max((int64(n)*each+int64(worthwhile)-1)/int64(worthwhile), 1), int64(most)))
}
