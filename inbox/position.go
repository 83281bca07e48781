package inbox

import (
	"slices"
	"time"

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
	isReady bool      // ready waits to be committed
	missed  time.Time // since when commits fail, zero when they do not
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
		t.ready, t.isReady = t.open[0], true
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
	t := p.tracks[position.Partition]
	if t == nil {
		return
	}
	t.missed = time.Time{}
	if t.ready == position.Settled {
		t.isReady = false
	}
}

// giveUpAfter is how long commits of a partition may fail, while the broker
// delivers records all the same, before the position is given up: the partition
// is another's by then. At worst the records come again, and are found consumed.
const giveUpAfter = time.Minute

// missed notes a failed commit. away says that the broker delivers nothing
// either, so the failure tells nothing of the partition.
func (p *positions) missed(position broker.Position, away bool) {
	t := p.tracks[position.Partition]
	switch {
	case t == nil:
	case away || t.missed.IsZero():
		t.missed = now()
	case now().Sub(t.missed) >= giveUpAfter:
		t.isReady, t.missed = false, time.Time{}
	}
}

// forget drops a partition that is read by another now.
func (p *positions) forget(partition broker.Partition) { delete(p.tracks, partition) }
