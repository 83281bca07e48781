package mysql

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

const keysHeldSQL = `
SELECT w.n
FROM JSON_TABLE(?, '$[*]' COLUMNS (n FOR ORDINALITY, topic VARCHAR(249) CHARACTER SET utf8mb4 PATH '$[0]',
                                   event_key VARCHAR(384) CHARACTER SET utf8mb4 PATH '$[1]')) w
WHERE EXISTS (SELECT 1 FROM {held} h FORCE INDEX (event_key)
              WHERE h.consumer_group = ? AND h.topic = w.topic COLLATE {collation} AND h.event_key = w.event_key COLLATE {collation})
ORDER BY w.n`

// KeysHeld returns those of the keys that have held events.
func (t *inboxTx) KeysHeld(ctx context.Context, group string, keys []store.HeldKeyRef) ([]store.HeldKeyRef, error) {
	once := make([]store.HeldKeyRef, 0, len(keys))
	seen := make(map[store.HeldKeyRef]bool, len(keys))
	pairs := make([][2]string, 0, len(keys))
	for _, key := range keys {
		if !seen[key] {
			seen[key] = true
			once = append(once, key)
			pairs = append(pairs, [2]string{key.Topic, encodeText(key.Key)})
		}
	}
	if len(once) == 0 && !t.isAborted() {
		return nil, nil
	}
	numbers, err := collect(ctx, t.ownTx, scanOne[int], keysHeldSQL, list(pairs), group)
	if err != nil {
		return nil, t.failed("keys held", group, err)
	}
	var found []store.HeldKeyRef
	for _, n := range numbers {
		found = append(found, once[n-1])
	}
	return found, nil
}

// A row that is there is locked though nothing of it changes.
const lockKeySQL = `
INSERT INTO {key} (consumer_group, topic, event_key) VALUES (?, ?, ?)
ON DUPLICATE KEY UPDATE event_key = VALUES(event_key)`

// LockKey makes the key's row or locks it, in one trip.
func (t *inboxTx) LockKey(ctx context.Context, group string, key store.HeldKeyRef) error {
	_, err := t.exec(ctx, lockKeySQL, group, key.Topic, encodeText(key.Key))
	return t.failed("lock key", key.Topic+"/"+key.Key, err)
}

const heldColumns = "consumer_group, event_id, seq, topic, event_key, `partition`, position, event_type, tenant_id, aggregate_type," + `
       aggregate_id, COALESCE(aggregate_version, 0), state, attempts, next_attempt_at, last_failed_at, first_error, last_error, stack,
       record_id, record_topic, record_key, record_value, record_headers, held_at, first_failed_at, forced, dlt_sent_at, dlt_note,
       UTC_TIMESTAMP(6)`

const heldOfKeySQL = `
SELECT ` + heldColumns + `
FROM {held} FORCE INDEX (event_key) WHERE consumer_group = ? AND topic = ? AND event_key = ?
ORDER BY seq
LIMIT ?`

// HeldOfKey returns the key's held events by Seq.
func (t *inboxTx) HeldOfKey(ctx context.Context, group string, key store.HeldKeyRef, limit int) ([]store.Held, error) {
	held, err := collect(ctx, t.ownTx, scanHeld, heldOfKeySQL, group, key.Topic, encodeText(key.Key), atMost(limit))
	return held, t.failed("held of key", key.Topic+"/"+key.Key, err)
}

// A failure is dated where the event comes with one. Of two rows with one id
// the first stays, which the server tells by having affected none.
const holdSQL = "\nINSERT INTO {held} (consumer_group, event_id, topic, event_key, `partition`, position, event_type, tenant_id, aggregate_type," + `
                    aggregate_id, aggregate_version, state, attempts, next_attempt_at, first_failed_at, last_failed_at,
                    first_error, last_error, stack, record_id, record_topic, record_key, record_value, record_headers)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
        IF(?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, NULL), IF(?, UTC_TIMESTAMP(6), NULL), IF(?, UTC_TIMESTAMP(6), NULL),
        ?, ?, ?, ?, ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE seq = seq`

