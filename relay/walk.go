package relay

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/waybillhq/waybill/store"
)

// Hot rows are found in two steps. A walk over the lanes tells ids, and is cheap
// enough to be repeated over rows that are known: while ids may still appear from
// under a running transaction, all that is not closed is walked over again. What
// is wanted of it is then loaded with its event. Of each lane a walk takes a
// slice only, so that what is loaded, sent and settled together lies together in
// the tables, too.

// walkLoads is how many loads a walk is for while there is more than one of them:
// to walk many lanes costs about the same for few rows as for some more.
const walkLoads = 4

// cursors begins or goes on with a pass of each active lane.
func (s *scheduler) cursors(short bool) []store.LaneCursor {
	r := &s.reads
	share := (s.config.FetchBatch + len(s.lanes) - 1) / len(s.lanes)
	r.slice = max(r.slice, share)
	ids := s.laneIDs(func(l *lane) bool { return l.state == active })
	cursors := make([]store.LaneCursor, len(ids))
	for i, id := range ids {
		l := s.lanes[id]
		cursors[i] = l.cursor(s.horizon.closed, short)
		if cursors[i].Limit = r.slice; cursors[i].After < l.top {
			cursors[i].Limit += l.rows
		}
	}
	return cursors
}

// onWalked chooses what is to be loaded of a walk's rows: the lowest ids.
func (s *scheduler) onWalked(ctx context.Context, result readResult) {
	for i := range result.walked.Refs {
		if ref := &result.walked.Refs[i]; s.wanted(&result, ref) {
			result.want = append(result.want, ref.ID)
		}
	}
	slices.Sort(result.want)
	s.loadWalked(ctx, result)
}

// loadWalked loads the lowest ids of a walk. What is more than one load takes is
// left for the next, before there is another walk.
func (s *scheduler) loadWalked(ctx context.Context, result readResult) {
	result.cutAt = 0
	if limit := min(s.config.FetchBatch, max(s.room(), 1)); len(result.want) > limit {
		if !result.short {
			rest := result
			rest.want, rest.frontier = result.want[limit:], nil
			s.reads.rest = &rest
		}
		s.cutWalk(&result, result.want[limit-1])
	}
	if len(result.want) == 0 {
		s.onLoaded(&result)
		return
	}
	result.kind = readLoad
	s.goRead(ctx, result, readRequest{maxBytes: max(s.config.MaxBytes-s.bytes, 1)})
}

// wanted reports whether a row is new and may be sent or parked.
func (s *scheduler) wanted(result *readResult, ref *store.Ref) bool {
	l := s.lanes[ref.Lane]
	if l == nil || l.epoch >= result.epoch || l.state != active || s.known[ref.ID] != nil || s.topicPauses[ref.TopicHash] != nil {
		return false
	}
	k := s.keys[ref.KeyHash]
	return k == nil || k.state != draining
}

// cutWalk drops what lies above an id, as if the walk had not come so far.
func (s *scheduler) cutWalk(result *readResult, last int64) {
	result.cutAt = last
	n, _ := slices.BinarySearch(result.want, last+1)
	result.want = result.want[:n]
}

// onLoaded takes the rows that were loaded, and notes how far the lanes' passes
// have come.
func (s *scheduler) onLoaded(result *readResult) {
	rows := result.found.Rows
	if result.found.Full && len(rows) > 0 {
		s.cutWalk(result, rows[len(rows)-1].ID)
		s.reads.rest = nil // it lies behind what was not loaded
	}
	more := s.passOver(result)
	fresh := 0
	var passed []*store.Row // found by short passes
	for i := range rows {
		data := rows[i]
		l := s.lanes[data.Lane]
		switch {
		case l == nil || l.epoch >= result.epoch || l.state != active:
		case data.Parked || data.Status == store.StatusDead: // not hot any more
		case l.short:
			passed = append(passed, data)
		case s.take(l, data, result.began):
			fresh++
		}
	}
	fresh += s.takePassed(passed, result.began)
	for _, c := range result.lanes {
		if l := s.lanes[c.Lane]; l != nil && l.epoch < result.epoch && !more[c.Lane] {
			l.reachEnd()
		}
	}
	s.onFrontier(result.frontier)
	s.paceWalk(result, fresh, len(more))
	s.join()
	if hook := s.config.Events.Fetched; hook != nil && fresh > 0 {
		hook(FetchedInfo{Rows: fresh, Took: result.took})
	}
}

// passOver moves the lanes' positions past the rows that were walked over, and
// returns the lanes that may have more.
func (s *scheduler) passOver(result *readResult) (more map[int]bool) {
	more = make(map[int]bool)
	counts := make(map[int]int, len(result.lanes))
	for _, ref := range result.walked.Refs {
		counts[ref.Lane]++
		if result.cutAt > 0 && ref.ID > result.cutAt {
			more[ref.Lane] = true
			continue
		}
		if l := s.lanes[ref.Lane]; l != nil && l.epoch < result.epoch && l.state == active {
			l.pos = max(l.pos, ref.ID)
		}
	}
	if result.walked.Through > 0 {
		s.passTogether(result, more)
		return more
	}
	for _, c := range result.lanes {
		if counts[c.Lane] >= c.Limit {
			more[c.Lane] = true
		}
	}
	if n := len(result.walked.Refs); result.walked.Full && n > 0 {
		last := result.walked.Refs[n-1].Lane
		at := slices.IndexFunc(result.lanes, func(c store.LaneCursor) bool { return c.Lane == last })
		for _, c := range result.lanes[at:] {
			more[c.Lane] = true
		}
		s.reads.first = last
	}
	return more
}

