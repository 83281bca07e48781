package reconcile

import (
	"strconv"
	"time"
)

// valueParam returns a value as a column of another database takes it.
func (d Dialect) valueParam(v Value) any {
	switch v.Kind() {
	case KindNull:
		return nil
	case KindBool:
		if d == Postgres {
			return v.text == "true"
		}
		return map[string]int64{"true": 1, "false": 0}[v.text]
	case KindNumber:
		if n, err := strconv.ParseInt(v.raw, 10, 64); err == nil {
			return n
		}
		return v.text
	case KindBinary:
		return []byte(v.text)
	case KindUUID:
		return v.text
	case KindTime:
		if d != SQLite {
			return v.at
		}
		if v.raw == "" {
			return v.at.Format(time.RFC3339Nano)
		}
	}
	return v.raw
}

// timeParam returns a time as a column takes it. SQLite has no times: it gets
// text that sorts as the time does.
func (d Dialect) timeParam(at time.Time) any {
	if d == SQLite {
		return at.UTC().Format("2006-01-02T15:04:05.000Z")
	}
	return at.UTC()
}

// storedParam returns a part of a key as it is kept in its column.
func (d Dialect) storedParam(part any, kind KeyKind, stored Stored) any {
	if text, ok := part.(string); ok && stored != StoredBinary {
		return text
	}
	if n, ok := part.(int64); ok && stored == StoredText {
		return strconv.FormatInt(n, 10)
	}
	return d.param(part, kind, stored)
}
