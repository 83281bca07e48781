package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/waybillhq/waybill/store"
)

// numbersSQL finds ids by event ids, without a lock: an event keeps its id.
const numbersSQL = `
SELECT e.event_id, e.id FROM ` + listedEventIDs + ` STRAIGHT_JOIN {event} e FORCE INDEX (event_id) ON e.event_id = w.event_id COLLATE {collation}`

const lockStatesSQL = `
SELECT p.id, p.status, p.skip, p.retry_count
FROM ` + listedIDs + ` STRAIGHT_JOIN {pending} p FORCE INDEX (PRIMARY) ON p.id = w.id
{for update p}`

const retryDeadSQL = `
UPDATE ` + listedIDs + ` STRAIGHT_JOIN {pending} p FORCE INDEX (PRIMARY) ON p.id = w.id
SET p.status = 'PENDING', p.retry_count = 0, p.skip = 0, p.next_retry_at = UTC_TIMESTAMP(6), p.updated_at = UTC_TIMESTAMP(6)`

const skipDeadSQL = `
UPDATE ` + listedIDs + ` STRAIGHT_JOIN {pending} p FORCE INDEX (PRIMARY) ON p.id = w.id
SET p.skip = 1, p.next_retry_at = UTC_TIMESTAMP(6), p.updated_at = UTC_TIMESTAMP(6)`

// RetryDead makes DEAD rows PENDING and due.
func (s *Store) RetryDead(ctx context.Context, action store.Action, ids []string) ([]store.Result, error) {
	return s.changeDead(ctx, "retry dead", "dead retry", retryDeadSQL, action, ids, func(row *queueState) string {
		*row = queueState{id: row.id, status: store.StatusPending}
		return store.OutcomeRetried
	})
}

// SkipDead makes DEAD rows due with skip set.
func (s *Store) SkipDead(ctx context.Context, action store.Action, ids []string) ([]store.Result, error) {
	return s.changeDead(ctx, "skip dead", "dead skip", skipDeadSQL, action, ids, func(row *queueState) string {
		row.skip = true
		return store.OutcomeSkipped
	})
}

// queueState is what the audit tells of a queue row.
type queueState struct {
	id      int64
	status  store.Status
	skip    bool
	retries int
}

func (q *queueState) String() string {
	return fmt.Sprintf(`{"status":%q,"skip":%t,"retries":%d}`, q.status, q.skip, q.retries)
}

func (s *Store) changeDead(ctx context.Context, op, verb, update string, action store.Action, ids []string, change func(*queueState) string) ([]store.Result, error) {
	if action.Reason == "" {
		return nil, failure(op, "", store.ErrNoReason)
	}
	var results []store.Result
	err := s.inTx(ctx, func(tx ownTx) error {
		numbers, ordered, err := tx.numbers(ctx, ids)
		if err != nil {
			return err
		}
		states, err := tx.lockStates(ctx, ordered)
		if err != nil {
			return err
		}
		results = make([]store.Result, len(ids))
		var changed []int64
		var entries audited
		for i, id := range ids {
			results[i] = store.Result{EventID: id, Outcome: store.OutcomeGone}
			number, known := numbers[id]
			row := states[number]
			switch {
			case row != nil && row.status == store.StatusDead:
				before := row.String()
				results[i].Outcome = change(row)
				changed = append(changed, row.id)
				entries.add(id, before, row.String())
			case known:
				results[i].Outcome = store.OutcomeNotDead
			}
		}
		if len(changed) == 0 {
			return nil
		}
		slices.Sort(changed)
		if _, err := tx.exec(ctx, update, list(changed)); err != nil {
			return err
		}
		return tx.audit(ctx, action, verb, entries)
	})
	if err != nil {
		return nil, failure(op, "", err)
	}
	return results, nil
}

// numbers returns the ids of events, by event id and in order.
func (t ownTx) numbers(ctx context.Context, ids []string) (map[string]int64, []int64, error) {
	rows, err := t.query(ctx, numbersSQL, list(validTexts(distinct(ids))))
	if err != nil {
		return nil, nil, err
	}
	numbers := make(map[string]int64, len(ids))
	var ordered []int64
	err = each(rows, func() error {
		var eventID string
		var number int64
		err := rows.Scan(&eventID, &number)
		numbers[eventID] = number
		ordered = append(ordered, number)
		return err
	})
	slices.Sort(ordered)
	return numbers, ordered, err
}

