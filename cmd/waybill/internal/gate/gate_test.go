package gate

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
)

// echo is a server that says again what it hears.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn); _ = conn.Close() }()
		}
	}()
	return l.Addr().String()
}

func says(conn net.Conn) bool {
	answer := make([]byte, 2)
	if _, err := conn.Write([]byte("hi")); err != nil {
		return false
	}
	_, err := io.ReadFull(conn, answer)
	return err == nil && string(answer) == "hi"
}

func TestGate(t *testing.T) {
	server := echo(t)
	for name, dialer := range map[string]func(*testing.T, *Gate) func(context.Context) (net.Conn, error){
		"forward": func(t *testing.T, g *Gate) func(context.Context) (net.Conn, error) {
			address, err := g.Forward(t.Context(), server)
			if err != nil {
				t.Fatal(err)
			}
			return func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", address) }
		},
		"door": func(t *testing.T, g *Gate) func(context.Context) (net.Conn, error) {
			door, err := g.Door(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return func(ctx context.Context) (net.Conn, error) { return Through(door)(ctx, "tcp", server) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := New()
			defer func() { _ = g.Close() }()
			dial := dialer(t, g)
			before, err := dial(t.Context())
			if err != nil || !says(before) {
				t.Fatalf("an open gate lets nothing through: %v", err)
			}
			if !g.Shut() {
				t.Error("the gate does not know that it was used")
			}
			if says(before) {
				t.Error("a connection survived the shutting of the gate")
			}
			if conn, err := dial(t.Context()); err == nil && says(conn) {
				t.Error("a shut gate lets somebody in")
			}
			g.Open()
			after, err := dial(t.Context())
			if err != nil || !says(after) {
				t.Errorf("the gate does not open again: %v", err)
			}
			if err := g.Close(); err != nil || says(after) {
				t.Errorf("a closed gate carries on, or: %v", err)
			}
		})
	}
}

// The door leads anywhere, so it is only for those who were told of it.
func TestDoorRefusesStrangers(t *testing.T) {
	g := New()
	defer func() { _ = g.Close() }()
	door, err := g.Door(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	address, _, _ := strings.Cut(door, "/")
	if _, err := Through(address+"/guess")(t.Context(), "tcp", echo(t)); err == nil {
		t.Error("a stranger was let in")
	}
}
