package relay

import (
	"cmp"
	"slices"
	"time"

	"github.com/waybillhq/waybill/store"
)

// A row is an unsettled event that the scheduler knows.
type row struct {
	store.Change
	data  *store.Row // nil once it was accepted: it is not sent again
	key   *key
	place string    // where the broker stored it, or its topic
	read  time.Time // when it became known; Age counts from the insertion to here
	state rowState
	skip  bool // a skip marker is sent in its stead
	told  bool // by the database's log

	former bool // ids have begun anew since
}

// bytes returns how much data the row keeps in memory.
func (r *row) bytes() int {
	if r.data == nil {
		return 0
	}
	return len(r.data.Event.Data)
}

func (r *row) version() int64 { return r.data.Event.AggregateVersion }

type rowState uint8

const (
	queued   rowState = iota // in its key's queue
	inFlight                 // in an outstanding Publish call
	writing                  // its change waits for, or is in, a transaction
)

// A key is one (topic, key) that the scheduler has rows or a hold of.
//
//	open      rows come from the lane's reads; they are queued and sent
//	held      a row of it is in backoff or DEAD: what comes is parked
//	draining  rows are read by key, parked or not, lowest first; what comes by
//	          any other way is ignored, until the read by key is empty
type key struct {
	hash  int64
	topic string
	thash int64
	lane  *lane
	state keyState

	queue   []*row // visible and unsent, in the order to send
	flying  int    // rows in an outstanding Publish call
	writes  int    // rows whose change is not yet written
	ready   bool   // in the scheduler's ready list
	reading bool   // a read by key is queued or under way
	probe   bool   // read one row only: it is not known whether the key may go on
	dead    bool   // held by a DEAD row: no timer
	timer   int    // guards the timer heap against earlier holds

	unknowns int       // unanswered sends of the head while others were answered
	head     int64     // the row that unknowns counts
	lastAgg  aggregate // of the last row sent
	lastVer  int64
}

type keyState uint8

const (
	open keyState = iota
	held
	draining
)

type aggregate struct{ tenant, kind, id string }

func aggregateOf(r *row) aggregate {
	e := &r.data.Event
	return aggregate{e.TenantID, e.AggregateType, e.AggregateID}
}

// idle reports whether nothing but a hold keeps the key in memory.
func (k *key) idle() bool {
	return len(k.queue) == 0 && k.flying == 0 && k.writes == 0 && !k.reading
}

// push queues rows in the order to send: by id, and within that order the
// places of one aggregate's versioned events filled in version order.
func (k *key) push(rows ...*row) {
	sorted := true
	for _, r := range rows {
		r.state = queued
		if n := len(k.queue); n > 0 {
			last := k.queue[n-1]
			if last.ID > r.ID || last.version() > r.version() {
				sorted = false
			}
		}
		k.queue = append(k.queue, r)
	}
	if !sorted {
		orderByVersion(k.queue)
	}
}

func orderByVersion(rows []*row) {
	slices.SortFunc(rows, func(a, b *row) int { return cmp.Compare(a.ID, b.ID) })
	slots := make(map[aggregate][]int)
	for i, r := range rows {
		if r.version() > 0 {
			a := aggregateOf(r)
			slots[a] = append(slots[a], i)
		}
	}
	for _, at := range slots {
		if len(at) < 2 {
			continue
		}
		some := make([]*row, len(at))
		for i, j := range at {
			some[i] = rows[j]
		}
		slices.SortStableFunc(some, func(a, b *row) int {
			return cmp.Compare(a.version(), b.version())
		})
		for i, j := range at {
			rows[j] = some[i]
		}
	}
}

// sent notes a row in sending order and reports whether its version is lower
// than that of the same aggregate's row before it.
func (k *key) sent(r *row) (backwards bool) {
	if r.version() == 0 {
		return false
	}
	a := aggregateOf(r)
	backwards = k.lastAgg == a && r.version() < k.lastVer
	k.lastAgg, k.lastVer = a, r.version()
	return backwards
}
