package relay

import (
	"context"
	"slices"
	"time"

	"github.com/waybillhq/waybill/internal/fault"
	"github.com/waybillhq/waybill/store"
)

// One read is under way at a time. What it shows was true when it began; the
// scheduler corrects it by what was written since (see bury) and by lanes that
// were restarted since (see lane.epoch).
type readState struct {
	busy      bool
	keys      []*key      // to be read by key
	keyTurn   bool        // keys and lanes take turns
	load      bool        // some lanes' held keys are not known
	first     int         // the lane to begin the next walk with
	slice     int         // unknown rows that a walk takes of a lane
	walkLimit int         // and of all lanes
	rest      *readResult // of the last walk: what was not loaded yet
	hotAt     time.Time
	fullAt    time.Time // the lanes' passes are short until then
	dueAt     time.Time
	dueLimit  int // rows of one read of what is due
	sweepAt   time.Time
	horizonAt time.Time
	pause     time.Duration // between two reads that found nothing new
}

type readKind uint8

const (
	readWalk readKind = iota // finds hot rows
	readLoad                 // goes on with those of a walk that are wanted
	readTold                 // loads what the log told
	readKey
	readDue
	readHeld
)

type readResult struct {
	kind     readKind
	epoch    uint64
	began    time.Time
	took     time.Duration
	lanes    []store.LaneCursor // of readWalk, in order
	short    bool               // passes that this readWalk began are short
	walked   store.WalkResult
	want     []int64 // of readLoad and readTold
	told     []int64 // of readTold, as the log told them
	cutAt    int64   // what was walked over above this id is not looked at; 0 none
	ids      []int   // of readDue and readHeld
	limit    int     // of readDue
	key      *key
	found    store.FetchResult
	held     []store.HeldKey
	frontier *store.Frontier
	err      error
}

const (
	dueEvery     = 200 * time.Millisecond
	horizonEvery = 50 * time.Millisecond
	keyReadLimit = 500
	maxDueLimit  = 1 << 20
	maxSlice     = 1 << 16
	slowPass     = 10 * time.Millisecond // and fewer than slowRows new
	slowRows     = 100
	fullEvery    = 10 * time.Second // at least
	passedKeys   = 16               // read by key at once; more take longer than a full pass
	unsettled    = 2 * applyRows    // and more of what was sent stops reading
)

// patience bounds a statement. A connection that lost its other end without a
// word would keep it for a quarter of an hour, while renewals that use another
// one hold the lanes.
func (s *scheduler) patience() time.Duration { return max(3*s.config.LeaseTTL, leastPatience) }

const leastPatience = 30 * time.Second

func (r *readState) wakeUp() { r.hotAt, r.pause = time.Time{}, 0 }

// next returns when the next read is wanted.
func (r *readState) next(s *scheduler) time.Time {
	if s.database.down && now().Before(s.database.retryAt) {
		return s.database.retryAt
	}
	if s.brokerBlocks(now()) || len(s.lanes) == 0 {
		return now().Add(time.Second)
	}
	if r.load {
		return time.Time{}
	}
	if s.room() <= 0 {
		return r.dueAt
	}
	if len(r.keys) > 0 {
		return time.Time{}
	}
	at := r.dueAt
	if told, wanted := s.nextTold(); wanted && told.Before(at) {
		at = told
	}
	if r.hotAt.Before(at) && s.walks() && !s.enough() {
		at = r.hotAt
	}
	return at
}

// room returns how many more rows may be known.
func (s *scheduler) room() int {
	if s.bytes >= s.config.MaxBytes {
		return 0
	}
	return s.config.MaxRows - len(s.known)
}

// enough reports whether more rows would only wait in memory, and be walked over
// again: for half as many calls as may be outstanding, or to be settled.
func (s *scheduler) enough() bool {
	if len(s.changes.settled) > unsettled {
		return true
	}
	rows, batch := 0, s.config.PublishBatch
	for _, k := range s.ready {
		if rows += min(len(k.queue), batch); rows >= s.config.Concurrency*batch/2 {
			return true
		}
	}
	return false
}

