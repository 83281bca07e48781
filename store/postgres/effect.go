package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill/store"
)

const effectColumns = `event_id, name, idempotency_key, idempotent, state, owner, until, tries, result, started_at, clock_timestamp()`

const effectsOfSQL = `
SELECT ` + effectColumns + `
FROM {effect} WHERE consumer_group = $1 AND event_id = $2
ORDER BY name`

func scanEffect(group string) pgx.RowToFunc[store.EffectCall] {
	return func(row pgx.CollectableRow) (store.EffectCall, error) {
		c := store.EffectCall{Group: group}
		var until, now time.Time
		err := row.Scan(&c.EventID, &c.Name, &c.Key, &c.Idempotent, &c.State, &c.Owner, &until, &c.Tries, &c.Result, &c.StartedAt, &now)
		c.EventID, c.Key, c.StartedAt, c.ExpiresIn = decodeText(c.EventID), decodeText(c.Key), c.StartedAt.UTC(), until.Sub(now)
		return c, err
	}
}

// EffectsOf returns the event's calls, by name.
func (t *inboxTx) EffectsOf(ctx context.Context, group, eventID string) ([]store.EffectCall, error) {
	rows, err := t.tx.Query(ctx, t.store.sql(effectsOfSQL), group, encodeText(eventID))
	if err != nil {
		return nil, failure("effects of", eventID, err)
	}
	found, err := pgx.CollectRows(rows, scanEffect(group))
	return found, failure("effects of", eventID, t.tx.reason(err))
}

// One that is DONE is written as it is, so that there is always a row to return.
const beginEffectSQL = `
INSERT INTO {effect} AS c (consumer_group, event_id, name, idempotency_key, idempotent, state, owner, until)
VALUES ($1, $2, $3, $4, $5, 'DOING', $6, clock_timestamp() + $7::bigint * interval '1 microsecond')
ON CONFLICT (consumer_group, event_id, name) DO UPDATE SET
    owner = CASE c.state WHEN 'DOING' THEN EXCLUDED.owner ELSE c.owner END,
    until = CASE c.state WHEN 'DOING' THEN EXCLUDED.until ELSE c.until END,
    tries = CASE c.state WHEN 'DOING' THEN c.tries + 1 ELSE c.tries END
RETURNING ` + effectColumns

// BeginEffect writes that the call is DOING.
func (t *inboxTx) BeginEffect(ctx context.Context, call store.EffectCall, ttl time.Duration) (store.EffectCall, error) {
	rows, err := t.tx.Query(ctx, t.store.sql(beginEffectSQL), call.Group, encodeText(call.EventID), call.Name, encodeText(call.Key), call.Idempotent,
		call.Owner, micros(ttl))
	if err != nil {
		return store.EffectCall{}, failure("begin effect", call.EventID, err)
	}
	begun, err := pgx.CollectExactlyOneRow(rows, scanEffect(call.Group))
	return begun, failure("begin effect", call.EventID, t.tx.reason(err))
}

const finishEffectSQL = `
UPDATE {effect} SET state = 'DONE', result = $5
WHERE consumer_group = $1 AND event_id = $2 AND name = $3 AND owner = $4 AND state = 'DOING'`

// FinishEffect makes a call DONE.
func (t *inboxTx) FinishEffect(ctx context.Context, call store.EffectCall) (bool, error) {
	tag, err := t.tx.Exec(ctx, t.store.sql(finishEffectSQL), call.Group, encodeText(call.EventID), call.Name, call.Owner, call.Result)
	return tag.RowsAffected() > 0, failure("finish effect", call.EventID, err)
}

const forgetEffectSQL = `
DELETE FROM {effect} WHERE consumer_group = $1 AND event_id = $2 AND name = $3 AND state = 'DOING'`

// ForgetEffect removes a call that is DOING.
func (t *inboxTx) ForgetEffect(ctx context.Context, group string, ref store.EffectRef) (bool, error) {
	tag, err := t.tx.Exec(ctx, t.store.sql(forgetEffectSQL), group, encodeText(ref.EventID), ref.Name)
	return tag.RowsAffected() > 0, failure("forget effect", ref.EventID, err)
}

const renewEffectsSQL = `
UPDATE {effect} c SET until = clock_timestamp() + $5::bigint * interval '1 microsecond'
FROM unnest($3::text[], $4::text[]) AS w (event_id, name)
WHERE c.consumer_group = $1 AND c.owner = $2 AND c.state = 'DOING' AND c.event_id = w.event_id AND c.name = w.name
RETURNING c.event_id, c.name`

// RenewEffects extends the owner's leases.
func (s *Store) RenewEffects(ctx context.Context, group, owner string, ttl time.Duration, calls []store.EffectRef) ([]store.EffectRef, error) {
	if len(calls) == 0 {
		return nil, nil
	}
	ids, names := make([]string, len(calls)), make([]string, len(calls))
	for i, ref := range calls {
		ids[i], names[i] = encodeText(ref.EventID), ref.Name
	}
	rows, err := s.pool.Query(ctx, s.sql(renewEffectsSQL), s.planned, group, owner, ids, names, micros(ttl))
	if err != nil {
		return nil, failure("renew effects", group, err)
	}
	held, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (ref store.EffectRef, err error) {
		err = row.Scan(&ref.EventID, &ref.Name)
		ref.EventID = decodeText(ref.EventID)
		return ref, err
	})
	return held, failure("renew effects", group, err)
}

// ListEffects returns the calls of an event, by name.
func (s *Store) ListEffects(ctx context.Context, group, eventID string) ([]store.EffectCall, error) {
	rows, err := s.pool.Query(ctx, s.sql(effectsOfSQL), s.planned, group, encodeText(eventID))
	if err != nil {
		return nil, failure("list effects", eventID, err)
	}
	found, err := pgx.CollectRows(rows, scanEffect(group))
	return found, failure("list effects", eventID, err)
}
