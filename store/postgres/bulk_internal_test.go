package postgres

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// pieces is a connection on which each read finds one of them.
type pieces []int

func (p *pieces) Read(into []byte) (int, error) {
	if len(*p) == 0 {
		return 0, io.EOF
	}
	n := (*p)[0]
	*p = (*p)[1:]
	for i := range into[:n] {
		into[i] = byte(n)
	}
	return n, nil
}

func TestAReaderRestsWhileMoreIsSureToCome(t *testing.T) {
	in := pieces{100, sendBuffer, 3 * sendBuffer, 5000, 20, bulkBuffer, 7}
	var rested []int // pieces that were still to come
	r := bufio.NewReaderSize(&restingReader{in: &in, rest: func() { rested = append(rested, len(in)) }}, bulkBuffer)
	all, err := io.ReadAll(r)
	if want := 100 + 4*sendBuffer + 5000 + 20 + bulkBuffer + 7; err != nil || len(all) != want {
		t.Errorf("got %d bytes, %v, want %d", len(all), err, want)
	}
	// After a piece that is no full one, and where the buffer was full and more
	// lies there already, it reads on at once.
	if want := []int{5, 4}; !slices.Equal(rested, want) {
		t.Errorf("rested before pieces %v from the end, want %v", rested, want)
	}
}

func TestOnlyConnectionsWithoutTLSAreReadInBulk(t *testing.T) {
	plain, far := net.Pipe()
	defer func() { _, _ = plain.Close(), far.Close() }()
	encrypted := tls.Client(plain, &tls.Config{ServerName: "db", MinVersion: tls.VersionTLS12})
	var config pgconn.Config
	ReadInBulk(&config)
	if got, err := config.AfterNetConnect(t.Context(), &config, encrypted); err != nil || got != net.Conn(encrypted) {
		t.Errorf("a connection with TLS became %T, %v", got, err)
	}
	got, err := config.AfterNetConnect(t.Context(), &config, plain)
	if _, inBulk := got.(*bulkConn); err != nil || !inBulk {
		t.Errorf("a connection without TLS became %T, %v", got, err)
	}

	// What was hooked in before may be what makes it TLS.
	config = pgconn.Config{AfterNetConnect: func(context.Context, *pgconn.Config, net.Conn) (net.Conn, error) { return encrypted, nil }}
	ReadInBulk(&config)
	if got, err := config.AfterNetConnect(t.Context(), &config, plain); err != nil || got != net.Conn(encrypted) {
		t.Errorf("a connection that was given TLS became %T, %v", got, err)
	}
}
