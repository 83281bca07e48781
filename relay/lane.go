package relay

import (
	"time"

	"github.com/waybillhq/waybill/store"
)

// A lane that this relay owns.
type lane struct {
	store.Lease
	state    laneState
	deadline time.Time // local; from when the renewal was sent
	epoch    uint64    // a read that began under another one is not about this lane any more
	expired  bool      // the deadline passed; a renewal may still save it
	busy     int       // rows in flight or being written
	rows     int       // known
	top      int64     // the greatest id that was ever known

	// The lane is read in passes: from base, or in a short pass from seen, through
	// as many reads as it takes, to the queue's end.
	base     int64 // ids <= base are closed and were looked at
	seen     int64 // the greatest id that was looked at
	pos      int64 // ids <= pos were looked at in this pass
	inPass   bool
	short    bool
	frontier int64 // closed when the pass began; base when it ends
	passAt   time.Time
	wholeAt  time.Time // began the last pass from base that reached the queue's end
}

type laneState uint8

const (
	loading laneState = iota // its held keys are not known yet: nothing is sent
	active
	leaving // to be released once nothing of it is unsettled
)

// restart makes the next read begin at the lane's lowest id.
func (l *lane) restart(epoch uint64) {
	l.base, l.seen, l.pos, l.inPass, l.epoch = 0, 0, 0, false, epoch
}

// cursor begins a pass where none is under way. A short one finds what is new
// and passes over what a transaction that began before committed since; it is
// not short where nothing can be passed over.
//
// A pass goes on only while what lies behind it is closed. Beyond that, a
// transaction may commit a lower id between two of its reads, and then the next
// event of the same key: so what is not closed is read again, with it.
func (l *lane) cursor(closed int64, short bool) store.LaneCursor {
	if l.inPass && !l.short && l.pos > l.frontier {
		l.endPass()
	}
	if !l.inPass {
		l.inPass, l.pos, l.frontier, l.short = true, l.base, closed, short && l.seen > l.base
		l.passAt = now()
		if l.short {
			l.pos = l.seen
		}
	}
	return store.LaneCursor{Lane: l.Lane, After: l.pos}
}

// reachEnd ends a pass at the queue's end.
func (l *lane) reachEnd() {
	if !l.short {
		l.wholeAt = l.passAt
	}
	l.endPass()
}

func (l *lane) endPass() {
	l.inPass = false
	l.seen = max(l.seen, l.pos)
	if !l.short {
		l.base = max(l.base, l.frontier)
	}
}

// A horizon follows the store's frontier: which ids can no longer appear.
type horizon struct {
	marks  []store.Frontier
	closed int64
	last   int64 // greatest id when last asked
}

// anew reports whether ids begin again below those that were seen, as after a
// TRUNCATE that resets them. Nothing that was closed is then.
func (h *horizon) anew(f store.Frontier) bool {
	fell := f.MaxID < h.last
	h.last = f.MaxID
	if fell {
		h.marks, h.closed = nil, 0
	}
	return fell
}

func (h *horizon) add(f store.Frontier) {
	if n := len(h.marks); n == 0 || f.MaxID > h.marks[n-1].MaxID {
		h.marks = append(h.marks, f)
	}
	done := 0
	for done < len(h.marks) && h.marks[done].Opened <= f.Closed {
		h.closed = max(h.closed, h.marks[done].MaxID)
		done++
	}
	h.marks = h.marks[done:]
	// Under a transaction that stays open the marks pile up; the sparser they
	// are, the later the frontier moves when it ends, which costs re-reading only.
	if len(h.marks) > 1024 {
		kept := h.marks[:0]
		for i := range h.marks {
			if i%2 == 0 {
				kept = append(kept, h.marks[i])
			}
		}
		h.marks = kept
	}
}