func (t ownTx) lockStates(ctx context.Context, ids []int64) (map[int64]*queueState, error) {
	rows, err := t.query(ctx, lockStatesSQL, list(ids))
	if err != nil {
		return nil, err
	}
	states := make(map[int64]*queueState, len(ids))
	err = each(rows, func() error {
		var q queueState
		err := rows.Scan(&q.id, &q.status, &q.skip, &q.retries)
		states[q.id] = &q
		return err
	})
	return states, err
}

const requeueSQL = `
INSERT INTO {pending} (id, lane, key_hash, topic_hash, next_retry_at)
SELECT n.id, {lane}, {key_hash}, {topic_hash}, UTC_TIMESTAMP(6)
FROM ` + listedIDs + ` STRAIGHT_JOIN {event} n FORCE INDEX (PRIMARY) ON n.id = w.id`

// Requeue puts events into the queue again. The lock on the event shuts out a
// cleanup, which takes the same lock before it looks at the queue, and another
// requeue.
func (s *Store) Requeue(ctx context.Context, action store.Action, ids []string) ([]store.Result, error) {
	if action.Reason == "" {
		return nil, failure("requeue", "", store.ErrNoReason)
	}
	var results []store.Result
	err := s.inTx(ctx, func(tx ownTx) error {
		numbers, ordered, err := tx.numbers(ctx, ids)
		if err != nil {
			return err
		}
		there, err := collect(ctx, tx, scanOne[int64], lockEventsSQL, list(ordered))
		if err != nil {
			return err
		}
		states, err := tx.lockStates(ctx, there)
		if err != nil {
			return err
		}
		missing := slices.DeleteFunc(slices.Clone(there), func(id int64) bool { return states[id] != nil })
		if len(missing) > 0 {
			if _, err := tx.exec(ctx, requeueSQL, list(missing)); err != nil {
				return err
			}
		}
		fresh := make(map[int64]bool, len(missing))
		for _, id := range missing {
			fresh[id] = true
		}
		var entries audited
		results = make([]store.Result, len(ids))
		for i, id := range ids {
			number, known := numbers[id]
			_, exists := slices.BinarySearch(there, number)
			switch {
			case !known || !exists:
				results[i] = store.Result{EventID: id, Outcome: store.OutcomeGone}
			case !fresh[number]:
				results[i] = store.Result{EventID: id, Outcome: store.OutcomeAlreadyPending}
			default:
				results[i] = store.Result{EventID: id, Outcome: store.OutcomeQueued}
				delete(fresh, number)
				entries.add(id, "", (&queueState{status: store.StatusPending}).String())
			}
		}
		return tx.audit(ctx, action, "requeue", entries)
	})
	if err != nil {
		return nil, failure("requeue", "", err)
	}
	return results, nil
}

// audited collects what an action changed: target, before, after.
type audited [][3]string

func (a *audited) add(target, before, after string) {
	*a = append(*a, [3]string{short(target), before, after})
}

const insertAuditSQL = "\nINSERT INTO {audit} (actor, verb, target, reason, `before`, `after`)" + `
SELECT ?, ?, a.target, ?, a.earlier, a.later
FROM JSON_TABLE(?, '$[*]' COLUMNS (
    target VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[0]', earlier TEXT CHARACTER SET utf8mb4 PATH '$[1]',
    later TEXT CHARACTER SET utf8mb4 PATH '$[2]')) a`

func (t ownTx) audit(ctx context.Context, action store.Action, verb string, entries audited) error {
	if len(entries) == 0 {
		return nil
	}
	_, err := t.exec(ctx, insertAuditSQL, short(action.Actor), action.Named(verb), storable(action.Reason), list(entries))
	return err
}

const auditSQL = "\nSELECT at, actor, verb, target, reason, `before`, `after` FROM {audit} ORDER BY id DESC LIMIT ?"

// Audit returns the newest entries first.
func (s *Store) Audit(ctx context.Context, limit int) ([]store.AuditEntry, error) {
	entries, err := collect(ctx, s.pool(), func(rows *sql.Rows) (e store.AuditEntry, err error) {
		var at moment
		err = rows.Scan(&at, &e.Actor, &e.Verb, &e.Target, &e.Reason, &e.Before, &e.After)
		e.At = at.Time
		return e, err
	}, auditSQL, atMost(limit))
	return entries, failure("audit", "", err)
}
