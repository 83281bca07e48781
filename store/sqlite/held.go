package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

const (
	anyHeldSQL = `
SELECT EXISTS (SELECT 1 FROM {held} WHERE consumer_group = ?1)`

	keyHeldSQL = `
SELECT EXISTS (SELECT 1 FROM {held} WHERE consumer_group = ?1 AND topic = ?2 AND event_key = ?3)`
)

// KeysHeld returns those of the keys that have held events. While the group
// holds nothing at all, that is one question for any number of keys.
func (t *inboxTx) KeysHeld(ctx context.Context, group string, keys []store.HeldKeyRef) ([]store.HeldKeyRef, error) {
	var found []store.HeldKeyRef
	var present bool
	if len(keys) > 1 {
		if err := t.scan(ctx, anyHeldSQL, []any{group}, &present); err != nil || !present {
			return nil, t.failed("keys held", group, err)
		}
	}
	for _, key := range keys {
		if slices.Contains(found, key) {
			continue
		}
		if err := t.scan(ctx, keyHeldSQL, []any{group, key.Topic, key.Key}, &present); err != nil {
			return nil, t.failed("keys held", group, err)
		}
		if present {
			found = append(found, key)
		}
	}
	return found, nil
}

// LockKey has nothing to do: BEGIN IMMEDIATE has locked every key. It only
// tells a transaction that is no longer one.
func (t *inboxTx) LockKey(ctx context.Context, group string, key store.HeldKeyRef) error {
	var present bool
	err := t.scan(ctx, keyHeldSQL, []any{group, key.Topic, key.Key}, &present)
	return t.failed("lock key", key.Key, err)
}

const heldColumns = `consumer_group, seq, topic, event_key, partition, position, event_id, event_type, tenant_id, aggregate_type, aggregate_id,
  COALESCE(aggregate_version, 0), state, attempts, COALESCE(next_attempt_at, ''), first_error, last_error, stack, record,
  held_at, COALESCE(first_failed_at, ''), COALESCE(last_failed_at, ''), forced, COALESCE(dlt_sent_at, ''), dlt_note, {now}`

func scanHeld(rows *sql.Rows, err error) ([]store.Held, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []store.Held
	for rows.Next() {
		var h store.Held
		var nextAttemptAt, heldAt, firstFailedAt, lastFailedAt, sentAt, now string
		var record []byte
		if err := rows.Scan(&h.Group, &h.Seq, &h.Topic, &h.Key, &h.Partition, &h.Position, &h.Event.ID, &h.Event.Type, &h.Event.TenantID,
			&h.Event.AggregateType, &h.Event.AggregateID, &h.Event.AggregateVersion, &h.State, &h.Attempts, &nextAttemptAt,
			&h.FirstErr, &h.LastErr, &h.Stack, &record, &heldAt, &firstFailedAt, &lastFailedAt, &h.Forced, &sentAt, &h.DeadLetterNote, &now); err != nil {
			return nil, err
		}
		if h.Record, err = unmarshalRecord(record); err != nil {
			return nil, &waybill.Error{Op: "read held record", Key: h.Event.ID, Err: err}
		}
		h.RetryIn = until(nextAttemptAt, now)
		h.HeldAt = parseTime(heldAt)
		h.HeldFor = max(parseTime(now).Sub(h.HeldAt), 0)
		h.FirstFailedAt, h.LastFailedAt, h.DeadLetterAt = optionalTime(firstFailedAt), optionalTime(lastFailedAt), optionalTime(sentAt)
		found = append(found, h)
	}
	return found, errors.Join(rows.Err(), rows.Close())
}

func optionalTime(text string) time.Time {
	if text == "" {
		return time.Time{}
	}
	return parseTime(text)
}

// heldRecord is a record as JSON: what a broker carries need not be UTF-8.
type heldRecord struct {
	EventID, Topic string
	Key, Value     []byte
	Headers        []heldHeader `json:",omitempty"`
}

type heldHeader struct{ Key, Value []byte }

func marshalRecord(r *waybill.Record) (string, error) {
	kept := heldRecord{EventID: r.EventID, Topic: r.Topic, Key: []byte(r.Key), Value: r.Value}
	for _, h := range r.Headers {
		kept.Headers = append(kept.Headers, heldHeader{[]byte(h.Key), h.Value})
	}
	text, err := json.Marshal(kept)
	return string(text), err
}

