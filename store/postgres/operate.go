package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill/store"
)

const lockDeadSQL = `
SELECT e.event_id, p.id, p.status, p.skip, p.retry_count
FROM {event} e JOIN {pending} p ON p.id = e.id
WHERE e.event_id = ANY ($1::text[])
ORDER BY p.id
FOR UPDATE OF p`

const retryDeadSQL = `
UPDATE {pending} p SET status = 'PENDING', retry_count = 0, skip = false,
       next_retry_at = clock_timestamp(), updated_at = clock_timestamp()
WHERE p.id = ANY ($1::bigint[])`

const skipDeadSQL = `
UPDATE {pending} p SET skip = true, next_retry_at = clock_timestamp(), updated_at = clock_timestamp()
WHERE p.id = ANY ($1::bigint[])`

const knownIDsSQL = `SELECT event_id FROM {event} WHERE event_id = ANY ($1::text[])`

// RetryDead makes DEAD rows PENDING and due.
func (s *Store) RetryDead(ctx context.Context, action store.Action, ids []string) ([]store.Result, error) {
	return s.changeDead(ctx, "retry dead", "dead retry", s.sql(retryDeadSQL), action, ids, func(row *queueState) string {
		*row = queueState{id: row.id, status: store.StatusPending}
		return store.OutcomeRetried
	})
}

// SkipDead makes DEAD rows due with skip set.
func (s *Store) SkipDead(ctx context.Context, action store.Action, ids []string) ([]store.Result, error) {
	return s.changeDead(ctx, "skip dead", "dead skip", s.sql(skipDeadSQL), action, ids, func(row *queueState) string {
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
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		rows, err := s.lockDead(ctx, tx, ids)
		if err != nil {
			return err
		}
		known, err := s.known(ctx, tx, ids)
		if err != nil {
			return err
		}
		results = make([]store.Result, len(ids))
		var changed []int64
		var entries audited
		for i, id := range ids {
			results[i] = store.Result{EventID: id, Outcome: store.OutcomeGone}
			row := rows[id]
			switch {
			case row != nil && row.status == store.StatusDead:
				before := row.String()
				results[i].Outcome = change(row)
				changed = append(changed, row.id)
				entries.add(id, before, row.String())
			case known[id]:
				results[i].Outcome = store.OutcomeNotDead
			}
		}
		if len(changed) == 0 {
			return nil
		}
		slices.Sort(changed)
		batch := &pgx.Batch{}
		batch.Queue(update, changed)
		s.queueAudit(batch, action, verb, &entries)
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return nil, failure(op, "", err)
	}
	return results, nil
}

func (s *Store) lockDead(ctx context.Context, tx pgx.Tx, ids []string) (map[string]*queueState, error) {
	rows, err := tx.Query(ctx, s.sql(lockDeadSQL), ids)
	if err != nil {
		return nil, err
	}
	states := make(map[string]*queueState, len(ids))
	var eventID string
	var q queueState
	_, err = pgx.ForEachRow(rows, []any{&eventID, &q.id, &q.status, &q.skip, &q.retries}, func() error {
		states[eventID] = new(q)
		return nil
	})
	return states, err
}

func (s *Store) known(ctx context.Context, tx pgx.Tx, ids []string) (map[string]bool, error) {
	rows, err := tx.Query(ctx, s.sql(knownIDsSQL), ids)
	if err != nil {
		return nil, err
	}
	known := make(map[string]bool, len(ids))
	var eventID string
	_, err = pgx.ForEachRow(rows, []any{&eventID}, func() error {
		known[eventID] = true
		return nil
	})
	return known, err
}

const lockEventsSQL = `
SELECT event_id, id FROM {event} WHERE event_id = ANY ($1::text[]) ORDER BY id FOR UPDATE`

const requeueSQL = `
INSERT INTO {pending} (id, lane, key_hash, topic_hash, next_retry_at)
SELECT n.id, {lane}, {key_hash}, {topic_hash}, clock_timestamp() FROM {event} n WHERE n.id = ANY ($1::bigint[]) ORDER BY n.id
ON CONFLICT (id) DO NOTHING
RETURNING id`

// Requeue puts events into the queue again. The lock on the event shuts out a
// cleanup, which takes the same lock before it looks at the queue.
func (s *Store) Requeue(ctx context.Context, action store.Action, ids []string) ([]store.Result, error) {
	if action.Reason == "" {
		return nil, failure("requeue", "", store.ErrNoReason)
	}
	var results []store.Result
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		numbers := make(map[string]int64, len(ids))
		rows, err := tx.Query(ctx, s.sql(lockEventsSQL), ids)
		if err != nil {
			return err
		}
		var eventID string
		var number int64
		if _, err = pgx.ForEachRow(rows, []any{&eventID, &number}, func() error {
			numbers[eventID] = number
			return nil
		}); err != nil {
			return err
		}
		all := make([]int64, 0, len(numbers))
		for _, number := range numbers {
			all = append(all, number)
		}
		rows, err = tx.Query(ctx, s.sql(requeueSQL), all)
		if err != nil {
			return err
		}
		inserted, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return err
		}
		var entries audited
		results = make([]store.Result, len(ids))
		for i, id := range ids {
			number, exists := numbers[id]
			at := slices.Index(inserted, number)
			switch {
			case !exists:
				results[i] = store.Result{EventID: id, Outcome: store.OutcomeGone}
			case at < 0:
				results[i] = store.Result{EventID: id, Outcome: store.OutcomeAlreadyPending}
			default:
				results[i] = store.Result{EventID: id, Outcome: store.OutcomeQueued}
				inserted = slices.Delete(inserted, at, at+1)
				entries.add(id, "", (&queueState{status: store.StatusPending}).String())
			}
		}
		batch := &pgx.Batch{}
		s.queueAudit(batch, action, "requeue", &entries)
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return nil, failure("requeue", "", err)
	}
	return results, nil
}

// audited collects what an action changed.
type audited struct{ targets, before, after []string }

func (a *audited) add(target, before, after string) {
	a.targets = append(a.targets, target)
	a.before = append(a.before, before)
	a.after = append(a.after, after)
}

const insertAuditSQL = `
INSERT INTO {audit} (actor, verb, target, reason, before, after)
SELECT $1, $2, a.target, $3, a.before, a.after
FROM unnest($4::text[], $5::text[], $6::text[]) AS a (target, before, after)`

func (s *Store) queueAudit(batch *pgx.Batch, action store.Action, verb string, entries *audited) {
	if len(entries.targets) > 0 {
		batch.Queue(s.sql(insertAuditSQL), storable(action.Actor), action.Named(verb), storable(action.Reason), entries.targets, entries.before, entries.after)
	}
}

const auditSQL = `
SELECT at, actor, verb, target, reason, before, after FROM {audit} ORDER BY id DESC LIMIT $1`

// Audit returns the newest entries first.
func (s *Store) Audit(ctx context.Context, limit int) ([]store.AuditEntry, error) {
	rows, err := s.pool.Query(ctx, s.sql(auditSQL), atMost(limit))
	if err != nil {
		return nil, failure("audit", "", err)
	}
	entries, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e store.AuditEntry, err error) {
		err = row.Scan(&e.At, &e.Actor, &e.Verb, &e.Target, &e.Reason, &e.Before, &e.After)
		e.At = e.At.UTC()
		return e, err
	})
	return entries, failure("audit", "", err)
}
