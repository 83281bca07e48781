package mysql

import (
	"context"
	"time"

	"github.com/waybillhq/waybill/store"
)

const unsentDeadSQL = `
SELECT ` + heldColumns + `
FROM {held} FORCE INDEX (state)
WHERE consumer_group = ? AND state = 'DEAD' AND dlt_sent_at IS NULL AND dlt_note = ''
  AND COALESCE(last_failed_at, held_at) <= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND AND seq > ?
ORDER BY seq
LIMIT ?`

// UnsentDead returns events whose dead letter is due.
func (s *Store) UnsentDead(ctx context.Context, group string, age time.Duration, after int64, limit int) ([]store.Held, error) {
	held, err := collect(ctx, s.pool(), scanHeld, unsentDeadSQL, group, micros(age), after, atMost(limit))
	return held, failure("unsent dead", group, err)
}

const noteDeadLetterSQL = `
UPDATE {held} SET dlt_sent_at = IF(? = '', UTC_TIMESTAMP(6), NULL), dlt_note = ?
WHERE consumer_group = ? AND event_id = ? AND state = 'DEAD' AND last_failed_at <=> ?`

// NoteDeadLetter notes what became of a dead letter.
func (s *Store) NoteDeadLetter(ctx context.Context, held store.Held, note string) error {
	var failedAt *time.Time
	if !held.LastFailedAt.IsZero() {
		failedAt = &held.LastFailedAt
	}
	note = fit(note, maxNoteBytes)
	_, err := s.pool().exec(ctx, noteDeadLetterSQL, note, note, held.Group, encodeText(held.Event.ID), failedAt)
	return failure("note dead letter", held.Event.ID, err)
}

const maxNoteBytes = 4096
