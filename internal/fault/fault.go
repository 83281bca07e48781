// Package fault lets a test stop this process at a named moment.
//
// A process started with WAYBILL_FAULT="name" or "name:n" creates the file
// named by WAYBILL_FAULT_FILE when it reaches [Point] of that name for the n-th
// time (default: the first), and then stops as by SIGSTOP. The parent that set
// the variables sees the file and sends SIGKILL, or SIGCONT to let it go on, and
// again until it does: it may not have stopped yet.
// Without the variables a point costs one comparison.
package fault

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
)

// Environment variables read once at start.
const (
	EnvPoint = "WAYBILL_FAULT"
	EnvFile  = "WAYBILL_FAULT_FILE"
)

var (
	armed  = os.Getenv(EnvPoint)
	target string
	left   atomic.Int64
)

func init() {
	if armed == "" {
		return
	}
	name, count, found := strings.Cut(armed, ":")
	target = name
	n := 1
	if found {
		n, _ = strconv.Atoi(count)
	}
	left.Store(int64(max(n, 1)))
}

// Armed reports whether this process was told to stop at the point.
func Armed(name string) bool { return armed != "" && name == target }

// Point marks a moment at which a test may want to stop the process.
func Point(name string) {
	if armed == "" || name != target || left.Add(-1) != 0 {
		return
	}
	if file := os.Getenv(EnvFile); file != "" {
		_ = os.WriteFile(file, []byte(name+"\n"), 0o600)
	}
	stop()
}
