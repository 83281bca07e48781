package relay

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/waybillhq/waybill/cdc"
	"github.com/waybillhq/waybill/store"
)

// A feed is the relay's use of the database's own log. The log tells which events
// were committed, in order; their rows are loaded by id, and from there on all is
// as in polling. While it is followed the lanes are not walked, except by sweeps.
//
// The log is never relied on. Whenever it may have left something out, the lanes
// are walked, each from its cursor to the queue's end, and followed again after
// that. What is told meanwhile is kept: a walk that began before an id was told
// may have gone past it, while one that began later has met it. So the log is
// joined when each lane has been walked whole since ids were last dropped.
//
// An event can be told before its row is visible. It is then missing: it is asked
// for with every later load, so that no event of its key that was committed after
// it, and is visible, is found without it.
type feed struct {
	set   string // mode of all relays; empty: the relay's own
	tail  *tail  // nil while the log is not read
	made  int    // tails
	phase feedPhase

	stream cdc.Stream
	start  string    // the mark after which all is told
	since  time.Time // lanes walked whole from here on have met what was not kept
	swept  time.Time // the last sweep began; the lanes are walked until all are whole since

	told    toldQueue
	recent  recentIDs // known lately, whoever found them
	missing []missingID
	turn    bool // the log's, before the lanes'
	askAt   time.Time
	pause   time.Duration
	seq     uint64
	ordered bool // the log's transactions become visible in its order

	status FeedStatus
}

type feedPhase uint8

const (
	polling   feedPhase = iota // the log does not help
	opening                    // the mark is not read back yet
	joining                    // the lanes are walked until all are whole
	following                  // the log alone tells
)

// A missingID was told and not found: it is not visible yet, or settled already.
type missingID struct {
	id     int64
	seq    uint64
	at     time.Time
	asked  bool   // opened is set
	opened uint64 // from the first frontier since it was told
}

const (
	missingFor  = time.Minute // then it is left to the sweep
	maxMissing  = 4096
	askMin      = time.Millisecond
	askMax      = time.Second
	recentSize  = 1 << 15
	gapMax      = time.Second // from commit to visibility, of ids that were not kept
	startKept   = 1000        // ids told before the mark that are asked for all the same
	maxToldRows = 4           // times Config.MaxRows: ids kept at most
)

// mode returns what the relay does now.
func (s *scheduler) mode() string { return s.modeWhere(s.feed.set) }

// modeWhere returns what the relay does where this mode was set for all.
func (s *scheduler) modeWhere(set string) string {
	switch {
	case s.config.Source == nil:
		return store.ModePoll
	case set != "":
		return set
	}
	return s.config.Mode
}

// startFeed begins to read the log when all lanes are held, and ends it when one
// is not any more, or another mode was set.
func (s *scheduler) startFeed(ctx context.Context) {
	f := &s.feed
	wanted := s.mode() == store.ModeCDC && !s.stopping && s.holdsAll()
	switch {
	case f.tail == nil && wanted:
		f.made++
		t := &tail{
			source: s.config.Source, store: s.store, config: s.config, news: s.tailNews,
			guard: store.Guard{Owner: s.relay.owner, Lanes: []store.Lease{s.lanes[0].Lease}},
			name:  fmt.Sprintf("%s/%d", s.relay.owner, f.made),
		}
		f.tail = t
		ctx, t.cancel = context.WithCancel(ctx)
		go t.run(ctx)
	case f.tail != nil && !wanted:
		s.endFeed()
	}
	if f.phase == following || f.phase == joining {
		// A stream may fall silent without an end.
		if mark, wait := f.tail.unanswered(); wait > s.config.Heartbeat {
			s.log.Warn("the log has shown nothing for a while, the queue is read meanwhile", "source", f.status.Source, "for", wait)
			f.start = mark
			s.setPhase(opening, cdc.Opening, nil)
		}
	}
}

// holdsAll reports whether all lanes are this relay's, for certain: what another
// one may have taken by now is not read for.
func (s *scheduler) holdsAll() bool {
	if len(s.lanes) < store.Lanes {
		return false
	}
	at := now()
	for _, l := range s.lanes {
		if l.state == leaving || !at.Before(l.deadline) {
			return false
		}
	}
	return true
}

// endFeed lets go of the log; the lanes are walked from now on.
func (s *scheduler) endFeed() {
	f := &s.feed
	if f.tail == nil || f.tail.ending {
		return
	}
	f.tail.ending = true
	f.tail.drop = s.mode() == store.ModePoll && !s.stopping
	f.tail.cancel()
	if s.mode() == store.ModeCDC {
		s.unfollow(cdc.Standby, nil)
		return
	}
	s.unfollow(cdc.Off, nil)
}

// unfollow goes back to polling.
func (s *scheduler) unfollow(state cdc.State, err error) {
	f := &s.feed
	f.told.clear()
	f.missing, f.stream = nil, nil
	s.setPhase(polling, state, err)
}

// setPhase changes what the feed does, and tells of a new state.
func (s *scheduler) setPhase(phase feedPhase, state cdc.State, err error) {
	f := &s.feed
	walked := s.walks()
	f.phase = phase
	if !walked && s.walks() {
		s.reads.fullAt = time.Time{}
		s.reads.wakeUp()
	}
	// A loss is shown until the log is followed again.
	if f.status.State.Lost() && phase != following && phase != polling {
		return
	}
	s.feedState(state, err)
}

