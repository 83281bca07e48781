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
FROM json_each(?4) AS w
CROSS JOIN {progress} AS p ON p.consumer_group = ?1 AND p.tenant_id = ?2 AND p.aggregate_type = ?3 AND p.aggregate_id = w.value`

	// To take two texts out of each element costs as much again as to find its row.
	listTenantsProgressSQL = `
SELECT w.key, p.version, p.event_id
FROM json_each(?3) AS w
CROSS JOIN {progress} AS p ON p.consumer_group = ?1 AND p.tenant_id = w.value ->> 0 AND p.aggregate_type = ?2 AND p.aggregate_id = w.value ->> 1`
)

// ReadProgress returns the progress of each aggregate, with a statement for each
// type.
func (t *inboxTx) ReadProgress(ctx context.Context, group string, aggregates []store.Aggregate) ([]store.Progress, error) {
	found := make([]store.Progress, len(aggregates))
	for i, a := range aggregates {
		found[i].Aggregate = a
	}
	if len(aggregates) == 1 {
		a := aggregates[0]
		err := t.scan(ctx, readProgressSQL, []any{group, a.TenantID, a.Type, a.ID}, &found[0].Version, &found[0].EventID)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return nil, t.failed("read progress", a.ID, err)
		}
	} else {
		for name, places := range byType(found, func(p store.Progress) store.Aggregate { return p.Aggregate }) {
			if err := t.listProgress(ctx, group, name, found, places); err != nil {
				return nil, t.failed("read progress", group, err)
			}
		}
	}
	for i := range found {
		t.reached[progressRef{group, found[i].Aggregate}] = found[i].Version
	}
	return found, nil
}

// listProgress completes those of the rows whose aggregates are of one type.
func (t *inboxTx) listProgress(ctx context.Context, group, aggregateType string, found []store.Progress, places []int) error {
	ids, keys := make([]string, len(places)), make([][2]string, len(places))
	tenant, isOne := found[places[0]].Aggregate.TenantID, true
	for i, place := range places {
		a := found[place].Aggregate
		ids[i], keys[i] = a.ID, [2]string{a.TenantID, a.ID}
		isOne = isOne && a.TenantID == tenant
	}
	text, args := listProgressSQL, []any{group, tenant, aggregateType}
	list, err := json.Marshal(ids)
	if !isOne {
		text, args = listTenantsProgressSQL, []any{group, aggregateType}
		list, err = json.Marshal(keys)
	}
	if err != nil {
		return err
	}
	rows, err := t.query(ctx, text, append(args, string(list))...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var i int
		var row store.Progress
		if err := rows.Scan(&i, &row.Version, &row.EventID); err != nil {
			return err
		}
		found[places[i]].Version, found[places[i]].EventID = row.Version, row.EventID
	}
	return rows.Err()
}

// progressRef names a row of progress.
type progressRef struct {
	group     string
	aggregate store.Aggregate
}

// byType sorts rows by the type of their aggregates, of which there are few. It
// returns their places. What is the same in all rows of a statement is bound once:
// to take it out of JSON for each costs about as much as to write it.
func byType[T any](rows []T, aggregate func(T) store.Aggregate) map[string][]int {
	found := make(map[string][]int, 1)
	for i := range rows {
		name := aggregate(rows[i]).Type
		found[name] = append(found[name], i)
	}
	return found
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
  FROM json_each(?3) AS w
  LEFT JOIN {progress} AS p ON p.consumer_group = ?1 AND p.tenant_id = w.value ->> 0 AND p.aggregate_type = ?2 AND p.aggregate_id = w.value ->> 1
  WHERE COALESCE(p.version, 0) <> w.value ->> 4)`

	writeProgressSQL = `
INSERT INTO {progress} (consumer_group, tenant_id, aggregate_type, aggregate_id, version, event_id)
SELECT ?1, w.value ->> 0, ?2, w.value ->> 1, w.value ->> 2, w.value ->> 3
FROM json_each(?3) AS w
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

// AdvanceProgress compares and writes. What this transaction has read, nobody can
// have changed since. Nearly always nothing waits, and one question tells.
func (t *inboxTx) AdvanceProgress(ctx context.Context, group string, advances []store.Advance) (woken int, err error) {
	if len(advances) == 0 {
		return 0, nil
	}
	for name, places := range byType(advances, func(step store.Advance) store.Aggregate { return step.Aggregate }) {
		steps := make([]store.Advance, len(places))
		for i, place := range places {
			steps[i] = advances[place]
		}
		if err := t.advance(ctx, group, name, steps); err != nil {
			return 0, t.failed("advance progress", group, err)
		}
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

// advance makes the steps of one type of aggregates, at once, or one by one where
// an id has no form in JSON.
func (t *inboxTx) advance(ctx context.Context, group, aggregateType string, steps []store.Advance) error {
	rows := make([][5]any, len(steps))
	isText, isKnown := true, true
	for i, step := range steps {
		rows[i] = [5]any{step.Aggregate.TenantID, step.Aggregate.ID, step.To, step.EventID, step.From}
		isText = isText && isJSONText(step.EventID)
		reached, known := t.reached[progressRef{group, step.Aggregate}]
		if known && reached != step.From {
			return store.ErrMoved
		}
		isKnown = isKnown && known
	}
	list, err := json.Marshal(rows)
	if err != nil {
		return err
	}
	if !isKnown {
		var isStray bool
		if err := t.scan(ctx, strayProgressSQL, []any{group, aggregateType, string(list)}, &isStray); err != nil {
			return err
		}
		if isStray {
			return store.ErrMoved
		}
	}
	if isText {
		_, err = t.exec(ctx, writeProgressSQL, group, aggregateType, string(list))
	} else {
		for _, step := range steps {
			if _, err = t.exec(ctx, setProgressSQL, group, step.Aggregate.TenantID, aggregateType, step.Aggregate.ID, step.To, step.EventID); err != nil {
				break
			}
		}
	}
	if err != nil {
		return err
	}
	for _, step := range steps {
		t.reached[progressRef{group, step.Aggregate}] = step.To
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
