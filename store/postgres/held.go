package postgres

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

const keysHeldSQL = `
SELECT DISTINCT w.n
FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS w (topic, event_key, n)
WHERE EXISTS (SELECT FROM {held} h WHERE h.consumer_group = $1 AND h.topic = w.topic AND h.event_key = w.event_key)
ORDER BY w.n`

// KeysHeld returns those of the keys that have held events.
func (t *inboxTx) KeysHeld(ctx context.Context, group string, keys []store.HeldKeyRef) ([]store.HeldKeyRef, error) {
	distinct := make([]store.HeldKeyRef, 0, len(keys))
	seen := make(map[store.HeldKeyRef]bool, len(keys))
	var topics, texts []string
	for _, key := range keys {
		if !seen[key] {
			seen[key] = true
			distinct = append(distinct, key)
			topics = append(topics, key.Topic)
			texts = append(texts, encodeText(key.Key))
		}
	}
	if len(distinct) == 0 {
		return nil, failure("keys held", group, t.tx.usable())
	}
	rows, err := t.tx.Query(ctx, t.store.sql(keysHeldSQL), group, topics, texts)
	if err != nil {
		return nil, failure("keys held", group, err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (store.HeldKeyRef, error) {
		var n int64
		err := row.Scan(&n)
		if err != nil {
			return store.HeldKeyRef{}, err
		}
		return distinct[n-1], nil
	})
	return found, failure("keys held", group, err)
}

const makeKeySQL = `
INSERT INTO {key} (consumer_group, topic, event_key) VALUES ($1, $2, $3)
ON CONFLICT (consumer_group, topic, event_key) DO NOTHING`

const lockKeySQL = `
SELECT 1 FROM {key} WHERE consumer_group = $1 AND topic = $2 AND event_key = $3 FOR UPDATE`

// LockKey locks the key's row, having made sure that it exists, in one trip.
func (t *inboxTx) LockKey(ctx context.Context, group string, key store.HeldKeyRef) error {
	if err := t.tx.usable(); err != nil {
		return failure("lock key", key.Topic+"/"+key.Key, err)
	}
	text := encodeText(key.Key)
	batch := &pgx.Batch{}
	batch.Queue(t.store.sql(makeKeySQL), group, key.Topic, text)
	batch.Queue(t.store.sql(lockKeySQL), group, key.Topic, text)
	err := t.tx.reason(t.tx.SendBatch(ctx, batch).Close())
	return failure("lock key", key.Topic+"/"+key.Key, err)
}

const heldColumns = `consumer_group, event_id, seq, topic, event_key, partition, position, event_type, tenant_id, aggregate_type,
       aggregate_id, COALESCE(aggregate_version, 0), state, attempts, next_attempt_at, last_failed_at, first_error, last_error, stack,
       record_id, record_topic, record_key, record_value, record_headers::text, held_at, first_failed_at, forced, dlt_sent_at, dlt_note,
       clock_timestamp()`

const heldOfKeySQL = `
SELECT ` + heldColumns + `
FROM {held} WHERE consumer_group = $1 AND topic = $2 AND event_key = $3
ORDER BY seq
LIMIT $4`

// HeldOfKey returns the key's held events by Seq.
func (t *inboxTx) HeldOfKey(ctx context.Context, group string, key store.HeldKeyRef, limit int) ([]store.Held, error) {
	rows, err := t.tx.Query(ctx, t.store.sql(heldOfKeySQL), group, key.Topic, encodeText(key.Key), atMost(limit))
	if err != nil {
		return nil, failure("held of key", key.Topic+"/"+key.Key, err)
	}
	held, err := pgx.CollectRows(rows, scanHeld)
	return held, failure("held of key", key.Topic+"/"+key.Key, t.tx.reason(err))
}

// A failure is dated where the event comes with one.
const holdSQL = `
INSERT INTO {held} (consumer_group, event_id, topic, event_key, partition, position, event_type, tenant_id, aggregate_type,
                    aggregate_id, aggregate_version, state, attempts, next_attempt_at, first_failed_at, last_failed_at,
                    first_error, last_error, stack, record_id, record_topic, record_key, record_value, record_headers)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, NULLIF($11::bigint, 0), $12::text, $13::integer,
        CASE WHEN $12::text = 'RETRY' THEN clock_timestamp() + $14::bigint * interval '1 microsecond' END,
        CASE WHEN $13::integer > 0 OR $16::text <> '' THEN clock_timestamp() END,
        CASE WHEN $13::integer > 0 OR $16::text <> '' THEN clock_timestamp() END,
        COALESCE(NULLIF($15::text, ''), $16::text), $16::text, $17, $18, $19, $20, $21, $22::json)
ON CONFLICT (consumer_group, event_id) DO NOTHING`

// Hold inserts a held event.
func (t *inboxTx) Hold(ctx context.Context, h store.Held) (inserted bool, err error) {
	e, r := &h.Event, &h.Record
	headers, err := encodeHeaders(r.Headers)
	if err != nil {
		return false, failure("hold", e.ID, err)
	}
	tag, err := t.tx.Exec(ctx, t.store.sql(holdSQL), h.Group, encodeText(e.ID), h.Topic, encodeText(h.Key), h.Partition, h.Position,
		storable(e.Type), storable(e.TenantID), storable(e.AggregateType), storable(e.AggregateID), e.AggregateVersion,
		string(h.State), h.Attempts, micros(h.RetryIn), storable(h.FirstErr), storable(h.LastErr), storable(h.Stack),
		encodeText(r.EventID), encodeText(r.Topic), []byte(r.Key), r.Value, headers)
	return tag.RowsAffected() > 0, failure("hold", e.ID, err)
}

const updateHeldSQL = `
UPDATE {held} h SET
    state = $3::text,
    attempts = $4::integer,
    next_attempt_at = CASE WHEN $3::text = 'RETRY' THEN clock_timestamp() + $5::bigint * interval '1 microsecond' END,
    first_failed_at = CASE WHEN $4::integer > h.attempts OR $7::text <> h.last_error
                           THEN COALESCE(h.first_failed_at, clock_timestamp()) ELSE h.first_failed_at END,
    last_failed_at = CASE WHEN $4::integer > h.attempts OR $7::text <> h.last_error THEN clock_timestamp() ELSE h.last_failed_at END,
    first_error = COALESCE(NULLIF(h.first_error, ''), NULLIF($6::text, ''), $7::text),
    last_error = $7::text,
    stack = $8::text,
    forced = $9::boolean,
    dlt_sent_at = CASE WHEN $3::text = 'DEAD' THEN h.dlt_sent_at END,
    dlt_note = CASE WHEN $3::text = 'DEAD' THEN h.dlt_note ELSE '' END
WHERE h.consumer_group = $1 AND h.event_id = $2`

// UpdateHeld writes the outcome of an attempt.
func (t *inboxTx) UpdateHeld(ctx context.Context, h store.Held) (bool, error) {
	tag, err := t.tx.Exec(ctx, t.store.sql(updateHeldSQL), h.Group, encodeText(h.Event.ID), string(h.State), h.Attempts,
		micros(h.RetryIn), storable(h.FirstErr), storable(h.LastErr), storable(h.Stack), h.Forced)
	return tag.RowsAffected() > 0, failure("update held", h.Event.ID, err)
}

const deleteHeldSQL = `DELETE FROM {held} WHERE consumer_group = $1 AND event_id = $2`

// DeleteHeld removes a held event.
func (t *inboxTx) DeleteHeld(ctx context.Context, group, eventID string) (bool, error) {
	tag, err := t.tx.Exec(ctx, t.store.sql(deleteHeldSQL), group, encodeText(eventID))
	return tag.RowsAffected() > 0, failure("delete held", eventID, err)
}

func scanHeld(row pgx.CollectableRow) (store.Held, error) {
	var h store.Held
	var retryAt, failedAt, firstFailedAt, sentAt *time.Time
	var recordKey, headers []byte
	var now time.Time
	e, r := &h.Event, &h.Record
	if err := row.Scan(&h.Group, &e.ID, &h.Seq, &h.Topic, &h.Key, &h.Partition, &h.Position, &e.Type, &e.TenantID, &e.AggregateType,
		&e.AggregateID, &e.AggregateVersion, &h.State, &h.Attempts, &retryAt, &failedAt, &h.FirstErr, &h.LastErr, &h.Stack,
		&r.EventID, &r.Topic, &recordKey, &r.Value, &headers, &h.HeldAt, &firstFailedAt, &h.Forced, &sentAt, &h.DeadLetterNote, &now); err != nil {
		return h, err
	}
	e.ID, h.Key, h.HeldAt = decodeText(e.ID), decodeText(h.Key), h.HeldAt.UTC()
	r.EventID, r.Topic, r.Key = decodeText(r.EventID), decodeText(r.Topic), string(recordKey)
	h.HeldFor = max(now.Sub(h.HeldAt), 0)
	if retryAt != nil {
		h.RetryIn = retryAt.Sub(now)
	}
	h.LastFailedAt, h.FirstFailedAt, h.DeadLetterAt = optionalTime(failedAt), optionalTime(firstFailedAt), optionalTime(sentAt)
	var err error
	r.Headers, err = decodeHeaders(headers)
	return h, err
}

func optionalTime(at *time.Time) time.Time {
	if at == nil {
		return time.Time{}
	}
	return at.UTC()
}

// heldHeader is a record's header as the column record_headers keeps it: value
// in base 64, since it may be any bytes.
type heldHeader struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

func encodeHeaders(headers []waybill.Header) (*string, error) {
	if headers == nil {
		return nil, nil
	}
	kept := make([]heldHeader, len(headers))
	for i, header := range headers {
		kept[i] = heldHeader{encodeText(header.Key), header.Value}
	}
	text, err := json.Marshal(kept)
	return new(string(text)), err
}

func decodeHeaders(text []byte) ([]waybill.Header, error) {
	if text == nil {
		return nil, nil
	}
	var kept []heldHeader
	if err := json.Unmarshal(text, &kept); err != nil {
		return nil, err
	}
	headers := make([]waybill.Header, len(kept))
	for i, header := range kept {
		headers[i] = waybill.Header{Key: decodeText(header.Key), Value: header.Value}
	}
	return headers, nil
}
