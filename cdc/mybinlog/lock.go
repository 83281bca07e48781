package mybinlog

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/waybillhq/waybill/cdc"
)

const (
	lockSQL   = `SELECT GET_LOCK(?, 0)`
	unlockSQL = `SELECT RELEASE_LOCK(?)`
	holderSQL = `SELECT COALESCE(IS_USED_LOCK(?), 0)`
	whoSQL    = `SELECT host FROM information_schema.processlist WHERE id = ?`
	// The server ends the session, and frees the lock, when its process is frozen
	// or unreachable. Seconds.
	lockIdleSQL = `SET SESSION wait_timeout = 10`

	// lockCheck is how often the session is used, and lockPatience how long an
	// answer may take.
	lockCheck    = 2 * time.Second
	lockPatience = 5 * time.Second
)

// lockName is one for each source; the server has these locks in common for
// all databases, and limits their names to 64 characters.
func (s *Source) lockName() string {
	sum := sha256.Sum256([]byte(s.name))
	return "waybill cdc " + hex.EncodeToString(sum[:16])
}

// lock is the session that lets one process read at a time, as a replication
// slot does elsewhere.
type lock struct {
	source *Source
	conn   *sql.Conn
}

func (s *Source) lock(ctx context.Context) (*lock, error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, classify("connect", err)
	}
	l := &lock{s, conn}
	var got sql.NullInt64
	_, err = conn.ExecContext(ctx, lockIdleSQL)
	if err == nil {
		err = conn.QueryRowContext(ctx, lockSQL, s.lockName()).Scan(&got)
	}
	if err == nil && got.Int64 == 1 {
		return l, nil
	}
	l.drop()
	if err != nil {
		return nil, classify("take the lock of the log", err)
	}
	holder, err := s.holder(ctx)
	if err != nil {
		return nil, err
	}
	return nil, cdc.Busy(busyError(holder))
}

func busyError(holder string) error {
	if holder == "" {
		holder = "another process"
	}
	return fmt.Errorf("%s reads the log", holder)
}

// holder returns who has the lock; empty where nobody does.
func (s *Source) holder(ctx context.Context) (string, error) {
	var id int64
	if err := s.db.QueryRowContext(ctx, holderSQL, s.lockName()).Scan(&id); err != nil {
		return "", classify("look for the reader of the log", err)
	}
	if id == 0 {
		return "", nil
	}
	text := fmt.Sprintf("session %d", id)
	var host string
	if err := s.db.QueryRowContext(ctx, whoSQL, id).Scan(&host); err == nil {
		text += " of " + host
	}
	return text, nil
}

// keep uses the session until the context ends, and says when it is lost.
func (l *lock) keep(ctx context.Context, lost func(error)) {
	for sleep(ctx, lockCheck) == nil {
		asking, cancel := context.WithTimeout(ctx, lockPatience)
		err := l.conn.PingContext(asking)
		cancel()
		if err != nil && ctx.Err() == nil {
			lost(cdc.Refused(cdc.Unreachable, fmt.Errorf("the session that keeps other readers away is lost: %w", err), ""))
			return
		}
	}
}

// free gives the lock back. What the server cannot be told, it finds out when
// the connection ends.
func (l *lock) free(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	_, _ = l.conn.ExecContext(ctx, unlockSQL, l.source.lockName())
	l.drop()
}

// drop ends the session, which has settings of its own and must not go back to
// the pool.
func (l *lock) drop() {
	err := l.conn.Raw(func(any) error { return driver.ErrBadConn })
	if !errors.Is(err, sql.ErrConnDone) {
		_ = l.conn.Close()
	}
}
