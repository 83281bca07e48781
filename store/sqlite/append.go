package sqlite

import (
	"context"
	"errors"
	"strings"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

const (
	// A call with more events than this takes several statements.
	appendChunk = 500

	appendHeadSQL = `
INSERT INTO {event} (event_id, tenant_id, aggregate_type, aggregate_id, aggregate_version, event_type, event_version, topic,
  event_key, payload, content_type, headers, occurred_at)
VALUES `
	appendRowSQL  = `(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	appendTailSQL = `
ON CONFLICT (event_id) DO NOTHING
RETURNING id, event_id`

	// One event is the usual case, and worth a prepared statement.
	appendOneSQL = appendHeadSQL + appendRowSQL + appendTailSQL
)

// appendQueueSQL queues events where no trigger does. A queue row that is
// there already belongs to the trigger, or to a fact that is gone.
const appendQueueSQL = `
INSERT OR REPLACE INTO {pending} (id, lane, key_hash, topic_hash)
` + queueListed

// Append inserts the events; the transaction may be one of any driver of SQLite.
func (s *Store) Append(ctx context.Context, tx store.SQLTx, events []waybill.Event) ([]error, error) {
	results := make([]error, len(events))
	for start := 0; start < len(events); start += appendChunk {
		end := min(start+appendChunk, len(events))
		if err := s.appendChunk(ctx, tx, events[start:end], results[start:end]); err != nil {
			return nil, s.failed("append", events[start].ID, err)
		}
	}
	return results, nil
}

func (s *Store) appendChunk(ctx context.Context, tx store.SQLTx, events []waybill.Event, results []error) error {
	args := make([]any, 0, 13*len(events))
	for i := range events {
		e := &events[i]
		headers, err := e.MarshalHeaders()
		if err != nil {
			return err
		}
		args = append(args, e.ID, e.TenantID, e.AggregateType, e.AggregateID, nonZero(e.AggregateVersion), e.Type, e.SchemaVersion, e.Topic,
			e.EffectiveKey(), append([]byte{}, e.Data...), e.ContentType, textOrNull(headers), formatTime(e.OccurredAt))
	}
	rows, err := tx.QueryContext(ctx, s.appendText(len(events)), args...)
	if err != nil {
		return err
	}
	inserted := make(map[string]bool, len(events))
	var ids []int64
	for rows.Next() {
		var id int64
		var eventID string
		if err := rows.Scan(&id, &eventID); err != nil {
			return errors.Join(err, rows.Close())
		}
		inserted[eventID] = true
		ids = append(ids, id)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	for i := range events {
		if id := events[i].ID; inserted[id] {
			delete(inserted, id) // a second one of the same call is a duplicate
		} else {
			results[i] = &waybill.Error{Op: "append", Key: id, Err: waybill.ErrDuplicateEvent}
		}
	}
	if s.config.NoTrigger && len(ids) > 0 {
		_, err = tx.ExecContext(ctx, s.text(appendQueueSQL), jsonInts(ids))
		if err == nil && s.config.Head {
			_, err = tx.ExecContext(ctx, s.text(headListedSQL), jsonInts(ids))
		}
	}
	return err
}

func (s *Store) appendText(events int) string {
	if events == 1 {
		return s.text(appendOneSQL)
	}
	return s.lexicon.Replace(appendHeadSQL + appendRowSQL + strings.Repeat(", "+appendRowSQL, events-1) + appendTailSQL)
}

const existingSQL = `
SELECT ` + eventColumns + `
FROM {event} AS e
WHERE e.event_id IN (SELECT value FROM json_each(?1))`

// Existing returns the stored events of these ids.
func (s *Store) Existing(ctx context.Context, tx store.SQLTx, ids []string) ([]waybill.Event, error) {
	rows, err := tx.QueryContext(ctx, s.text(existingSQL), jsonTexts(ids))
	if err != nil {
		return nil, s.failed("read existing events", "", err)
	}
	defer rows.Close()
	var events []waybill.Event
	for rows.Next() {
		var e eventScan
		if err := rows.Scan(e.targets()...); err != nil {
			return nil, s.failed("read existing events", "", err)
		}
		e.finish()
		events = append(events, e.event)
	}
	return events, s.failed("read existing events", "", rows.Err())
}
