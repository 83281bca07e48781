package kafka_test

import (
	"context"
	"net"
	"sync"
	"syscall"
	"testing"
)

// wire opens connections that a test can cut and keep from answering.
type wire struct {
	mu      sync.Mutex
	cut     bool
	thawed  chan struct{} // closed while answers pass
	started map[*wireConn]struct{}
}

func newWire() *wire {
	w := &wire{thawed: make(chan struct{}), started: make(map[*wireConn]struct{})}
	close(w.thawed)
	return w
}

func (w *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	cut := w.cut
	w.mu.Unlock()
	if cut {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &wireConn{Conn: conn, wire: w, closed: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		_ = conn.Close()
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	w.started[c] = struct{}{}
	return c, nil
}

func (w *wire) stop(testing.TB) {
	w.mu.Lock()
	w.cut = true
	all := w.started
	w.started = make(map[*wireConn]struct{})
	w.mu.Unlock()
	for c := range all {
		_ = c.Close()
	}
}

func (w *wire) start(testing.TB) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = false
}

func (w *wire) freeze(testing.TB) func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	thawed := make(chan struct{})
	w.thawed = thawed
	return func() { close(thawed) }
}

type wireConn struct {
	net.Conn
	wire   *wire
	once   sync.Once
	closed chan struct{}
}

func (c *wireConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.wire.mu.Lock()
	thawed := c.wire.thawed
	c.wire.mu.Unlock()
	select {
	case <-thawed:
	case <-c.closed:
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *wireConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	c.wire.mu.Lock()
	delete(c.wire.started, c)
	c.wire.mu.Unlock()
	return c.Conn.Close()
}
