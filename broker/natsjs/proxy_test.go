package natsjs_test

import (
	"errors"
	"net"
	"sync"
	"testing"
)

// proxy stands between clients and a server, and can keep every byte back.
type proxy struct {
	listener net.Listener
	target   string
	gate     sync.RWMutex // read-locked for each write

	mu    sync.Mutex
	conns map[net.Conn]struct{} // of clients
}

func startProxy(t testing.TB, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: target, conns: make(map[net.Conn]struct{})}
	t.Cleanup(func() { _ = l.Close() })
	go p.serve()
	return p
}

func (p *proxy) url() string { return "nats://" + p.listener.Addr().String() }

// freeze keeps all bytes back until thaw.
func (p *proxy) freeze(testing.TB) (thaw func()) {
	p.gate.Lock()
	return p.gate.Unlock
}

// sever cuts the connections that there are. New ones are served.
func (p *proxy) sever() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		_ = conn.Close()
	}
}

func (p *proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			go p.connect(client)
		}
	}
}

func (p *proxy) connect(client net.Conn) {
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = client.Close()
		return
	}
	p.mu.Lock()
	p.conns[client] = struct{}{}
	p.mu.Unlock()
	go p.copy(client, server)
	p.copy(server, client)
	p.mu.Lock()
	delete(p.conns, client)
	p.mu.Unlock()
}

func (p *proxy) copy(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			p.gate.RLock()
			_, writeErr := to.Write(buffer[:n])
			p.gate.RUnlock()
			if writeErr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
