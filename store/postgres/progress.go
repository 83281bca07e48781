package postgres

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill/store"
)

const readProgressSQL = `
SELECT w.n, p.version, p.event_id
FROM unnest($2::text[], $3::text[], $4::text[]) WITH ORDINALITY AS w (tenant_id, aggregate_type, aggregate_id, n)
JOIN {progress} p ON p.consumer_group = $1 AND p.tenant_id = w.tenant_id
 AND p.aggregate_type = w.aggregate_type AND p.aggregate_id = w.aggregate_id`

// ReadProgress returns the progress of each aggregate, without a lock.
func (t *inboxTx) ReadProgress(ctx context.Context, group string, aggregates []store.Aggregate) ([]store.Progress, error) {
	if len(aggregates) == 0 {
		return nil, failure("read progress", group, t.tx.usable())
	}
	rows, err := t.tx.Query(ctx, t.store.sql(readProgressSQL), append([]any{t.store.planned}, progressArgs(group, aggregates)...)...)
	if err != nil {
		return nil, failure("read progress", group, err)
	}
	found, err := scanProgress(rows, aggregates)
	return found, failure("read progress", group, t.tx.reason(err))
}

func progressArgs(group string, aggregates []store.Aggregate) []any {
	tenants, types, ids := make([]string, len(aggregates)), make([]string, len(aggregates)), make([]string, len(aggregates))
	for i, a := range aggregates {
		tenants[i], types[i], ids[i] = a.TenantID, a.Type, a.ID
	}
	return []any{group, tenants, types, ids}
}

