package ops

import "time"

// The application's transactions wait while the database works off a batch: in
// MySQL each waits its turn in the binary log behind it, and everywhere for the
// disk. So batches are kept short, and are a small part of the time. A database
// that is slow, because others use it, is so left alone more.
const (
	shortBatch = 5 * time.Millisecond
	restFor    = 9 // times what a batch took
	firstBatch = 50
	leastBatch = 10
)

// Where there is only one writer, each of the others' transactions that meets a
// batch waits for all of it.
const (
	shortTurn    = time.Millisecond
	restForTurns = 19
)

// pace says how many rows the next batch removes.
type pace struct {
	limit, most int
	short       time.Duration // what a batch may take
	pause       time.Duration // the least rest
	rest        int           // times what a batch took
}

func newPace(most int, pause time.Duration, oneWriter bool) *pace {
	p := &pace{limit: min(firstBatch, most), most: most, short: shortBatch, pause: pause, rest: restFor}
	if oneWriter {
		p.short, p.rest = shortTurn, restForTurns
	}
	return p
}

// after learns how long a batch took, and returns the rest that is due.
func (p *pace) after(took time.Duration) time.Duration {
	switch {
	case took > 2*p.short:
		p.limit = max(p.limit/2, min(leastBatch, p.most))
	case took < p.short:
		p.limit = min(p.limit+p.limit/2+1, p.most)
	}
	return max(p.pause, time.Duration(p.rest)*took)
}
