package pgwal

import "time"

// now is for deadlines of the connection; what is told of the log bears the
// database's time.
func now() time.Time { return time.Now() }

func since(t time.Time) time.Duration { return time.Since(t) }

func until(t time.Time) time.Duration { return time.Until(t) }

// past is a deadline that is over.
var past = time.Unix(1, 0)

// wait waits for d, or until one of two channels has something or is closed.
func wait(d time.Duration, one, other <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-one:
	case <-other:
	}
}