func unmarshalRecord(text []byte) (waybill.Record, error) {
	var kept heldRecord
	if err := json.Unmarshal(text, &kept); err != nil {
		return waybill.Record{}, err
	}
	r := waybill.Record{EventID: kept.EventID, Topic: kept.Topic, Key: string(kept.Key), Value: kept.Value}
	for _, h := range kept.Headers {
		r.Headers = append(r.Headers, waybill.Header{Key: string(h.Key), Value: h.Value})
	}
	return r, nil
}

const heldOfKeySQL = `
SELECT ` + heldColumns + `
FROM {held} INDEXED BY {held_key}
WHERE consumer_group = ?1 AND topic = ?2 AND event_key = ?3
ORDER BY seq
LIMIT ?4`

// HeldOfKey returns the key's held events by Seq.
func (t *inboxTx) HeldOfKey(ctx context.Context, group string, key store.HeldKeyRef, limit int) ([]store.Held, error) {
	rows, err := t.query(ctx, heldOfKeySQL, group, key.Topic, key.Key, noLimit(limit))
	found, err := scanHeld(rows, err)
	return found, t.failed("held of key", key.Key, err)
}

const holdSQL = `
INSERT INTO {held} (consumer_group, event_id, topic, event_key, partition, position, event_type, tenant_id, aggregate_type, aggregate_id,
  aggregate_version, state, attempts, next_attempt_at, first_failed_at, last_failed_at, first_error, last_error, stack, record)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13,
  CASE ?12 WHEN 'RETRY' THEN strftime({iso}, 'now', ?14) END,
  CASE WHEN ?13 > 0 OR ?16 <> '' THEN {now} END, CASE WHEN ?13 > 0 OR ?16 <> '' THEN {now} END,
  CASE ?15 WHEN '' THEN ?16 ELSE ?15 END, ?16, ?17, ?18)
ON CONFLICT (consumer_group, event_id) DO NOTHING`

// Hold inserts a held event.
func (t *inboxTx) Hold(ctx context.Context, held store.Held) (bool, error) {
	e := &held.Event
	record, err := marshalRecord(&held.Record)
	if err != nil {
		return false, t.failed("hold", e.ID, err)
	}
	inserted, err := t.exec(ctx, holdSQL, held.Group, e.ID, held.Topic, held.Key, held.Partition, held.Position, e.Type, e.TenantID,
		e.AggregateType, e.AggregateID, nonZero(e.AggregateVersion), string(held.State), held.Attempts, after(held.RetryIn),
		held.FirstErr, held.LastErr, held.Stack, record)
	return inserted > 0, t.failed("hold", e.ID, err)
}

const updateHeldSQL = `
UPDATE {held} SET
  first_failed_at = CASE WHEN first_failed_at IS NULL AND (?4 > attempts OR ?7 <> last_error) THEN {now} ELSE first_failed_at END,
  last_failed_at = CASE WHEN ?4 > attempts OR ?7 <> last_error THEN {now} ELSE last_failed_at END,
  state = ?3, attempts = ?4,
  next_attempt_at = CASE ?3 WHEN 'RETRY' THEN strftime({iso}, 'now', ?5) END,
  first_error = CASE WHEN first_error <> '' THEN first_error WHEN ?6 <> '' THEN ?6 ELSE ?7 END,
  last_error = ?7, stack = ?8, forced = ?9,
  dlt_sent_at = CASE ?3 WHEN 'DEAD' THEN dlt_sent_at END, dlt_note = CASE ?3 WHEN 'DEAD' THEN dlt_note ELSE '' END
WHERE consumer_group = ?1 AND event_id = ?2`

// UpdateHeld writes the outcome of an attempt.
func (t *inboxTx) UpdateHeld(ctx context.Context, held store.Held) (bool, error) {
	updated, err := t.exec(ctx, updateHeldSQL, held.Group, held.Event.ID, string(held.State), held.Attempts, after(held.RetryIn),
		held.FirstErr, held.LastErr, held.Stack, held.Forced)
	return updated > 0, t.failed("update held", held.Event.ID, err)
}

const deleteHeldSQL = `
DELETE FROM {held} WHERE consumer_group = ?1 AND event_id = ?2`

// DeleteHeld removes a held event.
func (t *inboxTx) DeleteHeld(ctx context.Context, group, eventID string) (bool, error) {
	deleted, err := t.exec(ctx, deleteHeldSQL, group, eventID)
	return deleted > 0, t.failed("delete held", eventID, err)
}
