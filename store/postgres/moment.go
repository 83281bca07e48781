package postgres

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// A moment is a time as plain SQL may have written it. The database knows
// infinity and years that neither Go nor a wire format can say; they end at the
// first and the last that both can, so that one odd row does not stop its lane.
type moment struct {
	time.Time
	set bool
}

var (
	firstMoment = time.Date(1, 1, 1, 0, 0, 0, 1000, time.UTC) // not Go's zero time, which means none
	lastMoment  = time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)
)

// ScanTimestamptz implements [pgtype.TimestamptzScanner].
func (m *moment) ScanTimestamptz(v pgtype.Timestamptz) error {
	m.set = v.Valid
	switch t := v.Time.UTC(); {
	case !v.Valid:
		m.Time = time.Time{}
	case v.InfinityModifier == pgtype.NegativeInfinity, v.InfinityModifier == pgtype.Finite && t.Before(firstMoment):
		m.Time = firstMoment
	case v.InfinityModifier == pgtype.Infinity, t.After(lastMoment):
		m.Time = lastMoment
	default:
		m.Time = t
	}
	return nil
}

// Scan implements [sql.Scanner], for transactions of database/sql.
func (m *moment) Scan(source any) error {
	if text, ok := source.([]byte); ok { // how some drivers give infinity
		source = string(text)
	}
	var v pgtype.Timestamptz
	if err := v.Scan(source); err != nil {
		return err
	}
	return m.ScanTimestamptz(v)
}
