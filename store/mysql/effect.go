package mysql

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/waybillhq/waybill/store"
)

const effectsOfSQL = `
SELECT event_id, name, idempotency_key, idempotent, state, owner, until, tries, result, started_at, UTC_TIMESTAMP(6)
FROM {effect} WHERE consumer_group = ? AND event_id = ?
ORDER BY name`

func scanEffect(rows *sql.Rows) (store.EffectCall, error) {
	var c store.EffectCall
	var until, startedAt, now moment
	err := rows.Scan(&c.EventID, &c.Name, &c.Key, &c.Idempotent, &c.State, &c.Owner, &until, &c.Tries, &c.Result, &startedAt, &now)
	c.EventID, c.Key, c.StartedAt, c.ExpiresIn = decodeText(c.EventID), decodeText(c.Key), startedAt.Time, until.Sub(now.Time)
	return c, err
}

func (t ownTx) effectsOf(ctx context.Context, group, eventID string) ([]store.EffectCall, error) {
	found, err := collect(ctx, t, scanEffect, effectsOfSQL, group, encodeText(eventID))
	for i := range found {
		found[i].Group = group
	}
	return found, err
}

// EffectsOf returns the event's calls, by name.
func (t *inboxTx) EffectsOf(ctx context.Context, group, eventID string) ([]store.EffectCall, error) {
	found, err := t.effectsOf(ctx, group, eventID)
	return found, t.failed("effects of", eventID, err)
}

// The server assigns from left to right: what is compared stands first.
const beginEffectSQL = `
INSERT INTO {effect} (consumer_group, event_id, name, idempotency_key, idempotent, state, owner, until)
VALUES (?, ?, ?, ?, ?, 'DOING', ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND)
ON DUPLICATE KEY UPDATE
    tries = IF(state = 'DOING', tries + 1, tries), owner = IF(state = 'DOING', VALUES(owner), owner),
    until = IF(state = 'DOING', VALUES(until), until)`

var errNoEffect = errors.New("the row of the call is not there")

// BeginEffect writes that the call is DOING.
func (t *inboxTx) BeginEffect(ctx context.Context, call store.EffectCall, ttl time.Duration) (store.EffectCall, error) {
	_, err := t.exec(ctx, beginEffectSQL, call.Group, encodeText(call.EventID), call.Name, encodeText(call.Key), call.Idempotent,
		call.Owner, micros(ttl))
	if err != nil {
		return store.EffectCall{}, t.failed("begin effect", call.EventID, err)
	}
	found, err := t.effectsOf(ctx, call.Group, call.EventID)
	for _, c := range found {
		if c.Name == call.Name {
			return c, nil
		}
	}
	if err == nil {
		err = errNoEffect
	}
	return store.EffectCall{}, t.failed("begin effect", call.EventID, err)
}

const finishEffectSQL = `
UPDATE {effect} SET state = 'DONE', result = ?
WHERE consumer_group = ? AND event_id = ? AND name = ? AND owner = ? AND state = 'DOING'`

// FinishEffect makes a call DONE.
func (t *inboxTx) FinishEffect(ctx context.Context, call store.EffectCall) (bool, error) {
	affected, err := t.exec(ctx, finishEffectSQL, call.Result, call.Group, encodeText(call.EventID), call.Name, call.Owner)
	return affected > 0, t.failed("finish effect", call.EventID, err)
}

const forgetEffectSQL = `
DELETE FROM {effect} WHERE consumer_group = ? AND event_id = ? AND name = ? AND state = 'DOING'`

// ForgetEffect removes a call that is DOING.
func (t *inboxTx) ForgetEffect(ctx context.Context, group string, ref store.EffectRef) (bool, error) {
	affected, err := t.exec(ctx, forgetEffectSQL, group, encodeText(ref.EventID), ref.Name)
	return affected > 0, t.failed("forget effect", ref.EventID, err)
}

// The server counts no row that a statement leaves as it was, and two renewals
// may fall into one microsecond: the row is looked for first.
const (
	lockEffectSQL = `
SELECT e.tries FROM {effect} e
WHERE e.consumer_group = ? AND e.event_id = ? AND e.name = ? AND e.owner = ? AND e.state = 'DOING' {for update e}`

	renewEffectSQL = `
UPDATE {effect} SET until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND
WHERE consumer_group = ? AND event_id = ? AND name = ?`
)

// RenewEffects extends the owner's leases.
func (s *Store) RenewEffects(ctx context.Context, group, owner string, ttl time.Duration, calls []store.EffectRef) ([]store.EffectRef, error) {
	var held []store.EffectRef
	for _, ref := range calls {
		found := false
		// One by one: a row that is locked must not keep the renewals of others back
		// longer than its own.
		err := s.inTx(ctx, func(tx ownTx) (err error) {
			var tries int
			if found, err = tx.one(ctx, lockEffectSQL, []any{group, encodeText(ref.EventID), ref.Name, owner}, &tries); err != nil || !found {
				return err
			}
			_, err = tx.exec(ctx, renewEffectSQL, micros(ttl), group, encodeText(ref.EventID), ref.Name)
			return err
		})
		if err != nil {
			return held, failure("renew effects", group, err)
		}
		if found {
			held = append(held, ref)
		}
	}
	return held, nil
}

// ListEffects returns the calls of an event, by name.
func (s *Store) ListEffects(ctx context.Context, group, eventID string) ([]store.EffectCall, error) {
	found, err := s.pool().effectsOf(ctx, group, eventID)
	return found, failure("list effects", eventID, err)
}
