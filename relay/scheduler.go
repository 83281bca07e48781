package relay

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// The scheduler holds what the relay knows. One goroutine runs it and owns all
// its fields; reads, sends, writes and renewals run beside it, in goroutines of
// their own, and hand back what becomes of them through the channels.
type scheduler struct {
	relay  *Relay
	store  Store
	config *Config
	log    *slog.Logger

	lanes map[int]*lane
	keys  map[int64]*key
	known map[int64]*row
	bytes int // of data in known

	// Ids that were written while a read was under way, which may still show them.
	gone []int64
	// Rows that were known when ids began anew, and still are: what has such an id
	// by now is taken for them.
	anew   bool
	former int

	ready  []*key // have a row to send; sent in turns
	flying int    // rows in outstanding Publish calls
	sends  int    // outstanding Publish calls
	sentOK uint64 // accepted rows, ever

	changes  changeSet // to be written
	applying int       // rows of the transaction under way; 0 none
	settleAt time.Time // few changes wait until then
	proving  bool      // the transaction under way is empty
	provenAt time.Time // the database took a write

	timers   timerHeap // held keys by their time
	deadKeys int

	brokerPause pause
	topicPauses map[int64]*topicPause // by topic hash
	database    outage

	reads    readState
	feed     feed
	horizon  horizon
	epoch    uint64
	lease    leaseState
	stopping bool

	jobs      *jobs
	readDone  chan readResult
	sendDone  chan sendResult
	applyDone chan applyResult
	leaseDone chan leaseResult
	tailNews  chan tailNews
}

func newScheduler(r *Relay) *scheduler {
	s := &scheduler{
		relay: r, store: r.store, config: &r.config, log: r.config.Logger,
		lanes: make(map[int]*lane), keys: make(map[int64]*key), known: make(map[int64]*row),
		topicPauses: make(map[int64]*topicPause),
		jobs:        newJobs(r.config.Concurrency + 2),
		readDone:    make(chan readResult, 1),
		sendDone:    make(chan sendResult, r.config.Concurrency),
		applyDone:   make(chan applyResult, 1),
		leaseDone:   make(chan leaseResult, 1),
		tailNews:    make(chan tailNews),
	}
	s.feed.recent.size = recentSize
	if r.config.Source != nil {
		s.feed.status.Source = r.config.Source.Name()
	}
	return s
}

// run is the relay's life: it returns when ctx has ended and all is drained.
func (s *scheduler) run(ctx context.Context) error {
	// What was begun is finished when ctx ends; hard ends it.
	hard, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer s.jobs.end()
	if err := s.firstLease(ctx); err != nil {
		return err
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	done := ctx.Done()
	var grace <-chan time.Time
	for {
		select {
		case <-done:
			done = nil
			s.stop()
			t := time.NewTimer(s.config.Grace)
			defer t.Stop()
			grace = t.C
		case <-grace:
			return s.abandon(cancel)
		case <-s.relay.wake:
			s.reads.wakeUp()
		case result := <-s.readDone:
			s.onRead(hard, result)
		case result := <-s.sendDone:
			s.onSent(result)
		case result := <-s.applyDone:
			s.onApplied(result)
		case result := <-s.leaseDone:
			s.onLeased(result)
		case news := <-s.tailNews:
			s.onTail(&news)
		case <-timer.C:
		}
		s.dueTimers()
		s.dueTopics()
		s.step(hard)
		if s.stopping && s.drained() {
			return s.leave(hard)
		}
		timer.Reset(s.untilNext())
	}
}

// step starts whatever can be started.
func (s *scheduler) step(ctx context.Context) {
	s.endAnew()
	s.startLease(ctx)
	s.startFeed(ctx)
	s.startApply(ctx)
	s.startSends(ctx)
	s.startRead(ctx)
}

// stop begins the drain: nothing more is read or sent.
func (s *scheduler) stop() {
	s.stopping = true
	s.endFeed()
	s.log.Info("relay stops", "in_flight", s.flying, "unsettled", s.changes.rows()+s.applying)
}

func (s *scheduler) drained() bool {
	return s.sends == 0 && s.changes.empty() && s.applying == 0 && !s.proving && !s.reads.busy && !s.lease.busy && s.feed.tail == nil
}

// leave gives the lanes back.
func (s *scheduler) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.LeaseTTL)
	defer cancel()
	if err := s.store.Leave(ctx, s.relay.owner); err != nil {
		s.log.Warn("relay could not release its lanes; they expire by themselves", "error", err, "after", s.config.LeaseTTL)
	}
	s.log.Info("relay stopped")
	return nil
}

// abandon ends what is still under way and waits for it to notice.
func (s *scheduler) abandon(cancel context.CancelFunc) error {
	left := s.flying + s.changes.rows() + s.applying
	cancel()
	for s.reads.busy || s.sends > 0 || s.applying > 0 || s.proving || s.lease.busy || s.feed.tail != nil {
		select {
		case <-s.readDone:
			s.reads.busy = false
		case <-s.sendDone:
			s.sends--
		case <-s.applyDone:
			s.applying, s.proving = 0, false
		case <-s.leaseDone:
			s.lease.busy = false
		case news := <-s.tailNews:
			s.onTail(&news)
		}
	}
	return &waybill.Error{
		Op: "stop relay", Err: fmt.Errorf("%w: %d events after %v", ErrGrace, left, s.config.Grace),
		Hint: "they are sent or settled again by the next relay",
	}
}

