package testenv

import (
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
)

// Ports below those that systems lend to clients: a server that is stopped must
// find its port free when it comes back, and a client that calls it meanwhile
// could be lent that very port.
const (
	lowestPort  = 21000
	highestPort = 31900
)

// Test binaries run side by side. Each begins elsewhere.
const portsOfProcess = 100

var nextPort atomic.Int64

// FreePorts returns the first of n ports in a row on which nobody listens.
func FreePorts(tb testing.TB, n int) int {
	tb.Helper()
	const all = highestPort - lowestPort
	for range all {
		at := int64(os.Getpid()%(all/portsOfProcess)*portsOfProcess) + nextPort.Add(int64(n)) - int64(n)
		if first := lowestPort + int(at%all); free(tb, first, n) {
			return first
		}
	}
	tb.Fatalf("there are no %d free ports in a row", n)
	return 0
}

func free(tb testing.TB, first, n int) bool {
	tb.Helper()
	for port := first; port < first+n; port++ {
		l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return false
		}
		_ = l.Close()
	}
	return true
}
