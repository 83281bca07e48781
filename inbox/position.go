package inbox

import (
	"slices"

	"github.com/waybillhq/waybill/broker"
)

// positions follows what was received and what of it is settled, and knows for
// each partition the greatest position below which nothing is open.
type positions struct {
	tracks map[broker.Partition]*track
}

type track struct {
	open    []int64 // received, ascending, from the first unsettled one on
	settled map[int64]bool
	last    int64 // the greatest received
	ready   int64
	isReady bool // ready waits to be committed
	misses  int  // commits of ready that failed
}

func newPositions() *positions { return &positions{tracks: make(map[broker.Partition]*track)} }

// receive adds a record. A position that is not above the last means that the
// partition was taken away and given back: what was known of it is void.
func (p *positions) receive(partition broker.Partition, position int64) {
	t := p.tracks[partition]
	if t == nil || position <= t.last {
		t = &track{settled: make(map[int64]bool)}
		p.tracks[partition] = t
	}
	t.open = append(t.open, position)
	t.last = position
}

func (p *positions) settle(partition broker.Partition, position int64) {
	t := p.tracks[partition]
	if t == nil {
		return
	}
	t.settled[position] = true
	for len(t.open) > 0 && t.settled[t.open[0]] {
		t.ready, t.isReady, t.misses = t.open[0], true, 0
		delete(t.settled, t.open[0])
		t.open = t.open[1:]
	}
}

// ready returns what can be committed, in a stable order.
func (p *positions) ready() []broker.Position {
	var out []broker.Position
	for partition, t := range p.tracks {
		if t.isReady {
			out = append(out, broker.Position{Partition: partition, Settled: t.ready})
		}
	}
	slices.SortFunc(out, func(a, b broker.Position) int { return comparePartitions(a.Partition, b.Partition) })
	return out
}

func (p *positions) committed(position broker.Position) {
	if t := p.tracks[position.Partition]; t != nil && t.isReady && t.ready == position.Settled {
		t.isReady = false
	}
}

// missed counts a failed commit, and gives the position up after several: the
// partition is another's by then, or will be delivered again, which does no harm.
func (p *positions) missed(position broker.Position) (givenUp bool) {
	t := p.tracks[position.Partition]
	if t == nil {
		return true
	}
	if t.misses++; t.misses >= 5 {
		t.isReady = false
		return true
	}
	return false
}

// forget drops a partition that is read by another now.
func (p *positions) forget(partition broker.Partition) { delete(p.tracks, partition) }