// untilNext returns how long the loop may sleep when nothing comes back to it.
func (s *scheduler) untilNext() time.Duration {
	at := now().Add(time.Second)
	sooner := func(t time.Time) {
		if t.Before(at) {
			at = t
		}
	}
	if !s.lease.busy {
		sooner(s.lease.next)
	}
	if len(s.timers) > 0 {
		sooner(s.timers[0].at)
	}
	// A pause that is over waits for an answer, which wakes the loop by itself.
	ahead := func(t time.Time) {
		if t.After(now()) {
			sooner(t)
		}
	}
	ahead(s.brokerPause.until)
	for _, p := range s.topicPauses {
		ahead(p.until)
	}
	ahead(s.database.retryAt)
	if !s.changes.empty() && s.applying == 0 && !s.proving && !s.database.down {
		sooner(s.settleAt)
	}
	if !s.reads.busy && !s.stopping {
		sooner(s.reads.next(s))
	}
	return max(at.Sub(now()), 0)
}

// know takes a row into memory.
func (s *scheduler) know(k *key, data *store.Row, read time.Time) *row {
	r := &row{Change: store.Change{ID: data.ID, EventID: data.Event.ID}, data: data, key: k, read: read, skip: data.Skip}
	s.known[data.ID] = r
	s.bytes += len(data.Event.Data)
	k.lane.rows++
	k.lane.top = max(k.lane.top, data.ID)
	s.feed.met(data.ID)
	return r
}

// lighten drops what an accepted row was sent with.
func (s *scheduler) lighten(r *row) {
	s.bytes -= r.bytes()
	r.place = cmp.Or(r.place, r.data.Event.Topic)
	r.data = nil
}

// forget drops a row from memory; it is read again when its time comes.
func (s *scheduler) forget(r *row) {
	if s.known[r.ID] != r {
		return
	}
	delete(s.known, r.ID)
	s.bytes -= r.bytes()
	r.key.lane.rows--
	s.parted(r)
}

// beginAnew reads all lanes again, as ids may begin below those that were seen,
// and once more when nothing is known any more that has the ids of others. Event
// a is sent under id 1 and waits for its settling, the outbox is emptied, and
// event c gets id 1: until a is settled, which leaves the row of c alone, c is
// passed over as known.
func (s *scheduler) beginAnew(why string) {
	for _, r := range s.known {
		if r != tombstone && !r.former {
			r.former = true
			s.former++
		}
	}
	s.anew = s.former > 0
	s.restartLanes(why)
}

// parted notes that a row is not known any more.
func (s *scheduler) parted(r *row) {
	if r.former {
		r.former = false
		s.former--
	}
}

// endAnew reads all lanes again when no row of former ids is left.
func (s *scheduler) endAnew() {
	if s.anew && s.former == 0 {
		s.anew = false
		s.restartLanes("what had their ids before is settled")
	}
}

// bury forgets a row whose change was written, but remembers its id while a
// read is under way that may show it as it was.
func (s *scheduler) bury(r *row) {
	if s.known[r.ID] != r {
		return
	}
	s.forget(r)
	if s.reads.busy {
		s.known[r.ID] = tombstone
		s.gone = append(s.gone, r.ID)
	}
}

var tombstone = &row{}

// exhume clears the tombstones when no read is under way.
func (s *scheduler) exhume() {
	for _, id := range s.gone {
		if s.known[id] == tombstone {
			delete(s.known, id)
		}
	}
	s.gone = s.gone[:0]
}

func (s *scheduler) keyOf(l *lane, data *store.Row) *key {
	k := s.keys[data.KeyHash]
	if k == nil {
		k = &key{hash: data.KeyHash, thash: data.TopicHash, topic: data.Event.Topic, lane: l}
		s.keys[data.KeyHash] = k
	}
	return k
}

// release drops an open key that nothing keeps.
func (s *scheduler) release(k *key) {
	if k.state == open && k.idle() && s.keys[k.hash] == k {
		delete(s.keys, k.hash)
	}
}

// makeReady puts a key in line for sending.
func (s *scheduler) makeReady(k *key) {
	if !k.ready && k.flying == 0 && len(k.queue) > 0 && k.state != held {
		k.ready = true
		s.ready = append(s.ready, k)
	}
}

// dropLane forgets all that belongs to a lane that is not ours any more.
func (s *scheduler) dropLane(l *lane) {
	if s.lanes[l.Lane] != l {
		return
	}
	delete(s.lanes, l.Lane)
	for hash, k := range s.keys {
		if k.lane == l {
			if k.state == held && k.dead {
				s.deadKeys--
			}
			delete(s.keys, hash)
		}
	}
	for id, r := range s.known {
		if r != tombstone && r.key.lane == l {
			delete(s.known, id)
			s.bytes -= r.bytes()
			s.parted(r)
		}
	}
	s.changes.dropLane(l)
}

// live reports whether a key belongs to a lane that is still ours.
func (s *scheduler) live(k *key) bool { return s.lanes[k.lane.Lane] == k.lane }

type timerEntry struct {
	at   time.Time
	key  *key
	turn int
}

type timerHeap []timerEntry

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h timerHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *timerHeap) Push(x any)        { *h = append(*h, x.(timerEntry)) }
func (h *timerHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

var _ heap.Interface = (*timerHeap)(nil)
