package mysql

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/waybillhq/waybill/store"
)

// The lock shuts out a claim, and a renewal by the owner for the moments that a
// settling takes. The time is the one after the locks were waited for.
const lockLeasesSQL = `
SELECT l.lane, l.owner = ? AND l.fence = w.fence AND l.expires_at > SYSDATE(6)
FROM ` + listedLeases + ` STRAIGHT_JOIN {lease} l FORCE INDEX (PRIMARY) ON l.lane = w.lane
{for share l}`

// What is not in the queue now must be left alone if it comes before the end.
const lockQueuedSQL = `
SELECT p.id FROM ` + listedIDs + ` STRAIGHT_JOIN {pending} p FORCE INDEX (PRIMARY) ON p.id = w.id {for update p}`

const deleteQueuedSQL = `
DELETE p FROM ` + listedIDs + ` STRAIGHT_JOIN {pending} p FORCE INDEX (PRIMARY) ON p.id = w.id`

const insertReceiptsSQL = `
INSERT INTO {receipt} (id, event_id, outcome, via, published_to, note)
SELECT c.id, c.event_id, c.outcome, c.via, c.published_to, c.note
FROM JSON_TABLE(?, '$[*]' COLUMNS (
    id BIGINT PATH '$[0]', event_id VARCHAR(128) CHARACTER SET utf8mb4 PATH '$[1]', outcome VARCHAR(7) CHARACTER SET utf8mb4 PATH '$[2]',
    via VARCHAR(32) CHARACTER SET utf8mb4 PATH '$[3]', published_to VARCHAR(1024) CHARACTER SET utf8mb4 PATH '$[4]',
    note TEXT CHARACTER SET utf8mb4 PATH '$[5]')) c
ON DUPLICATE KEY UPDATE
    event_id = VALUES(event_id), outcome = VALUES(outcome), via = VALUES(via),
    published_at = VALUES(published_at), published_to = VALUES(published_to), note = VALUES(note)`

// Nearly always all that is to be settled is in the queue and still itself, and
// none of it has a receipt. Then the rows need not be matched: whether it was so is
// seen from their number and from the events, and else the whole is done again with
// care. What was emptied and filled again has its ids anew, and another event may be
// committed under one of them between any two statements: so the events are read
// after the queue rows were changed, or locked, when they are in sight if those were.
// Only what is to be forgotten is compared before anything is deleted, since nothing
// would be left to compare: from that first look to the end the transaction keeps a
// metadata lock on the events, which no emptying of their table passes.
// They are read without a lock: ids that lie close together as a range, which is
// several times cheaper than a search for each, others written into the statement.
// What is deleted is looked up row by row: with a list of ids both servers may read
// all of a small queue, whatever index is forced, and would wait for rows that are
// not committed yet.
const (
	eventIDsSQL   = `SELECT e.id, e.event_id FROM {event} e FORCE INDEX (PRIMARY) WHERE e.id IN ({ids})`
	eventRangeSQL = `SELECT e.id, e.event_id FROM {event} e FORCE INDEX (PRIMARY) WHERE e.id BETWEEN ? AND ?`
	notesSQL      = `INSERT INTO {receipt} (id, event_id, outcome, via, published_to, note) VALUES {rows}`
	noteSQL       = `(?, ?, ?, ?, ?, ?)`
)

// An event is locked before its queue row, as a requeue does.
const lockEventsSQL = `
SELECT e.id FROM ` + listedIDs + ` STRAIGHT_JOIN {event} e FORCE INDEX (PRIMARY) ON e.id = w.id {for update e}`

const deleteReceiptsSQL = `
DELETE r FROM ` + listedIDs + ` STRAIGHT_JOIN {receipt} r FORCE INDEX (PRIMARY) ON r.id = w.id`

const deleteEventsSQL = `
DELETE e FROM ` + listedIDs + ` STRAIGHT_JOIN {event} e FORCE INDEX (PRIMARY) ON e.id = w.id`

const failSQL = `
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (
    id BIGINT PATH '$[0]', dead TINYINT PATH '$[1]', retries INT PATH '$[2]', retry_in BIGINT PATH '$[3]',
    error TEXT CHARACTER SET utf8mb4 PATH '$[4]')) c
STRAIGHT_JOIN {pending} p FORCE INDEX (PRIMARY) ON p.id = c.id
SET p.status = IF(c.dead = 1, 'DEAD', 'PENDING'),
    p.parked = 1,
    p.retry_count = c.retries,
    p.next_retry_at = IF(c.dead = 1, NULL, UTC_TIMESTAMP(6) + INTERVAL c.retry_in MICROSECOND),
    p.first_error = COALESCE(NULLIF(p.first_error, ''), c.error),
    p.last_error = c.error,
    p.updated_at = UTC_TIMESTAMP(6)`

