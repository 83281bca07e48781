// Package gate stands between clients and a server that is not ours to stop:
// while the gate is shut, the server is away for those who go through it, and
// for nobody else.
package gate

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
)

// Env is the variable with the door, as [Gate.Door] returns it, that clients
// of a child process have to use.
const Env = "WAYBILL_DEMO_GATE"

// Gate is open at first.
type Gate struct {
	word string // that callers at the door must know

	mu        sync.Mutex
	shut      bool
	closed    bool
	listeners []net.Listener
	conns     map[net.Conn]struct{}
	running   sync.WaitGroup
}

// New returns an open gate without a way in.
func New() *Gate {
	return &Gate{word: rand.Text(), conns: make(map[net.Conn]struct{})}
}

// Forward returns an address on loopback that stands for the target.
func (g *Gate) Forward(ctx context.Context, target string) (string, error) {
	return g.listen(ctx, func(net.Conn) (string, error) { return target, nil }, nil)
}

// Door returns what [Through] needs to reach any target: a cluster's servers
// name each other, so one fixed target would not do.
func (g *Gate) Door(ctx context.Context) (string, error) {
	address, err := g.listen(ctx, g.ask, []byte{admitted})
	return address + "/" + g.word, err
}

const (
	admitted = '+'
	maxLine  = 512
)

// ask reads where a caller at the door wants to go. Byte by byte, because what
// follows the line is not for the gate.
func (g *Gate) ask(conn net.Conn) (string, error) {
	var line []byte
	for one := make([]byte, 1); len(line) < maxLine; line = append(line, one[0]) {
		if _, err := io.ReadFull(conn, one); err != nil {
			return "", err
		}
		if one[0] == '\n' {
			break
		}
	}
	word, target, _ := strings.Cut(string(line), " ")
	if subtle.ConstantTimeCompare([]byte(word), []byte(g.word)) == 0 {
		return "", errors.New("a stranger is at the door")
	}
	return target, nil
}

func (g *Gate) listen(ctx context.Context, whither func(net.Conn) (string, error), welcome []byte) (string, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	g.mu.Lock()
	g.listeners = append(g.listeners, l)
	g.mu.Unlock()
	g.running.Go(func() {
		for {
			conn, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil && g.admit(conn) {
				g.running.Go(func() { g.carry(conn, whither, welcome) })
			}
		}
	})
	return l.Addr().String(), nil
}

// admit remembers a connection, or ends it when the gate is shut.
func (g *Gate) admit(conn net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut || g.closed {
		_ = conn.Close()
		return false
	}
	g.conns[conn] = struct{}{}
	return true
}

func (g *Gate) leave(conn net.Conn) {
	_ = conn.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.conns, conn)
}

func (g *Gate) carry(client net.Conn, whither func(net.Conn) (string, error), welcome []byte) {
	defer g.leave(client)
	target, err := whither(client)
	if err != nil {
		return
	}
	server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", target)
	if err != nil || !g.admit(server) {
		return
	}
	defer g.leave(server)
	if _, err := client.Write(welcome); err != nil {
		return
	}
	var both sync.WaitGroup
	pipe := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		_, _ = to.Close(), from.Close()
	}
	both.Go(func() { pipe(server, client) })
	both.Go(func() { pipe(client, server) })
	both.Wait()
}

// Shut ends what goes through and lets nothing in until Open. It returns
// whether anybody went through.
func (g *Gate) Shut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	used := len(g.conns) > 0
	g.shut = true
	g.cut()
	return used
}

func (g *Gate) cut() {
	for conn := range g.conns {
		_ = conn.Close()
	}
}

// Open lets clients in again.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = false
}

// Close ends everything and returns when it has ended.
func (g *Gate) Close() error {
	var err error
	g.mu.Lock()
	g.closed = true
	for _, l := range g.listeners {
		err = errors.Join(err, l.Close())
	}
	g.listeners = nil
	g.cut()
	g.mu.Unlock()
	g.running.Wait()
	return err
}

// Through returns a way to connect through the door of a gate.
func Through(door string) func(ctx context.Context, network, address string) (net.Conn, error) {
	at, word, _ := strings.Cut(door, "/")
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, network, at)
		if err != nil {
			return nil, err
		}
		// Whoever stops waiting closes the connection, which ends the question.
		watching := context.AfterFunc(ctx, func() { _ = conn.Close() })
		answer := make([]byte, 1)
		if _, err = fmt.Fprintf(conn, "%s %s\n", word, address); err == nil {
			_, err = io.ReadFull(conn, answer)
		}
		if !watching() && err == nil {
			err = context.Cause(ctx)
		}
		if err == nil && answer[0] != admitted {
			err = errors.New("no gate is there")
		}
		if err != nil {
			_ = conn.Close()
			return nil, fmt.Errorf("connect to %s through the gate: %w", address, err)
		}
		return conn, nil
	}
}
