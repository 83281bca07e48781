package ops

import "time"

// The application's transactions wait while the database works off a batch: in
// MySQL each waits its turn in the binary log behind it, in SQLite for the lock
// of its only writer, and everywhere for the disk. So batches are kept short,
// and are a small part of the time. A database that is slow, because others use
// it, is so left alone more.
const (
	shortBatch = 10 * time.Millisecond
	restFor    = 4 // times what a batch took
	firstBatch = 50
	leastBatch = 10
)

// pace says how many rows the next batch removes.
type pace struct {
	limit, most int
	pause       time.Duration // the least rest
}

func newPace(most int, pause time.Duration) *pace {
	return &pace{limit: min(firstBatch, most), most: most, pause: pause}
}

// after learns how long a batch took, and returns the rest that is due.
func (p *pace) after(took time.Duration) time.Duration {
	switch {
	case took > 2*shortBatch:
		p.limit = max(p.limit/2, min(leastBatch, p.most))
	case took < shortBatch:
		p.limit = min(p.limit+p.limit/2+1, p.most)
	}
	return max(p.pause, restFor*took)
}