const parkSQL = `
UPDATE ` + listedIDs + ` STRAIGHT_JOIN {pending} p FORCE INDEX (PRIMARY) ON p.id = w.id
SET p.parked = 1, p.updated_at = UTC_TIMESTAMP(6)`

// Apply makes the changes if the leases hold.
func (s *Store) Apply(ctx context.Context, guard store.Guard, changes store.Changes) error {
	err := s.apply(ctx, guard, changes, false)
	if errors.Is(err, errNotAsUsual) || codeOf(err) == codeDuplicate {
		err = s.apply(ctx, guard, changes, true)
	}
	return failure("apply", "", err)
}

// errNotAsUsual says that some of what is to be settled is not in the queue, or
// has become another event.
var errNotAsUsual = errors.New("not all of it is in the queue")

func (s *Store) apply(ctx context.Context, guard store.Guard, changes store.Changes, careful bool) error {
	return s.inTx(ctx, func(tx ownTx) error {
		if err := tx.lockLeases(ctx, guard); err != nil {
			return err
		}
		changes, settle := changes, tx.settle
		if careful {
			var err error
			if changes, err = tx.lockQueued(ctx, changes); err != nil {
				return err
			}
			settle = tx.settleCareful
		}
		if err := settle(ctx, changes.Settled, changes.Forget); err != nil {
			return err
		}
		if err := tx.fail(ctx, changes.Failed); err != nil {
			return err
		}
		if len(changes.Parked) > 0 {
			if _, err := tx.exec(ctx, parkSQL, list(slices.Sorted(slices.Values(changes.Parked)))); err != nil {
				return err
			}
		}
		if careful {
			return nil
		}
		if changes.Forget {
			changes.Settled = nil // they were compared before they were deleted
		}
		strangers, _, err := tx.strangers(ctx, byID(changes))
		if err == nil && len(strangers) > 0 {
			err = errNotAsUsual
		}
		return err
	})
}

