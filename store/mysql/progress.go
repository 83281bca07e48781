package mysql

import (
	"cmp"
	"context"
	"slices"

	"github.com/waybillhq/waybill/store"
)

const listedAggregates = `JSON_TABLE(?, '$[*]' COLUMNS (n FOR ORDINALITY, tenant_id VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[0]',
                                   aggregate_type VARCHAR(128) CHARACTER SET utf8mb4 PATH '$[1]',
                                   aggregate_id VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[2]',
                                   version BIGINT PATH '$[3]', event_id VARCHAR(384) CHARACTER SET utf8mb4 PATH '$[4]')) w`

const joinedProgress = `{progress} p FORCE INDEX (PRIMARY) ON p.consumer_group = ? AND p.tenant_id = w.tenant_id COLLATE {collation}
  AND p.aggregate_type = w.aggregate_type COLLATE {collation} AND p.aggregate_id = w.aggregate_id COLLATE {collation}`

const readProgressSQL = `
SELECT w.n, p.version, p.event_id
FROM ` + listedAggregates + `
STRAIGHT_JOIN ` + joinedProgress

// ReadProgress returns the progress of each aggregate, without a lock.
func (t *inboxTx) ReadProgress(ctx context.Context, group string, aggregates []store.Aggregate) ([]store.Progress, error) {
	if len(aggregates) == 0 {
		return nil, nil
	}
	found, err := t.readProgress(ctx, readProgressSQL, group, aggregates)
	return found, t.failed("read progress", group, err)
}

func (t ownTx) readProgress(ctx context.Context, template, group string, aggregates []store.Aggregate) ([]store.Progress, error) {
	found, keys := make([]store.Progress, len(aggregates)), make([][3]string, len(aggregates))
	for i, a := range aggregates {
		found[i].Aggregate = a
		keys[i] = [3]string{a.TenantID, a.Type, a.ID}
	}
	rows, err := t.query(ctx, template, list(keys), group)
	if err != nil {
		return nil, err
	}
	err = each(rows, func() error {
		var n int
		var row store.Progress
		if err := rows.Scan(&n, &row.Version, &row.EventID); err != nil {
			return err
		}
		found[n-1].Version, found[n-1].EventID = row.Version, decodeText(row.EventID)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// A row that is there is locked though nothing of it changes. The rows are met
// in the order in which they are given, so two transactions cannot wait for each
// other.
const makeProgressSQL = `
INSERT INTO {progress} (consumer_group, tenant_id, aggregate_type, aggregate_id, version, event_id)
SELECT ?, w.tenant_id, w.aggregate_type, w.aggregate_id, 0, ''
FROM ` + listedAggregates + `
ON DUPLICATE KEY UPDATE version = {progress}.version`

// A row that was inserted a moment ago is seen by its own transaction, and one
// that is locked cannot change: only a reading that locks is sure to be of the
// present.
const lockProgressSQL = `
SELECT w.n, p.version, p.event_id
FROM ` + listedAggregates + `
STRAIGHT_JOIN ` + joinedProgress + `
{for update p}`

// LockProgress makes an aggregate's row or locks it, and returns it.
func (t *inboxTx) LockProgress(ctx context.Context, group string, a store.Aggregate) (store.Progress, error) {
	found, err := t.lockProgress(ctx, group, []store.Aggregate{a})
	if err != nil {
		return store.Progress{Aggregate: a}, t.failed("lock progress", a.ID, err)
	}
	return found[0], nil
}

func (t *inboxTx) lockProgress(ctx context.Context, group string, aggregates []store.Aggregate) ([]store.Progress, error) {
	keys := make([][3]string, len(aggregates))
	for i, a := range aggregates {
		keys[i] = [3]string{a.TenantID, a.Type, a.ID}
	}
	if _, err := t.exec(ctx, makeProgressSQL, group, list(keys)); err != nil {
		return nil, err
	}
	return t.readProgress(ctx, lockProgressSQL, group, aggregates)
}

const writeProgressSQL = `
INSERT INTO {progress} (consumer_group, tenant_id, aggregate_type, aggregate_id, version, event_id)
SELECT ?, w.tenant_id, w.aggregate_type, w.aggregate_id, w.version, w.event_id
FROM ` + listedAggregates + `
ON DUPLICATE KEY UPDATE version = VALUES(version), event_id = VALUES(event_id), updated_at = UTC_TIMESTAMP(6)`

const anyWaitingSQL = `
SELECT 1 FROM {held} FORCE INDEX (state) WHERE consumer_group = ? AND state = 'WAITING' LIMIT 1`

const wakeSQL = `
UPDATE ` + listedAggregates + `
STRAIGHT_JOIN {held} h FORCE INDEX (aggregate) ON h.consumer_group = ? AND h.aggregate_id = w.aggregate_id COLLATE {collation}
  AND h.aggregate_version <= w.version + 1
SET h.state = 'BLOCKED'
WHERE h.state = 'WAITING' AND h.tenant_id = w.tenant_id COLLATE {collation} AND h.aggregate_type = w.aggregate_type COLLATE {collation}`

// AdvanceProgress locks the rows, compares, and writes. Nearly always nothing
// waits, and one question tells.
func (t *inboxTx) AdvanceProgress(ctx context.Context, group string, advances []store.Advance) (woken int, err error) {
	if len(advances) == 0 {
		return 0, nil
	}
	advances = slices.SortedFunc(slices.Values(advances), func(x, y store.Advance) int {
		a, b := x.Aggregate, y.Aggregate
		return cmp.Or(cmp.Compare(a.TenantID, b.TenantID), cmp.Compare(a.Type, b.Type), cmp.Compare(a.ID, b.ID))
	})
	aggregates, rows := make([]store.Aggregate, len(advances)), make([][5]any, len(advances))
	for i, step := range advances {
		aggregates[i] = step.Aggregate
		rows[i] = [5]any{step.Aggregate.TenantID, step.Aggregate.Type, step.Aggregate.ID, step.To, encodeText(step.EventID)}
	}
	found, err := t.lockProgress(ctx, group, aggregates)
	if err != nil {
		return 0, t.failed("advance progress", group, err)
	}
	for i, step := range advances {
		if found[i].Version != step.From {
			return 0, failure("advance progress", group, store.ErrMoved)
		}
	}
	if _, err := t.exec(ctx, writeProgressSQL, group, list(rows)); err != nil {
		return 0, t.failed("advance progress", group, err)
	}
	var one int
	waits, err := t.one(ctx, anyWaitingSQL, []any{group}, &one)
	if err != nil || !waits {
		return 0, t.failed("advance progress", group, err)
	}
	changed, err := t.exec(ctx, wakeSQL, list(rows), group)
	return int(changed), t.failed("advance progress", group, err)
}

// FindProgress returns the progress of each aggregate.
func (s *Store) FindProgress(ctx context.Context, group string, aggregates []store.Aggregate) ([]store.Progress, error) {
	found, err := s.pool().readProgress(ctx, readProgressSQL, group, aggregates)
	return found, failure("find progress", group, err)
}