func scanProgress(rows pgx.Rows, aggregates []store.Aggregate) ([]store.Progress, error) {
	found := make([]store.Progress, len(aggregates))
	for i, a := range aggregates {
		found[i].Aggregate = a
	}
	var n, version int64
	var eventID string
	_, err := pgx.ForEachRow(rows, []any{&n, &version, &eventID}, func() error {
		found[n-1].Version, found[n-1].EventID = version, decodeText(eventID)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

const makeProgressSQL = `
INSERT INTO {progress} (consumer_group, tenant_id, aggregate_type, aggregate_id, version, event_id) VALUES ($1, $2, $3, $4, 0, '')
ON CONFLICT (consumer_group, tenant_id, aggregate_type, aggregate_id) DO NOTHING`

const lockProgressSQL = `
SELECT version, event_id FROM {progress}
WHERE consumer_group = $1 AND tenant_id = $2 AND aggregate_type = $3 AND aggregate_id = $4
FOR UPDATE`

// LockProgress locks an aggregate's row, having made sure that it exists, in one
// trip.
func (t *inboxTx) LockProgress(ctx context.Context, group string, a store.Aggregate) (store.Progress, error) {
	found := store.Progress{Aggregate: a}
	if err := t.tx.usable(); err != nil {
		return found, failure("lock progress", a.ID, err)
	}
	batch := &pgx.Batch{}
	batch.Queue(t.store.sql(makeProgressSQL), group, a.TenantID, a.Type, a.ID)
	batch.Queue(t.store.sql(lockProgressSQL), group, a.TenantID, a.Type, a.ID).QueryRow(func(row pgx.Row) error {
		return row.Scan(&found.Version, &found.EventID)
	})
	err := t.tx.reason(t.tx.SendBatch(ctx, batch).Close())
	found.EventID = decodeText(found.EventID)
	return found, failure("lock progress", a.ID, err)
}

// Rows are met in the order in which they are given, so two transactions cannot
// wait for each other.
const beginProgressSQL = `
INSERT INTO {progress} AS p (consumer_group, tenant_id, aggregate_type, aggregate_id, version, event_id)
SELECT $1, w.tenant_id, w.aggregate_type, w.aggregate_id, w.version, w.event_id
FROM unnest($2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[]) AS w (tenant_id, aggregate_type, aggregate_id, version, event_id)
ON CONFLICT (consumer_group, tenant_id, aggregate_type, aggregate_id) DO UPDATE
SET version = EXCLUDED.version, event_id = EXCLUDED.event_id, updated_at = clock_timestamp()
WHERE p.version = 0`

const moveProgressSQL = `
WITH step AS (
    SELECT p.consumer_group, p.tenant_id, p.aggregate_type, p.aggregate_id, w.version, w.event_id
    FROM unnest($2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::bigint[]) WITH ORDINALITY
         AS w (tenant_id, aggregate_type, aggregate_id, version, event_id, was, n)
    JOIN {progress} p ON p.consumer_group = $1 AND p.tenant_id = w.tenant_id
     AND p.aggregate_type = w.aggregate_type AND p.aggregate_id = w.aggregate_id AND p.version = w.was
    ORDER BY w.n
    FOR UPDATE OF p
)
UPDATE {progress} p SET version = step.version, event_id = step.event_id, updated_at = clock_timestamp()
FROM step
WHERE p.consumer_group = step.consumer_group AND p.tenant_id = step.tenant_id
  AND p.aggregate_type = step.aggregate_type AND p.aggregate_id = step.aggregate_id`

const wakeSQL = `
UPDATE {held} h SET state = 'BLOCKED'
FROM unnest($2::text[], $3::text[], $4::text[], $5::bigint[]) AS w (tenant_id, aggregate_type, aggregate_id, version)
WHERE h.consumer_group = $1 AND h.state = 'WAITING' AND h.tenant_id = w.tenant_id
  AND h.aggregate_type = w.aggregate_type AND h.aggregate_id = w.aggregate_id AND h.aggregate_version <= w.version + 1`

// AdvanceProgress makes the steps and wakes what waited for them. The plans
// are made for the tables as they are: one made while they were small would
// read all of them when they are large.
func (t *inboxTx) AdvanceProgress(ctx context.Context, group string, advances []store.Advance) (woken int, err error) {
	if err := t.tx.usable(); err != nil || len(advances) == 0 {
		return 0, failure("advance progress", group, err)
	}
	var begin, move, all steps
	for _, step := range sortAdvances(advances) {
		all.add(step)
		if step.From == 0 {
			begin.add(step)
		} else {
			move.add(step)
		}
	}
	moved := 0
	for _, part := range []struct {
		template string
		args     []any
		count    *int
		skip     bool
	}{
		{beginProgressSQL, []any{begin.tenants, begin.types, begin.ids, begin.to, begin.events}, &moved, len(begin.ids) == 0},
		{moveProgressSQL, []any{move.tenants, move.types, move.ids, move.to, move.events, move.from}, &moved, len(move.ids) == 0},
		{wakeSQL, []any{all.tenants, all.types, all.ids, all.to}, &woken, false},
	} {
		if part.skip {
			continue
		}
		tag, err := t.tx.Exec(ctx, t.store.sql(part.template), append([]any{t.store.planned, group}, part.args...)...)
		if err != nil {
			return 0, failure("advance progress", group, err)
		}
		*part.count += int(tag.RowsAffected())
	}
	if moved != len(advances) {
		return 0, failure("advance progress", group, store.ErrMoved)
	}
	return woken, nil
}

// steps are advances turned on their side.
type steps struct {
	tenants, types, ids, events []string
	from, to                    []int64
}

func (s *steps) add(a store.Advance) {
	s.tenants, s.types, s.ids = append(s.tenants, a.Aggregate.TenantID), append(s.types, a.Aggregate.Type), append(s.ids, a.Aggregate.ID)
	s.events, s.from, s.to = append(s.events, encodeText(a.EventID)), append(s.from, a.From), append(s.to, a.To)
}

func sortAdvances(advances []store.Advance) []store.Advance {
	return slices.SortedFunc(slices.Values(advances), func(x, y store.Advance) int {
		a, b := x.Aggregate, y.Aggregate
		return cmp.Or(cmp.Compare(a.TenantID, b.TenantID), cmp.Compare(a.Type, b.Type), cmp.Compare(a.ID, b.ID))
	})
}

// FindProgress returns the progress of each aggregate.
func (s *Store) FindProgress(ctx context.Context, group string, aggregates []store.Aggregate) ([]store.Progress, error) {
	rows, err := s.pool.Query(ctx, s.sql(readProgressSQL), append([]any{s.planned}, progressArgs(group, aggregates)...)...)
	if err != nil {
		return nil, failure("find progress", group, err)
	}
	found, err := scanProgress(rows, aggregates)
	return found, failure("find progress", group, err)
}
