package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/waybillhq/waybill/store"
)

const effectsOfSQL = `
SELECT event_id, name, idempotency_key, idempotent, state, owner, until, tries, result, started_at, {now}
FROM {effect}
WHERE consumer_group = ?1 AND event_id = ?2
ORDER BY name`

func scanEffects(group string, rows *sql.Rows, err error) ([]store.EffectCall, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []store.EffectCall
	for rows.Next() {
		c := store.EffectCall{Group: group}
		var untilAt, startedAt, now string
		if err := rows.Scan(&c.EventID, &c.Name, &c.Key, &c.Idempotent, &c.State, &c.Owner, &untilAt, &c.Tries, &c.Result,
			&startedAt, &now); err != nil {
			return nil, err
		}
		c.ExpiresIn, c.StartedAt = until(untilAt, now), parseTime(startedAt)
		found = append(found, c)
	}
	return found, errors.Join(rows.Err(), rows.Close())
}

// EffectsOf returns the event's calls, by name.
func (t *inboxTx) EffectsOf(ctx context.Context, group, eventID string) ([]store.EffectCall, error) {
	rows, err := t.query(ctx, effectsOfSQL, group, eventID)
	found, err := scanEffects(group, rows, err)
	return found, t.failed("effects of", eventID, err)
}

const beginEffectSQL = `
INSERT INTO {effect} (consumer_group, event_id, name, idempotency_key, idempotent, state, owner, until)
VALUES (?1, ?2, ?3, ?4, ?5, 'DOING', ?6, strftime({iso}, 'now', ?7))
ON CONFLICT (consumer_group, event_id, name) DO UPDATE SET owner = excluded.owner, until = excluded.until, tries = tries + 1
WHERE state = 'DOING'`

// BeginEffect writes that the call is DOING.
func (t *inboxTx) BeginEffect(ctx context.Context, call store.EffectCall, ttl time.Duration) (store.EffectCall, error) {
	if _, err := t.exec(ctx, beginEffectSQL, call.Group, call.EventID, call.Name, call.Key, call.Idempotent, call.Owner, after(ttl)); err != nil {
		return store.EffectCall{}, t.failed("begin effect", call.EventID, err)
	}
	rows, err := t.query(ctx, effectsOfSQL, call.Group, call.EventID)
	found, err := scanEffects(call.Group, rows, err)
	for _, c := range found {
		if c.Name == call.Name {
			return c, nil
		}
	}
	if err == nil {
		err = sql.ErrNoRows
	}
	return store.EffectCall{}, t.failed("begin effect", call.EventID, err)
}

const finishEffectSQL = `
UPDATE {effect} SET state = 'DONE', result = ?5
WHERE consumer_group = ?1 AND event_id = ?2 AND name = ?3 AND owner = ?4 AND state = 'DOING'`

// FinishEffect makes a call DONE.
func (t *inboxTx) FinishEffect(ctx context.Context, call store.EffectCall) (bool, error) {
	updated, err := t.exec(ctx, finishEffectSQL, call.Group, call.EventID, call.Name, call.Owner, call.Result)
	return updated > 0, t.failed("finish effect", call.EventID, err)
}

const forgetEffectSQL = `
DELETE FROM {effect} WHERE consumer_group = ?1 AND event_id = ?2 AND name = ?3 AND state = 'DOING'`

// ForgetEffect removes a call that is DOING.
func (t *inboxTx) ForgetEffect(ctx context.Context, group string, ref store.EffectRef) (bool, error) {
	deleted, err := t.exec(ctx, forgetEffectSQL, group, ref.EventID, ref.Name)
	return deleted > 0, t.failed("forget effect", ref.EventID, err)
}

const renewEffectSQL = `
UPDATE {effect} SET until = strftime({iso}, 'now', ?5)
WHERE consumer_group = ?1 AND event_id = ?2 AND name = ?3 AND owner = ?4 AND state = 'DOING'`

// RenewEffects extends the owner's leases.
func (s *Store) RenewEffects(ctx context.Context, group, owner string, ttl time.Duration, calls []store.EffectRef) ([]store.EffectRef, error) {
	var held []store.EffectRef
	err := s.write(ctx, "renew effects", true, func(w writing) error {
		held = nil
		for _, ref := range calls {
			updated, err := w.exec(ctx, renewEffectSQL, group, ref.EventID, ref.Name, owner, after(ttl))
			if err != nil {
				return err
			}
			if updated > 0 {
				held = append(held, ref)
			}
		}
		return nil
	})
	return held, err
}

// ListEffects returns the calls of an event, by name.
func (s *Store) ListEffects(ctx context.Context, group, eventID string) ([]store.EffectCall, error) {
	rows, err := s.query(ctx, effectsOfSQL, group, eventID)
	found, err := scanEffects(group, rows, err)
	return found, s.failed("list effects", eventID, err)
}
