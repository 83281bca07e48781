package postgres

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/waybillhq/waybill/store"
)

// Losing the last moments of settling in a crash only repeats a send, so its
// commit does not wait for the disk. The plans of these statements are kept,
// possibly from a time when the queue was empty and reading all of it was best.
// What a merge before them has set is set back.
const settleSettingsSQL = `
SELECT set_config('synchronous_commit', 'off', true), set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true),
       set_config('enable_nestloop', 'on', true), set_config('enable_hashjoin', 'on', true)`

// KEY SHARE shuts out the FOR UPDATE of a claim, but not the renewal of the
// lease by its owner, which would otherwise wait for each settling. What was
// found is compared after the locks are taken, because a claim that was waited
// for has changed it and time has passed.
const lockLeasesSQL = `
WITH l AS MATERIALIZED (
    SELECT lane, owner, fence, expires_at FROM {lease} WHERE lane = ANY ($1::smallint[]) ORDER BY lane FOR KEY SHARE
)
SELECT w.lane
FROM unnest($1::smallint[], $2::bigint[]) AS w (lane, fence)
LEFT JOIN l USING (lane)
WHERE (l.owner = $3 AND l.fence = w.fence AND l.expires_at > clock_timestamp()) IS NOT TRUE
ORDER BY w.lane`

// What was emptied and filled again meanwhile has other events under the same
// ids. They are looked for after the queue rows were changed, or locked: such an
// event may be committed between any two statements, but a queue row that the
// first of them has found brings its event into the sight of the next. The range
// is where the ids are; see loadRangeSQL.
const strangersSQL = `
SELECT c.id
FROM unnest($1::bigint[], $2::text[]) AS c (id, event_id)
JOIN {event} e ON e.id = c.id
WHERE e.id BETWEEN $3 AND $4 AND e.event_id <> c.event_id`

// Nearly always all that is to be settled is in the queue and still itself, and
// none of it has a receipt. Then the rows need not be matched: whether it was so is
// seen from the numbers of rows, a stranger having no receipt made, and from no
// receipt being there, and else the whole is done again with care.
const dequeueSQL = `DELETE FROM {pending} p WHERE p.id = ANY ($1::bigint[])`

const insertReceiptsSQL = `
INSERT INTO {receipt} (id, event_id, outcome, via, published_at, published_to, note)
SELECT c.id, c.event_id, $4, $5, (SELECT clock_timestamp()), c.published_to, $6
FROM unnest($1::bigint[], $2::text[], $3::text[]) AS c (id, event_id, published_to)
JOIN {event} e ON e.id = c.id
WHERE e.id BETWEEN $7 AND $8 AND e.event_id = c.event_id`

const settleSQL = `
WITH gone AS (
    DELETE FROM {pending} p WHERE p.id = ANY ($1::bigint[]) RETURNING p.id
)
INSERT INTO {receipt} (id, event_id, outcome, via, published_at, published_to, note)
SELECT id, c.event_id, c.outcome, c.via, clock_timestamp(), c.published_to, c.note
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[])
     AS c (id, event_id, outcome, via, published_to, note)
JOIN gone USING (id)
ON CONFLICT (id) DO UPDATE SET
    event_id = EXCLUDED.event_id, outcome = EXCLUDED.outcome, via = EXCLUDED.via,
    published_at = EXCLUDED.published_at, published_to = EXCLUDED.published_to, note = EXCLUDED.note`

// An event is locked before its queue row, as a requeue does: here by being
// deleted, if it is still itself. Where not all are in the queue, they are locked
// first. Another event that has come into the place of one that was gone is not
// deleted, and tells itself by the number of rows, as does one that comes before
// the queue row is deleted.
const forgetEventsSQL = `
DELETE FROM {event} e USING unnest($1::bigint[], $2::text[]) AS c (id, event_id)
WHERE e.id = c.id AND e.event_id = c.event_id AND e.id BETWEEN $3 AND $4`

// Where events are always forgotten there are no receipts, and one look at their
// index is much cheaper than a search for each.
const anyReceiptSQL = `SELECT EXISTS (SELECT FROM {receipt} r WHERE r.id BETWEEN $1 AND $2)`

