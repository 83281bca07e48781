package lab

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
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

// MySQL makes an empty database on a MySQL or MariaDB server, given by the DSN
// of its administrator, returns its DSN, and drops it after the test.
func MySQL(t testing.TB, admin string) string {
	t.Helper()
	config, err := mysql.ParseDSN(admin)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("mysql", admin)
	if err != nil {
		t.Fatal(err)
	}
	config.DBName = fmt.Sprintf("waybill_lab_%d_%d", os.Getpid(), databases.Add(1))
	if _, err := db.ExecContext(t.Context(), "CREATE DATABASE "+config.DBName); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := db.ExecContext(context.Background(), "DROP DATABASE "+config.DBName); err != nil {
			t.Error(err)
		}
		_ = db.Close()
	})
	return config.FormatDSN()
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
