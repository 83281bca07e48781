package main

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill/internal/testenv"
)

// TestArms drains a few events by each arm that needs no other program.
func TestArms(t *testing.T) {
	o := &options{
		store: testenv.Postgres15(t), kafka: testenv.Kafka4(t), runs: 1, events: 200, slow: 4, keys: 10, payload: 250,
		arms: []string{armStatus, armOneByOne, armWatermill},
	}
	r, err := drain(t.Context(), o, o.kafka)
	if err != nil {
		t.Fatal(err)
	}
	for _, arm := range o.arms {
		if !strings.Contains(r.text, "\n"+arm+" ") {
			t.Errorf("the report has nothing of %s:\n%s", arm, r.text)
		}
	}
}

// TestProxy wants every answer held back, and answers on their way at once.
func TestProxy(t *testing.T) {
	const delay = 50 * time.Millisecond
	server, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	go func() {
		conn, err := server.Accept()
		if err == nil {
			_, _ = io.Copy(conn, conn)
			_ = conn.Close()
		}
	}()
	p, err := newProxy(t.Context(), "127.0.0.1:0", server.Addr().String(), delay)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", p.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	began := now()
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if passed := now().Sub(began); passed < delay {
		t.Errorf("the answer came after %v, want at least %v", passed, delay)
	}
	text := strings.Repeat("many bytes ", 100_000)
	go func() { _, _ = io.WriteString(conn, text) }()
	got := make([]byte, len(text))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != text {
		t.Errorf("the proxy changed what it passed on: %v", err)
	}
}

func TestFiguresAreMedians(t *testing.T) {
	if got := median([]float64{9, 1, 5}); got != 5 {
		t.Errorf("median: got %v, want 5", got)
	}
	if got := quantile([]float64{1, 2, 3, 4}, 0.5); got != 2 {
		t.Errorf("quantile: got %v, want 2", got)
	}
	if got := spread([]float64{2, 1, 3}, "%.0f"); got != "1..3" {
		t.Errorf("spread: got %q, want 1..3", got)
	}
}

// TestProcessCPU compares what the kernel says of this process in two places.
func TestProcessCPU(t *testing.T) {
	if _, err := os.Stat(filepath.Join(procfs, "self", "stat")); err != nil {
		t.Skip("the system does not tell of processes: " + err.Error())
	}
	ctx, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer stop()
	for n := 0; ctx.Err() == nil; n++ { // use the processor
	}
	got, err := processCPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if own := ownCPU(); got <= 0 || got > own+0.1 || got < own-0.1 {
		t.Errorf("processor time: got %.2f s, want about %.2f s", got, own)
	}
}
