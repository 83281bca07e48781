package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strings"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"

	driver "modernc.org/sqlite"
)

var (
	// errHeld says that the one writing connection did not come free.
	errHeld = errors.New("a transaction of this process holds the writing connection")
	// errRolledBack refuses statements of a transaction that SQLite has ended.
	errRolledBack = errors.New("SQLite rolled the transaction back after an earlier failure")
)

// failed wraps an error with what was attempted and, where one is known, advice.
func (s *Store) failed(op, key string, err error) error {
	if err == nil {
		return nil
	}
	var wrapped *waybill.Error
	if errors.As(err, &wrapped) || errors.Is(err, store.ErrStale) {
		return err
	}
	if key == "" {
		key = s.path
	}
	if strings.Contains(err.Error(), "no such table") {
		err = fmt.Errorf("%w: %w", store.ErrNoSchema, err)
	}
	return &waybill.Error{Op: op, Key: key, Err: err, Hint: advice(err)}
}

func advice(err error) string {
	if errors.Is(err, errHeld) {
		return "end each transaction of DB before the next one, or before a call of the store that writes; raise BusyTimeout for long ones"
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return ""
	}
	switch code(err) {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return "another connection kept the write lock for too long, or a transaction that began by reading met another writer: keep writing transactions short, begin them with BEGIN IMMEDIATE, or raise BusyTimeout"
	case sqlite3.SQLITE_READONLY:
		return "the database file, its directory, or the DSN (mode=ro) does not allow writing"
	case sqlite3.SQLITE_FULL:
		return "the disk is full, or the database has reached max_page_count: free space"
	case sqlite3.SQLITE_IOERR:
		return "the disk failed or is full: look at the system's log and at the free space"
	case sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH:
		return "the directory must exist, and this user must be able to write in it: SQLite keeps a -wal and a -shm file beside the database"
	case sqlite3.SQLITE_NOTADB:
		return "the file is not a SQLite database, or is encrypted"
	case sqlite3.SQLITE_CORRUPT:
		return "the database is damaged: run PRAGMA integrity_check, and restore it from a copy"
	}
	if errors.Is(err, store.ErrNoSchema) || strings.Contains(err.Error(), "no such index") {
		return "create the tables with Migrate, and check the configured names"
	}
	return store.SchemaHint(err)
}

func isBusy(err error) bool {
	c := code(err)
	return c == sqlite3.SQLITE_BUSY || c == sqlite3.SQLITE_LOCKED
}

// code returns the primary result code of SQLite, or 0.
func code(err error) int {
	var failure *driver.Error
	if errors.As(err, &failure) {
		return failure.Code() & 0xff
	}
	return 0
}
