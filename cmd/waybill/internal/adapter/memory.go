package adapter

import (
	"os"
	"runtime/debug"
)

// leanPercent is how much garbage a relay's process gathers for each byte that it
// holds, in percent, where Go's default is 100. The little that a relay holds is
// renewed all the time: this takes a fifth off its memory, for two to four
// microseconds of processor time an event ("waybill bench relay").
const leanPercent = 40

// KeepLean has the garbage collector run early, for a process that runs a relay and
// little else, unless its surroundings say how it should.
func KeepLean() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(leanPercent)
	}
}