// What is not in the queue now must be left alone if it comes before the end.
const lockQueuedSQL = `SELECT p.id FROM {pending} p WHERE p.id = ANY ($1::bigint[]) ORDER BY p.id FOR UPDATE`

const lockForgottenSQL = `SELECT id FROM {event} WHERE id = ANY ($1::bigint[]) ORDER BY id FOR UPDATE`

const forgetSQL = `
WITH gone AS (
    DELETE FROM {pending} p WHERE p.id = ANY ($1::bigint[]) RETURNING p.id
), receipts AS (
    DELETE FROM {receipt} WHERE id = ANY (ARRAY(SELECT id FROM gone))
)
DELETE FROM {event} WHERE id = ANY (ARRAY(SELECT id FROM gone))`

const failSQL = `
UPDATE {pending} p SET
    status = CASE WHEN c.dead THEN 'DEAD' ELSE 'PENDING' END,
    parked = true,
    retry_count = c.retries,
    next_retry_at = CASE WHEN NOT c.dead THEN clock_timestamp() + c.retry_in * interval '1 microsecond' END,
    first_error = COALESCE(NULLIF(p.first_error, ''), c.error),
    last_error = c.error,
    updated_at = clock_timestamp()
FROM unnest($1::bigint[], $2::boolean[], $3::integer[], $4::bigint[], $5::text[]) AS c (id, dead, retries, retry_in, error)
WHERE p.id = c.id`

const parkSQL = `
UPDATE {pending} p SET parked = true, updated_at = clock_timestamp()
WHERE p.id = ANY ($1::bigint[]) AND NOT p.parked`

// Apply makes the changes if the leases hold. It takes two trips: leases, then
// changes and commit.
func (s *Store) Apply(ctx context.Context, guard store.Guard, changes store.Changes) error {
	err := s.apply(ctx, guard, changes, false)
	if errors.Is(err, errNotAsUsual) || codeOf(err) == codeUniqueViolation {
		err = s.apply(ctx, guard, changes, true)
	}
	return failure("apply", "", err)
}

// errNotAsUsual says that some of what is to be settled is not in the queue, or
// has become another event.
var errNotAsUsual = errors.New("not all of it is in the queue")

func (s *Store) apply(ctx context.Context, guard store.Guard, changes store.Changes, careful bool) error {
	return s.inTx(ctx, func(tx pgx.Tx) error {
		own, err := s.lockLeases(ctx, tx, guard, changes, careful)
		if err != nil {
			return err
		}
		batch := &pgx.Batch{}
		if careful {
			changes := only(changes, own)
			s.queueCareful(batch, changes.Settled, changes.Forget)
			s.queueFailed(batch, changes.Failed)
			s.queueParked(batch, changes.Parked)
		} else {
			s.queueUsual(batch, changes)
		}
		if batch.Len() == 0 {
			return nil
		}
		return tx.SendBatch(ctx, batch).Close()
	})
}

// lockLeases with care also locks the rows of the queue, and returns the ids of
// those that still belong to the events of the changes.
func (s *Store) lockLeases(ctx context.Context, tx pgx.Tx, guard store.Guard, changes store.Changes, careful bool) (own map[int64]bool, err error) {
	lanes := make([]int16, len(guard.Lanes))
	fences := make([]int64, len(guard.Lanes))
	for i, lease := range guard.Lanes {
		lanes[i], fences[i] = int16(lease.Lane), lease.Fence
	}
	var lost []int
	batch := &pgx.Batch{}
	batch.Queue(s.sql(lockLeasesSQL), lanes, fences, guard.Owner).Query(func(rows pgx.Rows) (err error) {
		lost, err = pgx.CollectRows(rows, pgx.RowTo[int])
		return err
	})
	batch.Queue(s.sql(settleSettingsSQL))
	if careful {
		own = make(map[int64]bool)
		s.queueLocks(batch, changes, own)
		batch.Queue(s.sql(settleSettingsSQL))
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return nil, err
	}
	if len(lost) > 0 {
		return nil, &store.StaleError{Lanes: lost}
	}
	return own, nil
}

