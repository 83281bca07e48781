package memstore

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

type eventRow struct {
	id        int64
	createdAt time.Time
	queued    bool // a queue row is made with it
	headed    bool // its head is written where there are heads
	event     waybill.Event
}

type queueRow struct {
	id        int64
	lane      int
	keyHash   int64
	topicHash int64
	status    store.Status
	parked    bool
	skip      bool
	retries   int
	retryAt   time.Time // zero: not set
	firstErr  string
	lastErr   string
}

type receiptRow struct {
	id      int64
	eventID string
	receipt store.Receipt
}

// outboxTables are the committed rows, and what a database would keep as
// indexes over them.
type outboxTables struct {
	lastID   int64
	events   map[int64]eventRow
	ids      *index           // of events
	byID     map[string]int64 // event id to id
	queue    map[int64]queueRow
	receipts map[int64]receiptRow
	archive  map[string]store.Tracked
	heads    map[aggregate]store.Head
	audit    []store.AuditEntry
	leases   [store.Lanes]leaseRow
	relays   map[string]relayRow
	places   map[string]store.Position // of logs, by source
	mode     string

	hot    [store.Lanes]*index             // PENDING and not parked
	retry  [store.Lanes]map[int64]struct{} // retryAt is set
	parked [store.Lanes]map[int64]int      // rows by key hash
	keys   map[int64]*index                // all rows by key hash
}

func (o *outboxTables) init() {
	o.events = make(map[int64]eventRow)
	o.places = make(map[string]store.Position)
	o.ids = newIndex()
	o.byID = make(map[string]int64)
	o.queue = make(map[int64]queueRow)
	o.receipts = make(map[int64]receiptRow)
	o.archive = make(map[string]store.Tracked)
	o.heads = make(map[aggregate]store.Head)
	o.relays = make(map[string]relayRow)
	o.keys = make(map[int64]*index)
	for lane := range store.Lanes {
		o.hot[lane] = newIndex()
		o.retry[lane] = make(map[int64]struct{})
		o.parked[lane] = make(map[int64]int)
	}
}

// insert is what a commit does with an inserted event.
func (o *outboxTables) insert(row eventRow) {
	o.events[row.id] = row
	o.ids.add(row.id)
	o.byID[row.event.ID] = row.id
	if row.queued {
		o.setQueue(newQueueRow(row))
	}
}

func (o *outboxTables) deleteEvent(id int64) {
	row, ok := o.events[id]
	if !ok {
		return
	}
	delete(o.events, id)
	delete(o.byID, row.event.ID)
	o.ids.remove(id)
}

func newQueueRow(row eventRow) queueRow {
	lane := sha256.Sum256([]byte(row.event.Key))
	return queueRow{
		id:        row.id,
		lane:      int(binary.BigEndian.Uint64(lane[:8]) % store.Lanes),
		keyHash:   hash(row.event.Topic, row.event.Key),
		topicHash: hash(row.event.Topic),
		status:    store.StatusPending,
	}
}

// hash joins the parts with a byte that no valid text has.
func hash(parts ...string) int64 {
	var text []byte
	for _, part := range parts {
		text = append(append(text, part...), 0xff)
	}
	sum := sha256.Sum256(text)
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// setQueue inserts or replaces a queue row and keeps the indexes true.
func (o *outboxTables) setQueue(row queueRow) {
	o.deleteQueue(row.id)
	o.queue[row.id] = row
	if row.status == store.StatusPending && !row.parked {
		o.hot[row.lane].add(row.id)
	}
	if !row.retryAt.IsZero() {
		o.retry[row.lane][row.id] = struct{}{}
	}
	if row.parked {
		o.parked[row.lane][row.keyHash]++
	}
	if o.keys[row.keyHash] == nil {
		o.keys[row.keyHash] = newIndex()
	}
	o.keys[row.keyHash].add(row.id)
}

func (o *outboxTables) deleteQueue(id int64) {
	row, ok := o.queue[id]
	if !ok {
		return
	}
	delete(o.queue, id)
	o.hot[row.lane].remove(id)
	delete(o.retry[row.lane], id)
	if row.parked {
		if o.parked[row.lane][row.keyHash]--; o.parked[row.lane][row.keyHash] == 0 {
			delete(o.parked[row.lane], row.keyHash)
		}
	}
	key := o.keys[row.keyHash]
	if key.remove(id); len(key.live) == 0 {
		delete(o.keys, row.keyHash)
	}
}

// row returns the queue row as the contract shows it. The event is left out
// when it does not exist.
func (o *outboxTables) row(q queueRow, now time.Time) *store.Row {
	row := &store.Row{
		ID: q.id, Lane: q.lane, KeyHash: q.keyHash, TopicHash: q.topicHash,
		Status: q.status, Parked: q.parked, Skip: q.skip, Retries: q.retries,
		FirstErr: q.firstErr, LastErr: q.lastErr,
	}
	if !q.retryAt.IsZero() {
		row.HasRetry, row.RetryIn = true, q.retryAt.Sub(now)
	}
	if e, ok := o.events[q.id]; ok {
		row.Age = max(now.Sub(e.createdAt), 0)
		row.Event = cloneEvent(e.event)
	}
	return row
}

func cloneEvent(e waybill.Event) waybill.Event {
	e.Data = slices.Clone(e.Data)
	e.Headers = maps.Clone(e.Headers)
	return e
}
