package sqlite

import (
	"context"
	"time"

	"github.com/waybillhq/waybill/store"
)

const unsentDeadSQL = `
SELECT ` + heldColumns + `
FROM {held} INDEXED BY {held_state}
WHERE consumer_group = ?1 AND state = 'DEAD' AND dlt_sent_at IS NULL AND dlt_note = ''
  AND COALESCE(last_failed_at, held_at) <= strftime({iso}, 'now', ?2) AND seq > ?3
ORDER BY seq
LIMIT ?4`

// UnsentDead returns events whose dead letter is due.
func (s *Store) UnsentDead(ctx context.Context, group string, age time.Duration, above int64, limit int) ([]store.Held, error) {
	rows, err := s.query(ctx, unsentDeadSQL, group, after(-age), above, noLimit(limit))
	found, err := scanHeld(rows, err)
	return found, s.failed("unsent dead", group, err)
}

const noteDeadLetterSQL = `
UPDATE {held} SET dlt_sent_at = CASE ?4 WHEN '' THEN {now} END, dlt_note = ?4
WHERE consumer_group = ?1 AND event_id = ?2 AND state = 'DEAD' AND COALESCE(last_failed_at, '') = ?3`

// NoteDeadLetter notes what became of a dead letter.
func (s *Store) NoteDeadLetter(ctx context.Context, held store.Held, note string) error {
	failedAt := ""
	if !held.LastFailedAt.IsZero() {
		failedAt = formatTime(held.LastFailedAt)
	}
	return s.write(ctx, "note dead letter", true, func(w writing) error {
		_, err := w.exec(ctx, noteDeadLetterSQL, held.Group, held.Event.ID, failedAt, note)
		return err
	})
}
