package postgres

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
)

// ReadInBulk lets connections of the config read large results in few pieces.
//
// The server sends a result in pieces of 8 KiB, and a reader that is faster is
// woken for each of them, which costs both sides more than the rows do. Such a
// reader rests for a millisecond while more is sure to come. Results that fit into
// one piece are read as before. It is for connections that mostly read ranges, as
// those of reconciliations do.
//
// A connection with TLS stays as it is: it is read record by record, each of which
// looks like a full piece, and the driver binds its login to the channel only where
// it sees the TLS connection itself.
//
//	config, err := pgx.ParseConfig(dsn)
//	...
//	postgres.ReadInBulk(&config.Config)
//	db := stdlib.OpenDB(*config)
func ReadInBulk(config *pgconn.Config) {
	before := config.AfterNetConnect
	config.AfterNetConnect = func(ctx context.Context, config *pgconn.Config, conn net.Conn) (net.Conn, error) {
		if before != nil {
			var err error
			if conn, err = before(ctx, config, conn); err != nil {
				return conn, err
			}
		}
		if _, encrypted := conn.(*tls.Conn); encrypted {
			return conn, nil
		}
		return &bulkConn{Conn: conn, in: bufio.NewReaderSize(&restingReader{in: conn, rest: rest}, bulkBuffer)}, nil
	}
}

const (
	sendBuffer = 8 << 10  // of the server, which sends when it is full
	bulkBuffer = 64 << 10 // of a connection
)

type bulkConn struct {
	net.Conn
	in *bufio.Reader
}

func (c *bulkConn) Read(p []byte) (int, error) { return c.in.Read(p) }

// restingReader rests before it reads on where the last piece was a full one.
type restingReader struct {
	in   io.Reader
	rest func()
	more bool
}

func (r *restingReader) Read(p []byte) (int, error) {
	if r.more {
		r.rest()
	}
	n, err := r.in.Read(p)
	r.more = n > 0 && n%sendBuffer == 0 && n < len(p)
	return n, err
}
