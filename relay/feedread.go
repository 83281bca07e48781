package relay

import (
	"context"
	"slices"
	"time"

	"github.com/waybillhq/waybill/store"
)

// wantsTold reports whether ids that the log told are to be loaded now.
func (s *scheduler) wantsTold(at time.Time) bool {
	f := &s.feed
	if f.phase != following || s.room() <= 0 || s.enough() {
		return false
	}
	return f.told.len() > 0 && s.roomForTold() > 0 || s.missingFit() && !at.Before(f.askAt)
}

// roomForTold returns how many more ids may be asked for, beside those that are
// missing.
func (s *scheduler) roomForTold() int { return s.room() - len(s.feed.missing) }

// missingFit reports whether there are missing ids, and room for all of them, or
// so many that there may never be.
func (s *scheduler) missingFit() bool {
	n := len(s.feed.missing)
	return n > 0 && (n <= s.room() || n > s.config.MaxRows/2)
}

// nextTold returns when the next load is wanted of what the log told.
func (s *scheduler) nextTold() (at time.Time, wanted bool) {
	f := &s.feed
	switch {
	case f.phase != following || s.room() <= 0 || s.enough():
		return at, false
	case f.told.len() > 0 && s.roomForTold() > 0:
		return at, true
	}
	return f.askAt, s.missingFit()
}

// loadTold asks for the next ids that were told, and with them for all that are
// missing: what becomes visible late must not be found later than what was
// committed after it.
func (s *scheduler) loadTold(ctx context.Context, result readResult) {
	f, r := &s.feed, &s.reads
	result.kind = readTold
	for _, id := range f.told.pop(min(s.config.FetchBatch, s.roomForTold())) {
		if s.known[id] == nil {
			result.told = append(result.told, id)
		}
	}
	result.want = slices.Clone(result.told)
	for i := range f.missing {
		result.want = append(result.want, f.missing[i].id)
	}
	if len(result.want) == 0 {
		return
	}
	slices.Sort(result.want)
	result.want = slices.Compact(result.want)
	request := readRequest{maxBytes: max(s.config.MaxBytes-s.bytes, 1)}
	if request.askFrontier = len(f.missing) > 0 && !result.began.Before(r.horizonAt); request.askFrontier {
		r.horizonAt = result.began.Add(horizonEvery)
	}
	s.goRead(ctx, result, request)
}

// onTold takes the rows that were loaded because the log told their ids.
func (s *scheduler) onTold(result *readResult) {
	f := &s.feed
	s.onFrontier(result.frontier)
	if f.phase == polling || f.phase == opening {
		return // the lanes are walked whole before the log is followed again
	}
	rows := result.found.Rows
	var last int64 // above it nothing was answered
	if result.found.Full && len(rows) > 0 {
		last = rows[len(rows)-1].ID
	}
	found := make(map[int64]bool, len(rows))
	fresh := 0
	for i := range rows {
		data := rows[i]
		found[data.ID] = true
		l := s.lanes[data.Lane]
		switch {
		case l == nil: // another relay's by now
		case l.epoch >= result.epoch || l.state != active:
			s.catchUp("a lane was begun again")
		case data.Parked || data.Status == store.StatusDead:
		case s.take(l, data, result.began):
			s.known[data.ID].told = true
			fresh++
		}
	}
	if fresh > 0 {
		f.pause = 0
		if hook := s.config.Events.Fetched; hook != nil {
			hook(FetchedInfo{Rows: fresh, Took: result.took})
		}
	}
	s.sortOut(result, found, last)
}

// sortOut decides what becomes of ids that were asked for: those that were not
// found are missing, until it is certain that they are settled.
func (s *scheduler) sortOut(result *readResult, found map[int64]bool, last int64) {
	f := &s.feed
	answered := func(id int64) bool { return last == 0 || id <= last }
	var seen uint64 // the latest that was found; what was told before is visible, in an ordered log
	var again []int64
	for _, id := range result.told {
		f.seq++
		switch {
		case !answered(id):
			again = append(again, id)
		case found[id]:
			seen = f.seq
		default:
			f.missing = append(f.missing, missingID{id: id, seq: f.seq, at: result.began})
		}
	}
	before := f.seq - uint64(len(result.told))
	kept := f.missing[:0]
	for _, m := range f.missing {
		switch {
		case found[m.id], s.known[m.id] != nil, f.ordered && m.seq < seen:
			continue
		case !answered(m.id), m.seq > before: // asked for the first time just now
		case result.began.Sub(m.at) > missingFor:
			f.status.Unseen++
			continue
		case result.frontier == nil:
		case !m.asked:
			m.asked, m.opened = true, result.frontier.Opened
		case m.opened <= result.frontier.Closed:
			continue // it was visible before it was asked for, and is gone
		}
		kept = append(kept, m)
	}
	f.missing = kept
	f.told.unshift(again)
	if len(f.missing) > maxMissing {
		s.catchUp("too many events are committed and not visible yet")
	}
	f.pause = min(max(2*f.pause, askMin), askMax)
	f.askAt = now().Add(f.pause)
}