// passTogether is passOver for lanes that were walked by id.
func (s *scheduler) passTogether(result *readResult, more map[int]bool) {
	reached, atEnd := result.walked.Through, result.walked.Through == math.MaxInt64
	if n := len(result.walked.Refs); atEnd && n > 0 {
		reached = result.walked.Refs[n-1].ID
	}
	if result.cutAt > 0 {
		reached, atEnd = min(reached, result.cutAt), atEnd && reached <= result.cutAt
	}
	for _, c := range result.lanes {
		if !atEnd {
			more[c.Lane] = true
		}
		if l := s.lanes[c.Lane]; l != nil && l.epoch < result.epoch && l.state == active && reached < math.MaxInt64 {
			l.pos = max(l.pos, reached)
		}
	}
}

func (s *scheduler) onFrontier(f *store.Frontier) {
	if f == nil {
		return
	}
	// Where events are deleted on confirmation the greatest id falls all the
	// time; ids that begin anew are then left to the sweep.
	if !s.config.Forget && s.horizon.anew(*f) {
		s.beginAnew("ids begin anew")
	}
	s.horizon.add(*f)
}

// paceWalk says when the next walk is due, and how much it takes of a lane.
func (s *scheduler) paceWalk(result *readResult, fresh, more int) {
	r := &s.reads
	// Under a transaction that stays open, or in the window of a database that does
	// not tell, the lanes' cursors stand still. The index above them fills with what
	// was settled and cannot be vacuumed, or, while a broker is silent, with rows
	// that are known: a full pass takes ever longer. It then gets a tenth of the
	// time, and short passes between find what is new.
	if !result.short && more == 0 && result.took > slowPass && fresh < slowRows {
		r.fullAt = now().Add(min(9*result.took, fullEvery))
	}
	if fresh > 0 {
		r.pause = 0
	}
	limit := r.walkLimit
	r.walkLimit = s.config.FetchBatch
	switch {
	case more > 0 && fresh > 0:
		r.walkLimit *= walkLoads
		r.slice = r.walkLimit / more
		r.hotAt = time.Time{}
	case more > 0:
		// Rows that are known, or read by key, or without an event: no haste, but
		// what lies behind them must be reached.
		r.slice = min(2*r.slice, maxSlice)
		r.walkLimit = min(2*max(limit, r.walkLimit), maxSlice)
		r.hotAt = s.soon(result)
	case r.pause == 0:
		r.slice = 0
		r.pause = s.config.PollBusy
		r.hotAt = s.soon(result)
	default:
		r.pause = min(r.pause*2, s.config.PollIdle)
		r.hotAt = now().Add(r.pause)
	}
}

// soon is PollBusy after a walk began, and leaves a slow one some rest.
func (s *scheduler) soon(result *readResult) time.Time {
	return now().Add(max(s.config.PollBusy-result.took, s.config.PollBusy/4))
}

// takePassed decides what to do with rows that short passes found. Such a pass
// may have gone past an earlier row of the same key: key k gets id 5 in a
// transaction that stays open, another key of the lane gets id 6 and is seen;
// the transaction commits, and k gets id 7, which alone the pass finds. So keys
// are read one by one, or, when they are many, all lanes from their cursors.
func (s *scheduler) takePassed(rows []*store.Row, read time.Time) (fresh int) {
	rows = slices.DeleteFunc(rows, func(data *store.Row) bool {
		return s.known[data.ID] != nil || s.topicPauses[data.TopicHash] != nil
	})
	keys := make(map[int64]bool)
	for i := range rows {
		keys[rows[i].KeyHash] = true
	}
	if len(keys) > passedKeys {
		s.reads.fullAt, s.reads.pause = time.Time{}, 0
		for _, l := range s.lanes {
			if l.inPass && l.short {
				l.endPass()
			}
		}
		return 0
	}
	for i := range rows {
		l := s.lanes[rows[i].Lane]
		switch k := s.keyOf(l, rows[i]); k.state {
		case open:
			s.drain(k, false)
			fresh++
		case held:
			s.park(s.know(k, rows[i], read))
			fresh++
		case draining:
		}
	}
	return fresh
}

// take decides what to do with a hot row, and reports whether it was new.
func (s *scheduler) take(l *lane, data *store.Row, read time.Time) bool {
	if s.known[data.ID] != nil || s.topicPauses[data.TopicHash] != nil {
		return false
	}
	k := s.keyOf(l, data)
	switch k.state {
	case open:
		k.push(s.know(k, data, read))
		s.makeReady(k)
	case held:
		s.park(s.know(k, data, read))
	case draining:
		return false
	}
	return true
}
