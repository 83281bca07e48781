package sqlite

import (
	"context"
	"time"
)

const horizonSQL = `
SELECT COALESCE((SELECT horizon FROM {horizon} WHERE consumer_group = ?1), '')`

// Horizon returns what the group may have forgotten. BEGIN IMMEDIATE keeps it so.
func (t *inboxTx) Horizon(ctx context.Context, group string) (time.Time, error) {
	var at string
	err := t.scan(ctx, horizonSQL, []any{group}, &at)
	if err != nil || at == "" {
		return time.Time{}, t.failed("horizon", group, err)
	}
	return parseTime(at), nil
}

const moveHorizonSQL = `
INSERT INTO {horizon} (consumer_group, horizon) VALUES (?1, strftime({iso}, 'now', ?2))
ON CONFLICT (consumer_group) DO UPDATE SET horizon = max(horizon, excluded.horizon)`