func (s *Store) queueLocks(batch *pgx.Batch, changes store.Changes, own map[int64]bool) {
	if changes.Forget {
		ids, _ := changed(store.Changes{Settled: changes.Settled})
		batch.Queue(s.sql(lockForgottenSQL), ids)
	}
	ids, _ := changed(changes)
	batch.Queue(s.sql(lockQueuedSQL), ids).Query(func(rows pgx.Rows) error {
		var id int64
		_, err := pgx.ForEachRow(rows, []any{&id}, func() error { own[id] = true; return nil })
		return err
	})
	s.queueStrangers(batch, changes, func(strangers []int64) error {
		for _, id := range strangers {
			delete(own, id)
		}
		return nil
	})
}

func (s *Store) queueStrangers(batch *pgx.Batch, changes store.Changes, then func(strangers []int64) error) {
	ids, eventIDs := changed(changes)
	if len(ids) == 0 {
		return
	}
	first, last := slices.Min(ids), slices.Max(ids)
	batch.Queue(s.sql(rangeSettings(first, last, len(ids))))
	batch.Queue(s.sql(strangersSQL), ids, eventIDs, first, last).Query(func(rows pgx.Rows) error {
		strangers, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return err
		}
		return then(strangers)
	})
}

// changed returns which events are settled, or failed.
func changed(changes store.Changes) (ids []int64, eventIDs []string) {
	n := len(changes.Settled) + len(changes.Failed)
	ids, eventIDs = make([]int64, 0, n), make([]string, 0, n)
	for i := range changes.Settled {
		ids, eventIDs = append(ids, changes.Settled[i].ID), append(eventIDs, storable(changes.Settled[i].EventID))
	}
	for i := range changes.Failed {
		ids, eventIDs = append(ids, changes.Failed[i].ID), append(eventIDs, storable(changes.Failed[i].EventID))
	}
	return ids, eventIDs
}

func only(changes store.Changes, own map[int64]bool) store.Changes {
	changes.Settled = slices.DeleteFunc(slices.Clone(changes.Settled), func(c store.SettledChange) bool { return !own[c.ID] })
	changes.Failed = slices.DeleteFunc(slices.Clone(changes.Failed), func(c store.FailedChange) bool { return !own[c.ID] })
	return changes
}

// inOrder returns each settled row once, by id, so that two settlings cannot
// lock them crosswise.
func inOrder(settled []store.SettledChange) []store.SettledChange {
	ascending := true
	for i := 1; i < len(settled) && ascending; i++ {
		ascending = settled[i-1].ID < settled[i].ID
	}
	if ascending {
		return settled
	}
	settled = slices.Clone(settled)
	slices.SortStableFunc(settled, func(a, b store.SettledChange) int { return cmp.Compare(a.ID, b.ID) })
	return slices.CompactFunc(settled, func(a, b store.SettledChange) bool { return a.ID == b.ID })
}

// queueUsual is for the usual case, and makes the batch fail in any other. What
// looks at the events comes last; see strangersSQL.
func (s *Store) queueUsual(batch *pgx.Batch, changes store.Changes) {
	settled := inOrder(changes.Settled)
	if changes.Forget {
		s.queueForgotten(batch, settled)
	} else {
		s.queueDequeued(batch, idsOf(settled))
	}
	s.queueFailed(batch, changes.Failed)
	s.queueParked(batch, changes.Parked)
	if !changes.Forget {
		s.queueReceipts(batch, settled)
	}
	s.queueStrangers(batch, store.Changes{Failed: changes.Failed}, func(strangers []int64) error {
		if len(strangers) > 0 {
			return errNotAsUsual
		}
		return nil
	})
}

func idsOf(settled []store.SettledChange) []int64 {
	ids := make([]int64, len(settled))
	for i := range settled {
		ids[i] = settled[i].ID
	}
	return ids
}

func (s *Store) queueDequeued(batch *pgx.Batch, ids []int64) {
	if len(ids) > 0 {
		batch.Queue(s.sql(dequeueSQL), ids).Exec(allOf(len(ids)))
	}
}