func (s *scheduler) startRead(ctx context.Context) {
	r := &s.reads
	at := now()
	if r.busy || s.stopping || len(s.lanes) == 0 || s.brokerBlocks(at) || s.database.down && at.Before(s.database.retryAt) {
		return
	}
	if at.After(r.sweepAt) {
		s.sweep(at)
	}
	s.epoch++
	result := readResult{epoch: s.epoch, began: at}
	told, walk := s.wantsTold(at), s.walks() && !at.Before(r.hotAt)
	switch {
	case r.load:
		result.kind = readHeld
		result.ids = s.laneIDs(func(l *lane) bool { return l.state == loading })
	case !at.Before(r.dueAt):
		result.kind = readDue
		result.ids = s.laneIDs(func(l *lane) bool { return l.state == active })
		r.dueAt = at.Add(dueEvery)
		r.dueLimit = max(r.dueLimit, s.config.FetchBatch)
	case len(r.keys) > 0 && s.room() > 0 && (r.keyTurn || !walk && !told):
		r.keyTurn = false
		result.kind = readKey
		if result.key = s.nextKey(); result.key == nil {
			return
		}
	case told && (s.feed.turn || !walk):
		r.keyTurn, s.feed.turn = true, false
		s.loadTold(ctx, result)
		return
	case s.room() > 0 && walk && !s.enough():
		r.keyTurn, s.feed.turn = true, true
		if rest := r.rest; rest != nil {
			r.rest, rest.began = nil, at
			s.loadWalked(ctx, *rest)
			return
		}
		result.kind = readWalk
		result.short = at.Before(r.fullAt)
		result.lanes = s.cursors(result.short)
	default:
		return
	}
	if result.kind != readKey && len(result.ids) == 0 && len(result.lanes) == 0 {
		r.load = r.load && result.kind != readHeld
		r.hotAt = at.Add(s.config.PollIdle)
		return
	}
	request := readRequest{askFrontier: result.kind == readWalk && !at.Before(r.horizonAt)}
	if request.askFrontier {
		r.horizonAt = at.Add(horizonEvery)
	}
	request.walk = store.WalkRequest{Lanes: result.lanes, ExcludeTopics: s.pausedTopics(), Limit: max(r.walkLimit, s.config.FetchBatch)}
	for _, c := range result.lanes {
		request.walk.Limit += max(c.Limit-r.slice, 0)
	}
	request.key = s.keyRequest(result.key)
	result.limit = r.dueLimit
	s.goRead(ctx, result, request)
}

// readRequest is what a read asks the store, as far as its result does not say.
type readRequest struct {
	askFrontier bool
	walk        store.WalkRequest
	key         store.KeyRequest
	maxBytes    int // of readLoad
}

func (s *scheduler) goRead(ctx context.Context, result readResult, request readRequest) {
	s.reads.busy = true
	s.jobs.do(func() {
		s.read(ctx, &result, request)
		result.took = now().Sub(result.began)
		s.readDone <- result
	})
}

// read asks the store; it runs beside the scheduler and touches none of it.
func (s *scheduler) read(ctx context.Context, result *readResult, request readRequest) {
	ctx, cancel := context.WithTimeout(ctx, s.patience())
	defer cancel()
	switch result.kind {
	case readWalk:
		// The frontier is asked first, so that what it closes is visible to the read.
		if request.askFrontier {
			f, err := s.store.Frontier(ctx)
			if err != nil {
				result.err = err
				return
			}
			result.frontier = &f
		}
		result.walked, result.err = s.store.Walk(ctx, request.walk)
	case readLoad:
		result.found, result.err = s.store.Load(ctx, result.want, request.maxBytes)
	case readTold:
		if request.askFrontier {
			f, err := s.store.Frontier(ctx)
			if err != nil {
				result.err = err
				return
			}
			result.frontier = &f
		}
		result.found, result.err = s.store.Load(ctx, result.want, request.maxBytes)
	case readKey:
		result.found, result.err = s.store.FetchKey(ctx, request.key)
	case readDue:
		result.found.Rows, result.err = s.store.FetchDue(ctx, result.ids, result.limit)
	case readHeld:
		result.held, result.err = s.store.HeldKeys(ctx, result.ids)
	}
	if len(result.found.Rows) > 0 {
		fault.Point("relay.fetched")
	}
}

func (s *scheduler) keyRequest(k *key) store.KeyRequest {
	if k == nil {
		return store.KeyRequest{}
	}
	request := store.KeyRequest{
		Lane: k.lane.Lane, KeyHash: k.hash, SkipDead: s.config.topic(k.topic).OnDead == Continue,
		Limit: max(min(keyReadLimit, s.room()), 1), MaxBytes: max(s.config.MaxBytes-s.bytes, 1),
	}
	if k.probe {
		request.Limit = 1
	}
	return request
}

