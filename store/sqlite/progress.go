package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/waybillhq/waybill/store"
)

const readProgressSQL = `
SELECT version, event_id FROM {progress}
WHERE consumer_group = ?1 AND tenant_id = ?2 AND aggregate_type = ?3 AND aggregate_id = ?4`

// ReadProgress returns the progress of each aggregate.
func (t *inboxTx) ReadProgress(ctx context.Context, group string, aggregates []store.Aggregate) ([]store.Progress, error) {
	found := make([]store.Progress, len(aggregates))
	for i, a := range aggregates {
		found[i].Aggregate = a
		err := t.scan(ctx, readProgressSQL, []any{group, a.TenantID, a.Type, a.ID}, &found[i].Version, &found[i].EventID)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return nil, t.failed("read progress", a.ID, err)
		}
	}
	return found, nil
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
	beginProgressSQL = `
INSERT INTO {progress} AS p (consumer_group, tenant_id, aggregate_type, aggregate_id, version, event_id)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (consumer_group, tenant_id, aggregate_type, aggregate_id) DO UPDATE
SET version = excluded.version, event_id = excluded.event_id, updated_at = {now}
WHERE p.version = 0`

	moveProgressSQL = `
UPDATE {progress} SET version = ?5, event_id = ?6, updated_at = {now}
WHERE consumer_group = ?1 AND tenant_id = ?2 AND aggregate_type = ?3 AND aggregate_id = ?4 AND version = ?7`

	anyWaitingSQL = `
SELECT EXISTS (SELECT 1 FROM {held} INDEXED BY {held_state} WHERE consumer_group = ?1 AND state = 'WAITING')`

	wakeSQL = `
UPDATE {held} INDEXED BY {held_waiting} SET state = 'BLOCKED'
WHERE consumer_group = ?1 AND state = 'WAITING' AND tenant_id = ?2 AND aggregate_type = ?3 AND aggregate_id = ?4
  AND aggregate_version <= ?5 + 1`
)

// AdvanceProgress makes the steps one by one. Nearly always nothing waits, and
// one question tells.
func (t *inboxTx) AdvanceProgress(ctx context.Context, group string, advances []store.Advance) (woken int, err error) {
	for _, step := range advances {
		a := step.Aggregate
		text, args := beginProgressSQL, []any{group, a.TenantID, a.Type, a.ID, step.To, step.EventID}
		if step.From > 0 {
			text, args = moveProgressSQL, append(args, step.From)
		}
		written, err := t.exec(ctx, text, args...)
		if err == nil && written == 0 {
			err = store.ErrMoved
		}
		if err != nil {
			return 0, t.failed("advance progress", a.ID, err)
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