// allOf fails where a statement did not find as many rows as it should.
func allOf(rows int) func(pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != int64(rows) {
			return errNotAsUsual
		}
		return nil
	}
}

func (s *Store) queueForgotten(batch *pgx.Batch, settled []store.SettledChange) {
	if len(settled) == 0 {
		return
	}
	ids, eventIDs := changed(store.Changes{Settled: settled})
	first, last := ids[0], ids[len(ids)-1]
	batch.Queue(s.sql(rangeSettings(first, last, len(ids))))
	batch.Queue(s.sql(forgetEventsSQL), ids, eventIDs, first, last).Exec(allOf(len(ids)))
	batch.Queue(s.sql(settleSettingsSQL))
	s.queueDequeued(batch, ids)
	batch.Queue(s.sql(anyReceiptSQL), first, last).QueryRow(func(row pgx.Row) error {
		var found bool
		if err := row.Scan(&found); err != nil || found {
			return cmp.Or(err, errNotAsUsual)
		}
		return nil
	})
}

func (s *Store) queueReceipts(batch *pgx.Batch, settled []store.SettledChange) {
	if len(settled) == 0 {
		return
	}
	type kind struct{ outcome, via, note string }
	kinds := make(map[kind][]int)
	for i := range settled {
		k := kind{string(settled[i].Outcome), settled[i].Via, settled[i].Note}
		kinds[k] = append(kinds[k], i)
	}
	first, last := settled[0].ID, settled[len(settled)-1].ID
	batch.Queue(s.sql(rangeSettings(first, last, len(settled))))
	for k, rows := range kinds {
		ids, eventIDs, places := make([]int64, len(rows)), make([]string, len(rows)), make([]string, len(rows))
		for j, i := range rows {
			ids[j], eventIDs[j], places[j] = settled[i].ID, storable(settled[i].EventID), storable(settled[i].PublishedTo)
		}
		batch.Queue(s.sql(insertReceiptsSQL), ids, eventIDs, places, k.outcome, storable(k.via), storable(k.note), first, last).Exec(allOf(len(rows)))
	}
}

// rangeSettings returns the settings for a search of ids within a range.
func rangeSettings(first, last int64, ids int) string {
	if last-first < sparse*int64(ids) {
		return mergeSettingsSQL
	}
	return readSettingsSQL
}

// queueCareful passes over what is not in the queue, and replaces receipts. The
// rows are locked.
func (s *Store) queueCareful(batch *pgx.Batch, settled []store.SettledChange, forget bool) {
	if len(settled) == 0 {
		return
	}
	settled = inOrder(settled)
	ids := idsOf(settled)
	texts := [5][]string{}
	for _, c := range settled {
		for j, text := range [5]string{c.EventID, string(c.Outcome), c.Via, c.PublishedTo, c.Note} {
			texts[j] = append(texts[j], storable(text))
		}
	}
	if forget {
		batch.Queue(s.sql(forgetSQL), ids)
		return
	}
	batch.Queue(s.sql(settleSQL), ids, texts[0], texts[1], texts[2], texts[3], texts[4])
}

func (s *Store) queueParked(batch *pgx.Batch, ids []int64) {
	if len(ids) > 0 {
		batch.Queue(s.sql(parkSQL), slices.Sorted(slices.Values(ids)))
	}
}

func (s *Store) queueFailed(batch *pgx.Batch, failed []store.FailedChange) {
	if len(failed) == 0 {
		return
	}
	failed = slices.Clone(failed)
	slices.SortStableFunc(failed, func(a, b store.FailedChange) int { return cmp.Compare(a.ID, b.ID) })
	n := len(failed)
	ids, dead, retries := make([]int64, n), make([]bool, n), make([]int32, n)
	waits, texts := make([]int64, n), make([]string, n)
	for i, c := range failed {
		ids[i], dead[i], retries[i], waits[i], texts[i] = c.ID, c.Dead, int32(c.Retries), micros(c.RetryIn), storable(c.Error)
	}
	batch.Queue(s.sql(failSQL), ids, dead, retries, waits, texts)
}