// nextKey takes the first key that is still to be read.
func (s *scheduler) nextKey() *key {
	r := &s.reads
	for len(r.keys) > 0 {
		k := r.keys[0]
		r.keys[0] = nil
		r.keys = r.keys[1:]
		if k.state == draining && s.live(k) && s.topicPauses[k.thash] == nil {
			return k
		}
		k.reading = false
	}
	r.keys = nil
	return nil
}

// laneIDs returns the lanes that pass, beginning where the last walk was cut.
func (s *scheduler) laneIDs(pass func(*lane) bool) []int {
	ids := make([]int, 0, len(s.lanes))
	for i := range store.Lanes {
		id := (s.reads.first + i) % store.Lanes
		if l := s.lanes[id]; l != nil && pass(l) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (s *scheduler) onRead(ctx context.Context, result readResult) {
	r := &s.reads
	r.busy = false
	defer s.exhume()
	if result.err != nil {
		r.rest = nil
		if result.key != nil && s.live(result.key) {
			result.key.reading = false
			s.wantRead(result.key)
		}
		if result.kind == readTold {
			s.feed.told.unshift(result.told)
		}
		s.databaseDown(result.err, false)
		return
	}
	s.databaseUp(false)
	switch result.kind {
	case readWalk:
		s.onWalked(ctx, result)
	case readLoad:
		s.onLoaded(&result)
	case readTold:
		s.onTold(&result)
	case readKey:
		s.onKeyRead(result.key, result.found, result.began)
	case readDue:
		s.onDue(&result)
	case readHeld:
		s.onHeld(&result)
	}
}

// onDue drains the keys of rows whose time has come: most are known by their
// timers, the others are what an operator asked for.
func (s *scheduler) onDue(result *readResult) {
	r, fresh := &s.reads, false
	// However long it takes, it leaves most of the time to the other reads.
	r.dueAt = now().Add(max(dueEvery, 2*result.took))
	for i := range result.found.Rows {
		data := result.found.Rows[i]
		l := s.lanes[data.Lane]
		if l == nil || l.state != active || l.epoch >= result.epoch || s.known[data.ID] != nil {
			continue
		}
		k := s.keyOf(l, data)
		fresh = fresh || k.state != draining
		s.drain(k, false)
	}
	// Rows that are due and cannot be sent, as those of a paused topic, must not
	// hide the others behind them.
	switch n := len(result.found.Rows); {
	case n < s.config.FetchBatch:
		r.dueLimit = s.config.FetchBatch
	case n >= result.limit && !fresh:
		r.dueLimit = min(2*result.limit, maxDueLimit)
	}
}

// onHeld completes lanes that were taken over: their keys with parked rows are
// read one by one before anything new of them is sent.
func (s *scheduler) onHeld(result *readResult) {
	asked := make(map[int]bool, len(result.ids))
	for _, id := range result.ids {
		if l := s.lanes[id]; l != nil && l.epoch < result.epoch {
			asked[id] = true
			if l.state == loading {
				l.state = active
			}
		}
	}
	for _, h := range result.held {
		l := s.lanes[h.Lane]
		if l == nil || !asked[h.Lane] || s.keys[h.KeyHash] != nil && s.keys[h.KeyHash].state != open {
			continue
		}
		k := s.keys[h.KeyHash]
		if k == nil {
			k = &key{hash: h.KeyHash, thash: h.TopicHash, topic: h.Topic, lane: l}
			s.keys[h.KeyHash] = k
		}
		s.drain(k, true)
	}
	s.reads.load = slices.ContainsFunc(s.laneIDs(func(*lane) bool { return true }), func(id int) bool { return s.lanes[id].state == loading })
	s.reads.hotAt = time.Time{}
}

// sweep begins every lane again at its lowest id, and looks for parked rows
// that nothing holds back.
func (s *scheduler) sweep(at time.Time) {
	s.reads.sweepAt = at.Add(s.config.SweepEvery)
	s.feed.swept = at
	s.reads.rest = nil
	s.epoch++
	for _, l := range s.lanes {
		if l.state == active {
			l.restart(s.epoch)
			l.state = loading
		}
	}
	s.reads.load = true
}
