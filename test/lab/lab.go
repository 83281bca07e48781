package lab

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill/internal/testenv"
)

var databases atomic.Int64

// Postgres15 makes an empty database on the PostgreSQL 15 server, returns its
// DSN as a URL, and drops it after the test.
func Postgres15(t testing.TB) string {
	t.Helper()
	admin := testenv.Postgres15(t)
	name := fmt.Sprintf("waybill_lab_%d_%d", os.Getpid(), databases.Add(1))
	execute := func(ctx context.Context, statement string) {
		conn, err := pgx.Connect(ctx, admin)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(ctx) }()
		if _, err := conn.Exec(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	execute(t.Context(), "CREATE DATABASE "+name)
	t.Cleanup(func() { execute(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)") })
	own, err := url.Parse(admin)
	if err != nil {
		t.Fatal(err)
	}
	own.Path = "/" + name
	return own.String()
}

// Output keeps what is written to it, by a process or a logger. It may be read
// meanwhile.
type Output struct {
	mu  sync.Mutex
	all bytes.Buffer
}

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.Write(p)
}

// String returns all that was written.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.String()
}
