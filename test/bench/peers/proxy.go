package main

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// proxy passes connections on and holds back every answer for a time, as a
// broker does that is some way off. Answers that are on their way do not wait for
// one another.
type proxy struct {
	listener net.Listener
	upstream string
	delay    time.Duration
	all      sync.WaitGroup
	stop     context.CancelFunc
}

func newProxy(ctx context.Context, address, upstream string, delay time.Duration) (*proxy, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &proxy{listener: listener, upstream: upstream, delay: delay, stop: cancel}
	p.all.Go(func() { p.accept(ctx) })
	return p, nil
}

func (p *proxy) close() {
	p.stop()
	_ = p.listener.Close()
	p.all.Wait()
}

func (p *proxy) accept(ctx context.Context) {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.all.Go(func() { p.serve(ctx, client) })
	}
}

func (p *proxy) serve(ctx context.Context, client net.Conn) {
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.upstream)
	if err != nil {
		_ = client.Close()
		return
	}
	end := func() { _ = errors.Join(client.Close(), server.Close()) }
	defer context.AfterFunc(ctx, end)()
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(server, client); end() })
	both.Go(func() { p.answer(client, server); end() })
	both.Wait()
}

// piece is what was read at once, and when it may go on.
type piece struct {
	data []byte
	due  time.Time
}

func (p *proxy) answer(client io.Writer, server io.Reader) {
	pieces := make(chan piece, 1024)
	var writing sync.WaitGroup
	writing.Go(func() {
		failed := false
		for one := range pieces {
			if !failed {
				pause(context.Background(), one.due.Sub(now()))
				_, err := client.Write(one.data)
				failed = err != nil
			}
		}
	})
	for {
		buffer := make([]byte, 32<<10)
		n, err := server.Read(buffer)
		if n > 0 {
			pieces <- piece{buffer[:n], now().Add(p.delay)}
		}
		if err != nil {
			break
		}
	}
	close(pieces)
	writing.Wait()
}
