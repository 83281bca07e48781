package outage

import (
	"io"
	"net"
	"sync"
	"testing"
)

// A wire is a TCP connection to a server that can be cut.
type wire struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	down  bool
	conns map[net.Conn]bool
}

func newWire(t *testing.T, target string) *wire {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: listener, target: target, conns: make(map[net.Conn]bool)}
	t.Cleanup(func() {
		_ = listener.Close()
		w.cut(true)
	})
	go w.serve()
	return w
}

func (w *wire) address() string { return w.listener.Addr().String() }

// cut ends every connection and, while down, refuses new ones.
func (w *wire) cut(down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = down
	for conn := range w.conns {
		_ = conn.Close()
	}
	clear(w.conns)
}

func (w *wire) serve() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", w.target)
		if err != nil || !w.keep(client, server) {
			_ = client.Close()
			continue
		}
		go w.copy(server, client)
		go w.copy(client, server)
	}
}

func (w *wire) keep(conns ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, conn := range conns {
		if w.down {
			_ = conn.Close()
			continue
		}
		w.conns[conn] = true
	}
	return !w.down
}

func (w *wire) copy(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
	_ = from.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, to)
	delete(w.conns, from)
}
