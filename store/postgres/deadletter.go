package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill/store"
)

const unsentDeadSQL = `
SELECT ` + heldColumns + `
FROM {held}
WHERE consumer_group = $1 AND state = 'DEAD' AND dlt_sent_at IS NULL AND dlt_note = ''
  AND COALESCE(last_failed_at, held_at) <= statement_timestamp() - $2::bigint * interval '1 microsecond' AND seq > $3
ORDER BY seq
LIMIT $4`

// UnsentDead returns events whose dead letter is due.
func (s *Store) UnsentDead(ctx context.Context, group string, age time.Duration, after int64, limit int) ([]store.Held, error) {
	rows, err := s.pool.Query(ctx, s.sql(unsentDeadSQL), s.planned, group, micros(age), after, atMost(limit))
	if err != nil {
		return nil, failure("unsent dead", group, err)
	}
	held, err := pgx.CollectRows(rows, scanHeld)
	return held, failure("unsent dead", group, err)
}

const noteDeadLetterSQL = `
UPDATE {held} SET dlt_sent_at = CASE WHEN $4::text = '' THEN clock_timestamp() END, dlt_note = $4::text
WHERE consumer_group = $1 AND event_id = $2 AND state = 'DEAD' AND last_failed_at IS NOT DISTINCT FROM $3::timestamptz`

// NoteDeadLetter notes what became of a dead letter.
func (s *Store) NoteDeadLetter(ctx context.Context, held store.Held, note string) error {
	var failedAt *time.Time
	if !held.LastFailedAt.IsZero() {
		failedAt = &held.LastFailedAt
	}
	_, err := s.pool.Exec(ctx, s.sql(noteDeadLetterSQL), s.planned, held.Group, encodeText(held.Event.ID), failedAt, storable(note))
	return failure("note dead letter", held.Event.ID, err)
}
