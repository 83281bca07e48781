package cdc

import (
	"net"
	"sync/atomic"
	"time"
)

// GatherConn is a connection that a log comes over. Transactions that come one by
// one are read together: after a read that has emptied the connection it is left
// alone for a few milliseconds, since waking up costs more than reading. What
// comes alone, or faster than it is read, does not wait.
//
// It belongs below TLS, whose reads end with a record though more has come.
type GatherConn struct {
	net.Conn
	gathers atomic.Bool
	rests   bool // before the next read
}

const (
	gather = 4 * time.Millisecond
	// littleRead is what more than a trickle brings in one read, in bytes.
	littleRead = 16 << 10
)

// Gather begins to gather, once the log comes.
func (c *GatherConn) Gather() { c.gathers.Store(true) }

// Read reads, and is called by one goroutine at a time.
func (c *GatherConn) Read(to []byte) (int, error) {
	if c.rests {
		pause(gather)
	}
	n, err := c.Conn.Read(to)
	c.rests = n < min(len(to), littleRead) && c.gathers.Load()
	return n, err
}