// Hold inserts a held event.
func (t *inboxTx) Hold(ctx context.Context, h store.Held) (inserted bool, err error) {
	e, r := &h.Event, &h.Record
	headers, err := encodeHeaders(r.Headers)
	if err != nil {
		return false, t.failed("hold", e.ID, err)
	}
	firstErr := h.FirstErr
	if firstErr == "" {
		firstErr = h.LastErr
	}
	failed := h.Attempts > 0 || h.LastErr != ""
	affected, err := t.exec(ctx, holdSQL, h.Group, encodeText(e.ID), h.Topic, encodeText(h.Key), h.Partition, h.Position,
		short(e.Type), short(e.TenantID), short(e.AggregateType), short(e.AggregateID), version(e), string(h.State), h.Attempts,
		h.State == store.HeldRetry, micros(h.RetryIn), failed, failed,
		storable(firstErr), storable(h.LastErr), fit(h.Stack, maxStackBytes),
		longText(r.EventID), longText(r.Topic), []byte(r.Key), r.Value, headers)
	return affected == 1, t.failed("hold", e.ID, err)
}

const maxStackBytes = 60_000

const updateHeldSQL = `
UPDATE {held} SET
    first_failed_at = IF((? > attempts OR ? <> last_error) AND first_failed_at IS NULL, UTC_TIMESTAMP(6), first_failed_at),
    last_failed_at = IF(? > attempts OR ? <> last_error, UTC_TIMESTAMP(6), last_failed_at),
    state = ?,
    attempts = ?,
    next_attempt_at = IF(?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, NULL),
    first_error = IF(first_error <> '', first_error, ?),
    last_error = ?,
    stack = ?,
    forced = ?,
    dlt_sent_at = IF(state = 'DEAD', dlt_sent_at, NULL),
    dlt_note = IF(state = 'DEAD', dlt_note, '')
WHERE seq = ?`

const heldSeqSQL = `SELECT seq FROM {held} WHERE consumer_group = ? AND event_id = ? FOR UPDATE`

// UpdateHeld writes the outcome of an attempt. The row is looked for first,
// since the server counts only those that an UPDATE changed. Columns that are
// compared with their former value stand before those that replace it: the
// server assigns from left to right.
func (t *inboxTx) UpdateHeld(ctx context.Context, h store.Held) (bool, error) {
	var seq int64
	found, err := t.one(ctx, heldSeqSQL, []any{h.Group, encodeText(h.Event.ID)}, &seq)
	if err != nil || !found {
		return false, t.failed("update held", h.Event.ID, err)
	}
	lastErr, firstErr := storable(h.LastErr), storable(h.FirstErr)
	if firstErr == "" {
		firstErr = lastErr
	}
	_, err = t.exec(ctx, updateHeldSQL, h.Attempts, lastErr, h.Attempts, lastErr, string(h.State), h.Attempts,
		h.State == store.HeldRetry, micros(h.RetryIn), firstErr, lastErr, fit(h.Stack, maxStackBytes), h.Forced, seq)
	return err == nil, t.failed("update held", h.Event.ID, err)
}

const deleteHeldSQL = `DELETE FROM {held} WHERE consumer_group = ? AND event_id = ?`

// DeleteHeld removes a held event.
func (t *inboxTx) DeleteHeld(ctx context.Context, group, eventID string) (bool, error) {
	affected, err := t.exec(ctx, deleteHeldSQL, group, encodeText(eventID))
	return affected > 0, t.failed("delete held", eventID, err)
}

func scanHeld(rows *sql.Rows) (store.Held, error) {
	var h store.Held
	var retryAt, failedAt, firstFailedAt, heldAt, sentAt, now moment
	var recordKey, headers []byte
	e, r := &h.Event, &h.Record
	if err := rows.Scan(&h.Group, &e.ID, &h.Seq, &h.Topic, &h.Key, &h.Partition, &h.Position, &e.Type, &e.TenantID, &e.AggregateType,
		&e.AggregateID, &e.AggregateVersion, &h.State, &h.Attempts, &retryAt, &failedAt, &h.FirstErr, &h.LastErr, &h.Stack,
		&r.EventID, &r.Topic, &recordKey, &r.Value, &headers, &heldAt, &firstFailedAt, &h.Forced, &sentAt, &h.DeadLetterNote, &now); err != nil {
		return h, err
	}
	e.ID, h.Key, h.HeldAt, h.LastFailedAt = decodeText(e.ID), decodeText(h.Key), heldAt.Time, failedAt.Time
	h.FirstFailedAt, h.DeadLetterAt = firstFailedAt.Time, sentAt.Time
	r.EventID, r.Topic, r.Key = decodeText(r.EventID), decodeText(r.Topic), string(recordKey)
	h.HeldFor = max(now.Sub(heldAt.Time), 0)
	if !retryAt.IsZero() {
		h.RetryIn = retryAt.Sub(now.Time)
	}
	var err error
	r.Headers, err = decodeHeaders(headers)
	return h, err
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
		kept[i] = heldHeader{longText(header.Key), header.Value}
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