// byID lists the events that are settled or refused.
func byID(changes store.Changes) []store.Change {
	all := make([]store.Change, 0, len(changes.Settled)+len(changes.Failed))
	for i := range changes.Settled {
		all = append(all, changes.Settled[i].Change)
	}
	for i := range changes.Failed {
		all = append(all, changes.Failed[i].Change)
	}
	slices.SortStableFunc(all, func(a, b store.Change) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

func (t ownTx) lockLeases(ctx context.Context, guard store.Guard) error {
	if len(guard.Lanes) == 0 {
		// The queue is asked for all the same.
		_, err := t.exec(ctx, deleteQueuedSQL, "[]")
		return err
	}
	rows, err := t.query(ctx, lockLeasesSQL, guard.Owner, leaseList(guard.Lanes))
	if err != nil {
		return err
	}
	held := make(map[int]bool, len(guard.Lanes))
	err = each(rows, func() error {
		var lane int
		var holds bool
		err := rows.Scan(&lane, &holds)
		held[lane] = holds
		return err
	})
	if err != nil {
		return err
	}
	var lost []int
	for _, lease := range guard.Lanes {
		if !held[lease.Lane] && !slices.Contains(lost, lease.Lane) {
			lost = append(lost, lease.Lane)
		}
	}
	if len(lost) > 0 {
		slices.Sort(lost)
		return &store.StaleError{Lanes: lost}
	}
	return nil
}

// leaseList orders the lanes, so that two transactions cannot lock them crosswise.
func leaseList(leases []store.Lease) string {
	pairs := make([][2]int64, len(leases))
	for i, lease := range leases {
		pairs[i] = [2]int64{int64(lease.Lane), lease.Fence}
	}
	slices.SortFunc(pairs, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	return list(pairs)
}

// settle is for the usual case, and fails in any other. It goes through the rows
// by id, so that two settlings cannot lock them crosswise.
func (t ownTx) settle(ctx context.Context, settled []store.SettledChange, forget bool) error {
	if len(settled) == 0 {
		return nil
	}
	settled = slices.Clone(settled)
	slices.SortStableFunc(settled, func(a, b store.SettledChange) int { return cmp.Compare(a.ID, b.ID) })
	settled = slices.CompactFunc(settled, func(a, b store.SettledChange) bool { return a.ID == b.ID })
	ids := make([]int64, len(settled))
	for i := range settled {
		ids[i] = settled[i].ID
	}
	if forget {
		// One that is gone already leaves its place to another.
		strangers, found, err := t.strangers(ctx, byID(store.Changes{Settled: settled}))
		if err != nil || len(strangers) > 0 || found != len(ids) {
			return cmp.Or(err, errNotAsUsual)
		}
		if n, err := t.exec(ctx, deleteEventsSQL, list(ids)); err != nil || n != int64(len(ids)) {
			return cmp.Or(err, errNotAsUsual)
		}
	}
	if n, err := t.exec(ctx, deleteQueuedSQL, list(ids)); err != nil || n != int64(len(ids)) {
		return cmp.Or(err, errNotAsUsual)
	}
	if forget {
		_, err := t.exec(ctx, deleteReceiptsSQL, list(ids))
		return err
	}
	args := make([]any, 0, 6*len(settled))
	for i := range settled {
		c := &settled[i]
		args = append(args, c.ID, fit(c.EventID, 128), string(c.Outcome), fit(c.Via, 32), fit(c.PublishedTo, 1024), storable(c.Note))
	}
	rows := strings.Repeat(noteSQL+", ", len(settled)-1) + noteSQL
	_, err := t.tx.ExecContext(ctx, strings.Replace(t.s.sql(notesSQL), "{rows}", rows, 1), args...)
	return err
}

// sparse is how many ids a range may span for each one that is wanted.
const sparse = 2

// strangers returns the ids that belong to other events by now, and how many
// have an event at all. The changes are by id, as what is read; an event that is
// gone is none of the others.
func (t ownTx) strangers(ctx context.Context, changes []store.Change) (strangers []int64, found int, err error) {
	if len(changes) == 0 {
		return nil, 0, nil
	}
	var text string
	var args []any
	if first, last := changes[0].ID, changes[len(changes)-1].ID; last-first < sparse*int64(len(changes)) {
		text, args = t.s.sql(eventRangeSQL), []any{first, last}
	} else {
		ids := make([]int64, len(changes))
		for i := range changes {
			ids[i] = changes[i].ID
		}
		text = withIDs(t.s.sql(eventIDsSQL), ids)
	}
	rows, err := t.tx.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, 0, err
	}
	var id number
	var eventID recurring
	targets, next := []any{&id, &eventID}, 0
	err = each(rows, func() error {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		for next < len(changes) && changes[next].ID < id.n {
			next++
		}
		if next < len(changes) && changes[next].ID == id.n {
			found++
			if changes[next].EventID != eventID.text {
				strangers = append(strangers, id.n)
			}
		}
		return nil
	})
	return strangers, found, err
}

// lockQueued leaves the changes whose queue rows are there, and now locked, and
// still of the same events.
func (t ownTx) lockQueued(ctx context.Context, changes store.Changes) (store.Changes, error) {
	all := byID(changes)
	ids := make([]int64, len(all))
	for i := range all {
		ids[i] = all[i].ID
	}
	ids = slices.Compact(ids)
	if changes.Forget {
		if _, err := collect(ctx, t, scanOne[int64], lockEventsSQL, list(ids)); err != nil {
			return changes, err
		}
	}
	queued, err := collect(ctx, t, scanOne[int64], lockQueuedSQL, list(ids))
	if err != nil {
		return changes, err
	}
	strangers, _, err := t.strangers(ctx, all)
	if err != nil {
		return changes, err
	}
	own := make(map[int64]bool, len(queued))
	for _, id := range queued {
		own[id] = !slices.Contains(strangers, id)
	}
	changes.Settled = slices.DeleteFunc(slices.Clone(changes.Settled), func(c store.SettledChange) bool { return !own[c.ID] })
	changes.Failed = slices.DeleteFunc(slices.Clone(changes.Failed), func(c store.FailedChange) bool { return !own[c.ID] })
	return changes, nil
}

// settleCareful replaces receipts. The rows are locked.
func (t ownTx) settleCareful(ctx context.Context, settled []store.SettledChange, forget bool) error {
	if len(settled) == 0 {
		return nil
	}
	changes := make(map[int64]store.SettledChange, len(settled))
	for _, c := range settled {
		changes[c.ID] = c
	}
	ids := slices.Sorted(maps.Keys(changes))
	if _, err := t.exec(ctx, deleteQueuedSQL, list(ids)); err != nil {
		return err
	}
	if forget {
		if _, err := t.exec(ctx, deleteReceiptsSQL, list(ids)); err != nil {
			return err
		}
		_, err := t.exec(ctx, deleteEventsSQL, list(ids))
		return err
	}
	receipts := make([][6]any, len(ids))
	for i, id := range ids {
		c := changes[id]
		receipts[i] = [6]any{id, fit(c.EventID, 128), string(c.Outcome), fit(c.Via, 32), fit(c.PublishedTo, 1024), storable(c.Note)}
	}
	_, err := t.exec(ctx, insertReceiptsSQL, list(receipts))
	return err
}

func (t ownTx) fail(ctx context.Context, failed []store.FailedChange) error {
	if len(failed) == 0 {
		return nil
	}
	failed = slices.Clone(failed)
	slices.SortStableFunc(failed, func(a, b store.FailedChange) int { return cmp.Compare(a.ID, b.ID) })
	changes := make([][5]any, len(failed))
	for i, c := range failed {
		dead := 0
		if c.Dead {
			dead = 1
		}
		changes[i] = [5]any{c.ID, dead, c.Retries, micros(c.RetryIn), storable(c.Error)}
	}
	_, err := t.exec(ctx, failSQL, list(changes))
	return err
}
