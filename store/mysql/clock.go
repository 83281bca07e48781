package mysql

import (
	"context"
	"database/sql/driver"
	"fmt"
	"math/rand/v2"
	"time"
)

// now is the local clock, which paces what is not urgent.
func now() time.Time { return time.Now() }

// pause waits about base, doubled for each attempt before, or until ctx ends.
func pause(ctx context.Context, base time.Duration, attempt int) error {
	wait := base << min(attempt, 6)
	timer := time.NewTimer(wait/2 + rand.N(wait))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// killTimeout bounds the request to end an aborted statement.
const killTimeout = 2 * time.Second

// timeLayout is how times go to the database, and come back as text.
const timeLayout = "2006-01-02 15:04:05.999999"

// moment receives a DATETIME in UTC, from a connection that makes times of it
// or from one that does not.
type moment struct{ time.Time }

// Scan implements sql.Scanner. The location of a time that the driver made is
// only what the connection was configured with.
func (m *moment) Scan(value any) error {
	switch v := value.(type) {
	case nil:
		m.Time = time.Time{}
		return nil
	case time.Time:
		m.Time = time.Date(v.Year(), v.Month(), v.Day(), v.Hour(), v.Minute(), v.Second(), v.Nanosecond(), time.UTC)
		return nil
	case []byte:
		return m.parse(string(v))
	case string:
		return m.parse(v)
	}
	return fmt.Errorf("a time came as %T", value)
}

func (m *moment) parse(text string) (err error) {
	m.Time, err = time.Parse(timeLayout, text)
	return err
}

var _ driver.Valuer = moment{}

// Value implements driver.Valuer, as text, which no session's time zone shifts.
func (m moment) Value() (driver.Value, error) { return m.UTC().Format(timeLayout), nil }

// micros is how durations go to the database.
func micros(d time.Duration) int64 { return d.Microseconds() }
