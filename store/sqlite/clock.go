package sqlite

import (
	"context"
	"fmt"
	"time"
)

// timeLayout is how strftime with the format of the lexicon writes a time.
const timeLayout = "2006-01-02T15:04:05.000Z"

// after returns the date modifier that adds d to the database's clock.
func after(d time.Duration) string {
	return fmt.Sprintf("%+.3f seconds", d.Seconds())
}

// formatTime cuts to the millisecond.
func formatTime(t time.Time) string { return t.UTC().Format(timeLayout) }

// parseTime reads a time as SQLite understands it, so that what plain SQL wrote
// is read as well. The table refuses what is no time; the zero time stands for
// the few forms, such as an hour 24, that only SQLite takes for one.
func parseTime(text string) time.Time {
	if t, err := time.Parse(timeLayout, text); err == nil {
		return t
	}
	for _, layout := range []string{
		time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999", "2006-01-02T15:04:05.999999999",
		"2006-01-02 15:04:05.999999999 Z07:00", "2006-01-02T15:04Z07:00", "2006-01-02 15:04Z07:00", "2006-01-02 15:04", "2006-01-02T15:04",
		"2006-01-02",
	} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC()
		}
	}
	return time.Time{}
}

// until returns how far moment lies ahead of now, both as the database wrote
// them; 0 for no moment.
func until(moment, now string) time.Duration {
	if moment == "" {
		return 0
	}
	return parseTime(moment).Sub(parseTime(now))
}

// retryBusy repeats do while the database is busy in a way that SQLite's own
// busy handler does not wait for, as two processes meet that both turn a new
// file to WAL mode.
func retryBusy(ctx context.Context, within time.Duration, do func() error) error {
	limit := time.NewTimer(within)
	defer limit.Stop()
	for {
		err := do()
		if err == nil || !isBusy(err) {
			return err
		}
		pause := time.NewTimer(10 * time.Millisecond)
		select {
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		case <-limit.C:
			pause.Stop()
			return err
		case <-pause.C:
		}
	}
}
