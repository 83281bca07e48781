package otelwaybill

import "time"

// now dates the end of a span that is told of afterwards.
func now() time.Time { return time.Now() }
