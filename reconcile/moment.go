package reconcile

import (
	"strconv"
	"strings"
	"time"
)

// maxDigits is the finest precision of a time that is kept.
const maxDigits = 9

// layouts are the texts that a time is read from; a fraction is accepted after
// the seconds of each. Without a zone a time is UTC.
var layouts = []string{
	"2006-01-02T15:04:05Z07:00",
	"2006-01-02 15:04:05Z07:00",
	"2006-01-02 15:04:05Z07",
	"2006-01-02T15:04:05Z0700",
	"2006-01-02 15:04:05 -0700 MST",
	"2006-01-02 15:04:05 -0700",
	"2006-01-02T15:04:05",
	"2006-01-02 15:04:05",
	"2006-01-02T15:04Z07:00",
	"2006-01-02T15:04",
	"2006-01-02 15:04",
	"2006-01-02",
}

// parseTime reads a time from text: the layouts above, or a number of seconds,
// milli-, micro- or nanoseconds since 1970, told apart by their size.
func parseTime(text string) (time.Time, bool) {
	text = strings.TrimSpace(text)
	for _, layout := range layouts {
		if at, err := time.Parse(layout, text); err == nil {
			return at.UTC(), true
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil || n < 0:
		return time.Time{}, false
	case n < 1e11:
		return time.Unix(n, 0).UTC(), true
	case n < 1e14:
		return time.UnixMilli(n).UTC(), true
	case n < 1e17:
		return time.UnixMicro(n).UTC(), true
	}
	return time.Unix(0, n).UTC(), true
}

func timeValue(at time.Time, digits int) Value {
	return Value{kind: KindTime, at: at.UTC(), digits: digits}
}

// sameInstant compares two times at the coarser of their precisions. Some
// databases round what they store and others cut it off, so both count.
func sameInstant(a, b Value) bool {
	if a.at.Equal(b.at) {
		return true
	}
	if a.digits < b.digits {
		a, b = b, a
	}
	unit := unitOf(b.digits)
	coarse := b.at.Truncate(unit)
	return a.at.Truncate(unit).Equal(coarse) || a.at.Round(unit).Equal(coarse)
}

func unitOf(digits int) time.Duration {
	unit := time.Second
	for range digits {
		unit /= 10
	}
	return unit
}