func (s *scheduler) feedState(state cdc.State, err error) {
	st := &s.feed.status
	text := ""
	if err != nil {
		text = err.Error()
	}
	if st.State == state && st.Error == text {
		return
	}
	changed := st.State != state
	st.State, st.Error = state, text
	if !changed {
		return
	}
	st.Since = now()
	log := s.log.Info
	if err != nil && state != cdc.Waiting {
		log = s.log.Warn
	}
	log("log feed changed", "source", st.Source, "state", state, "error", err)
	if hook := s.config.Events.Feed; hook != nil {
		hook(FeedInfo{Source: st.Source, State: state, Err: err})
	}
}

// walks reports whether the lanes are to be walked.
func (s *scheduler) walks() bool {
	return s.feed.phase != following || !s.wholeSince(s.feed.swept)
}

// wholeSince reports whether every lane was walked whole, from its cursor to the
// queue's end, by a pass that began later.
func (s *scheduler) wholeSince(at time.Time) bool {
	if at.IsZero() {
		return true
	}
	for _, l := range s.lanes {
		if !l.wholeAt.After(at) {
			return false
		}
	}
	return true
}

// catchUp has the lanes walked again before the log is followed on.
func (s *scheduler) catchUp(why string) {
	f := &s.feed
	if f.phase != joining && f.phase != following {
		return
	}
	f.since = now()
	if f.phase == joining {
		return
	}
	f.status.CatchUps++
	s.log.Info("the log is not followed until the queue was read", "source", f.status.Source, "because", why)
	ids := make([]int64, len(f.missing))
	for i := range f.missing {
		ids[i] = f.missing[i].id
	}
	f.missing = nil
	f.told.unshift(ids)
	s.setPhase(joining, cdc.CatchingUp, nil)
	s.bound()
}

// restartLanes begins every lane again at its lowest id.
func (s *scheduler) restartLanes(why string) {
	for _, l := range s.lanes {
		l.restart(s.epoch)
	}
	s.catchUp(why)
}

// join follows the log from here on, where that leaves nothing out.
func (s *scheduler) join() {
	f := &s.feed
	if f.phase != joining || !s.wholeSince(f.since) {
		return
	}
	f.pause, f.askAt = 0, time.Time{}
	s.setPhase(following, cdc.Streaming, nil)
}

// bound drops the oldest of too many ids; the lanes are walked for them.
func (s *scheduler) bound() {
	f := &s.feed
	limit := maxToldRows * s.config.MaxRows
	if f.told.len() <= limit {
		return
	}
	if f.phase == following {
		s.catchUp("more events are committed than can be sent")
		return
	}
	f.told.pop(f.told.len() - limit/2)
	// Ids told up to here may be committed and not visible for a moment more.
	f.since = now().Add(gapMax)
}

// onTail takes the news of the log.
func (s *scheduler) onTail(news *tailNews) {
	f := &s.feed
	if news.done {
		if f.tail == news.tail {
			f.tail = nil
			s.feedOff()
		}
		return
	}
	if f.tail != news.tail || f.tail.ending {
		return
	}
	switch {
	case news.batch != nil:
		s.onBatch(news.batch)
	case news.stream != nil:
		f.stream, f.start = news.stream, news.start
		if o, ok := s.config.Source.(cdc.Ordered); ok {
			f.ordered = o.VisibleInOrder()
		}
		f.status.Streams++
		s.setPhase(opening, cdc.Opening, nil)
	case news.status != nil:
		f.status.Log = news.status
	case news.state == cdc.Opening:
		if f.status.State == cdc.Off || f.status.State == cdc.Standby || f.status.State == "" {
			s.feedState(cdc.Opening, nil)
		}
	default:
		if news.state.Lost() {
			f.status.Losses++
			f.status.LastLoss, f.status.LastLossAt = news.state, now()
		}
		s.unfollow(news.state, news.err)
	}
}

// feedOff names the state of a relay that does not read the log.
func (s *scheduler) feedOff() {
	switch {
	case s.feed.tail != nil:
	case s.mode() != store.ModeCDC:
		s.feedState(cdc.Off, nil)
	case !s.holdsAll():
		s.feedState(cdc.Standby, nil)
	}
}

// onBatch takes what was committed. However much it is, the log goes on: what
// cannot be kept is found in the queue.
func (s *scheduler) onBatch(batch *cdc.Batch) {
	f := &s.feed
	if f.stream == nil {
		return
	}
	f.status.Told += uint64(len(batch.IDs))
	if batch.Truncates > 0 {
		f.status.Truncates += uint64(batch.Truncates)
		s.log.Warn("the outbox was truncated: ids may begin anew", "source", f.status.Source, "times", batch.Truncates)
		f.told.clear()
		f.recent.clear()
		f.missing = nil
		s.beginAnew("the outbox was truncated")
	}
	if batch.Undecodable > 0 {
		f.status.Undecodable += uint64(batch.Undecodable)
		s.log.Warn("ids of events could not be read from the log", "source", f.status.Source, "events", batch.Undecodable)
		s.catchUp("ids could not be read")
	}
	for _, id := range batch.IDs {
		if !f.recent.has(id) {
			f.told.push(id)
		}
	}
	if slices.Contains(batch.Marks, f.start) {
		f.start = ""
		if f.phase == opening {
			f.since = now()
			if n := f.told.len(); n > startKept {
				f.told.pop(n - startKept)
				f.since = f.since.Add(gapMax)
			}
			s.setPhase(joining, cdc.CatchingUp, nil)
		}
	}
	s.bound()
	if batch.Position != "" {
		f.status.Position = string(batch.Position)
		if !batch.Committed.IsZero() {
			f.status.Committed = batch.Committed
		}
		f.tail.ack(f.stream, batch.Position)
	}
}

// met notes that a row is known, so that the log need not tell it.
func (f *feed) met(id int64) {
	if f.tail == nil {
		return
	}
	f.told.remove(id)
	f.recent.add(id)
}
