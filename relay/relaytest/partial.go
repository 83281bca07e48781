package relaytest

import (
	"testing"
	"time"
)

func testPartialOutages[TX any](t *testing.T, h Harness[TX]) {
	each(t, h, "one failing statement beside good ones does not flood the log", func(e *env[TX]) {
		e.relay(nil)
		e.store.away(true, "fetch")
		span := e.span(time.Minute)
		e.pause(span)
		most := 2 + int(span/(10*time.Second))
		for _, text := range []string{"database unavailable", "database available again"} {
			if n := e.log.count(text); n > most {
				t.Errorf("%d log lines %q in %v, want at most %d", n, text, span, most)
			}
		}
		e.store.away(false, "fetch")
		e.append(event("k", 1))
		e.settled()
	})
}
