package natsjs

import "time"

// until is for deadlines that the client library wants as durations.
func until(deadline time.Time) time.Duration { return time.Until(deadline) }
