package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/waybillhq/waybill/store"
)

const (
	readProgressSQL = `
SELECT version, event_id FROM {progress}
WHERE consumer_group = ?1 AND tenant_id = ?2 AND aggregate_type = ?3 AND aggregate_id = ?4`

	listProgressSQL = `
SELECT w.key, p.version, p.event_id
FROM json_each(?2) AS w
CROSS JOIN {progress} AS p ON p.consumer_group = ?1 AND p.tenant_id = w.value ->> 0 AND p.aggregate_type = w.value ->> 1 AND p.aggregate_id = w.value ->> 2`
)

// ReadProgress returns the progress of each aggregate.
func (t *inboxTx) ReadProgress(ctx context.Context, group string, aggregates []store.Aggregate) ([]store.Progress, error) {
	found := make([]store.Progress, len(aggregates))
	keys := make([][3]string, len(aggregates))
	for i, a := range aggregates {
		found[i].Aggregate = a
		keys[i] = [3]string{a.TenantID, a.Type, a.ID}
	}
	if len(aggregates) == 1 {
		a := aggregates[0]
		err := t.scan(ctx, readProgressSQL, []any{group, a.TenantID, a.Type, a.ID}, &found[0].Version, &found[0].EventID)
		if errors.Is(err, sql.ErrNoRows) {
			err = nil
		}
		return found, t.failed("read progress", a.ID, err)
	}
	list, err := json.Marshal(keys)
	if err != nil {
		return nil, t.failed("read progress", group, err)
	}
	rows, err := t.query(ctx, listProgressSQL, group, string(list))
	if err != nil {
		return nil, t.failed("read progress", group, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var i int
		var row store.Progress
		if err := rows.Scan(&i, &row.Version, &row.EventID); err != nil {
			return nil, t.failed("read progress", group, err)
		}
		found[i].Version, found[i].EventID = row.Version, row.EventID
	}
	return found, t.failed("read progress", group, rows.Err())
}

// LockProgress only reads: BEGIN IMMEDIATE has locked every row, also those that
// do not exist.
func (t *inboxTx) LockProgress(ctx context.Context, group string, a store.Aggregate) (store.Progress, error) {
	found, err := t.ReadProgress(ctx, group, []store.Aggregate{a})
	if err != nil {
		return store.Progress{Aggregate: a}, err
	}
	return found[0], nil
}

const (
	strayProgressSQL = `
SELECT EXISTS (
  SELECT 1
  FROM json_each(?2) AS w
  LEFT JOIN {progress} AS p ON p.consumer_group = ?1 AND p.tenant_id = w.value ->> 0 AND p.aggregate_type = w.value ->> 1 AND p.aggregate_id = w.value ->> 2
  WHERE COALESCE(p.version, 0) <> w.value ->> 3)`

	writeProgressSQL = `
INSERT INTO {progress} (consumer_group, tenant_id, aggregate_type, aggregate_id, version, event_id)
SELECT ?1, w.value ->> 0, w.value ->> 1, w.value ->> 2, w.value ->> 4, w.value ->> 5
FROM json_each(?2) AS w
WHERE true
ON CONFLICT (consumer_group, tenant_id, aggregate_type, aggregate_id) DO UPDATE
SET version = excluded.version, event_id = excluded.event_id, updated_at = {now}`

	setProgressSQL = `
INSERT INTO {progress} (consumer_group, tenant_id, aggregate_type, aggregate_id, version, event_id)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (consumer_group, tenant_id, aggregate_type, aggregate_id) DO UPDATE
SET version = excluded.version, event_id = excluded.event_id, updated_at = {now}`

	anyWaitingSQL = `
SELECT EXISTS (SELECT 1 FROM {held} INDEXED BY {held_state} WHERE consumer_group = ?1 AND state = 'WAITING')`

	wakeSQL = `
UPDATE {held} INDEXED BY {held_waiting} SET state = 'BLOCKED'
WHERE consumer_group = ?1 AND state = 'WAITING' AND tenant_id = ?2 AND aggregate_type = ?3 AND aggregate_id = ?4
  AND aggregate_version <= ?5 + 1`
)

// AdvanceProgress compares, which nobody can change meanwhile, and writes. Nearly
// always nothing waits, and one question tells.
func (t *inboxTx) AdvanceProgress(ctx context.Context, group string, advances []store.Advance) (woken int, err error) {
	if len(advances) == 0 {
		return 0, nil
	}
	rows := make([][6]any, len(advances))
	isText := true
	for i, step := range advances {
		a := step.Aggregate
		rows[i] = [6]any{a.TenantID, a.Type, a.ID, step.From, step.To, step.EventID}
		isText = isText && isJSONText(step.EventID)
	}
	if err := t.advance(ctx, group, rows, isText); err != nil {
		return 0, t.failed("advance progress", group, err)
	}
	var waits bool
	if err := t.scan(ctx, anyWaitingSQL, []any{group}, &waits); err != nil || !waits {
		return 0, t.failed("advance progress", group, err)
	}
	for _, step := range advances {
		a := step.Aggregate
		changed, err := t.exec(ctx, wakeSQL, group, a.TenantID, a.Type, a.ID, step.To)
		if err != nil {
			return 0, t.failed("wake", a.ID, err)
		}
		woken += int(changed)
	}
	return woken, nil
}

// advance writes the rows at once, or one by one where an id has no form in JSON.
func (t *inboxTx) advance(ctx context.Context, group string, rows [][6]any, isText bool) error {
	list, err := json.Marshal(rows)
	if err != nil {
		return err
	}
	var isStray bool
	if err := t.scan(ctx, strayProgressSQL, []any{group, string(list)}, &isStray); err != nil {
		return err
	}
	if isStray {
		return store.ErrMoved
	}
	if isText {
		_, err := t.exec(ctx, writeProgressSQL, group, string(list))
		return err
	}
	for _, row := range rows {
		if _, err := t.exec(ctx, setProgressSQL, group, row[0], row[1], row[2], row[4], row[5]); err != nil {
			return err
		}
	}
	return nil
}

// FindProgress returns the progress of each aggregate.
func (s *Store) FindProgress(ctx context.Context, group string, aggregates []store.Aggregate) ([]store.Progress, error) {
	found := make([]store.Progress, len(aggregates))
	for i, a := range aggregates {
		found[i].Aggregate = a
		err := s.scan(ctx, readProgressSQL, []any{group, a.TenantID, a.Type, a.ID}, &found[i].Version, &found[i].EventID)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return nil, s.failed("find progress", a.ID, err)
		}
	}
	return found, nil
}

// OneWriter implements [store.OneWriter].
func (s *Store) OneWriter() {}
