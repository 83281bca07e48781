package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// Config adjusts a [Store]. Its zero value, and nil, are right for most.
type Config struct {
	// Names are the tables' names. Schema is not used: the tables live in the
	// main database of the file.
	Names store.Names
	// NoTrigger makes Append write the queue row itself, for databases migrated
	// with [store.MigrateOptions.NoTrigger]. Where a trigger is installed all the
	// same, the row is written twice, to the same effect.
	NoTrigger bool
	// Head makes Append, with NoTrigger, write the heads itself; see
	// [store.MigrateOptions.Head]. A trigger does it unasked.
	Head bool
	// BusyTimeout is how long an operation waits for another writer, of this
	// process or of another one, before it fails. 0 means 5 s.
	BusyTimeout time.Duration
	// ReadConns is the greatest number of reading connections. 0 means 4.
	ReadConns int
}

// Store is a SQLite database as a store: [store.Outbox],
// [store.Appender] of [store.SQLTx], and [store.Consumer] of [*sql.Tx].
type Store struct {
	path    string
	config  Config
	lexicon lexicon
	texts   map[string]string // statement as in the catalogue -> with names

	writer *sql.DB // one connection
	reader *sql.DB
}

var (
	_ store.Outbox                 = (*Store)(nil)
	_ store.HeadReader             = (*Store)(nil)
	_ store.Appender[store.SQLTx]  = (*Store)(nil)
	_ store.Consumer[*sql.Tx]      = (*Store)(nil)
	_ store.InboxTx[*sql.Tx]       = (*inboxTx)(nil)
	_ interface{ DB() *sql.DB }    = (*Store)(nil)
	_ interface{ String() string } = (*Store)(nil)
)

// Open opens the database file, making it if it is missing, in WAL mode. The
// DSN is a path or a "file:" URI; it may carry the parameters of
// modernc.org/sqlite: "file:orders.db?_pragma=foreign_keys(1)". Databases in
// memory are refused, for they cannot be shared by several connections.
func Open(ctx context.Context, dsn string, config *Config) (*Store, error) {
	s := &Store{}
	if config != nil {
		s.config = *config
	}
	if s.config.BusyTimeout <= 0 {
		s.config.BusyTimeout = 5 * time.Second
	}
	if s.config.ReadConns <= 0 {
		s.config.ReadConns = 4
	}
	source, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	s.path = source.path
	s.lexicon = newLexicon(s.config.Names)
	s.texts = make(map[string]string, len(catalogue))
	named := make(map[string]bool, len(catalogue))
	for _, entry := range catalogue {
		text := s.lexicon.Replace(entry.Text)
		s.texts[entry.Text] = text
		named[text] = true
	}
	write, err := newGuardedConnector(source.writing(s.config.BusyTimeout), !source.decidesSync(), named)
	if err != nil {
		return nil, &waybill.Error{Op: "open", Key: s.path, Err: err}
	}
	read, err := newGuardedConnector(source.reading(s.config.BusyTimeout), false, named)
	if err != nil {
		return nil, &waybill.Error{Op: "open", Key: s.path, Err: err}
	}
	s.writer = sql.OpenDB(write)
	s.writer.SetMaxOpenConns(1)
	s.reader = sql.OpenDB(read)
	s.reader.SetMaxOpenConns(s.config.ReadConns)
	s.reader.SetMaxIdleConns(s.config.ReadConns)
	if err := s.start(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// start opens the first connection of each pool, so that a wrong path, a
// directory without permission or a file that is no database is told now.
func (s *Store) start(ctx context.Context) error {
	var mode string
	err := retryBusy(ctx, s.config.BusyTimeout, func() error {
		return s.writer.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode)
	})
	if err != nil {
		return s.failed("open", "", err)
	}
	if !strings.EqualFold(mode, "wal") {
		return &waybill.Error{
			Op: "open", Key: s.path, Err: fmt.Errorf("journal mode is %q, not WAL", mode),
			Hint: "the directory must be writable and on a local disk; leave journal_mode out of the DSN",
		}
	}
	var encoding string
	if err := s.reader.QueryRowContext(ctx, "PRAGMA encoding").Scan(&encoding); err != nil {
		return s.failed("open", "", err)
	}
	if encoding != "UTF-8" {
		return &waybill.Error{
			Op: "open", Key: s.path, Err: fmt.Errorf("text encoding is %s, not UTF-8", encoding),
			Hint: "keep the outbox in a database whose encoding is UTF-8",
		}
	}
	return nil
}

// DB returns the writing pool, of one connection, whose transactions begin with
// BEGIN IMMEDIATE (but for those with sql.TxOptions.ReadOnly). It is for the
// application's own transactions; Close closes it.
func (s *Store) DB() *sql.DB { return s.writer }

// String returns the path of the database file.
func (s *Store) String() string { return "sqlite " + s.path }

// Close closes all connections. It waits for running statements.
func (s *Store) Close() error {
	err := s.reader.Close()
	if writeErr := s.writer.Close(); writeErr != nil {
		err = writeErr
	}
	if err != nil {
		return s.failed("close", "", err)
	}
	return nil
}

func (s *Store) text(text string) string {
	named, ok := s.texts[text]
	if !ok {
		panic("sqlite: statement is not in the catalogue: " + text)
	}
	return named
}

// query runs a reading statement outside of any transaction.
func (s *Store) query(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	return s.reader.QueryContext(ctx, s.text(text), args...)
}

// scan reads the only row of a reading statement, or returns sql.ErrNoRows.
func (s *Store) scan(ctx context.Context, text string, args []any, dest ...any) error {
	return s.reader.QueryRowContext(ctx, s.text(text), args...).Scan(dest...)
}

// write runs one transaction of the store's own. A relaxed one may be undone by
// a loss of power.
func (s *Store) write(ctx context.Context, op string, relaxed bool, do func(w writing) error) error {
	conn, err := s.acquire(ctx)
	if err != nil {
		return s.failed(op, "", err)
	}
	defer conn.Close()
	if relaxed {
		ctx = withRelaxedCommit(ctx)
	}
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return s.failed(op, "", err)
	}
	defer func() { _ = tx.Rollback() }()
	if err := do(writing{s, tx}); err != nil {
		return s.failed(op, "", err)
	}
	if err := tx.Commit(); err != nil {
		return s.failed(op, "", err)
	}
	return nil
}

// acquire takes the writing connection, waiting for it no longer than for the
// lock of another process.
func (s *Store) acquire(ctx context.Context) (*sql.Conn, error) {
	wait, cancel := context.WithTimeoutCause(ctx, s.config.BusyTimeout, errHeld)
	defer cancel()
	conn, err := s.writer.Conn(wait)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(wait), errHeld) {
		return nil, errHeld
	}
	return conn, err
}

// writing is a transaction on the writing connection.
type writing struct {
	s  *Store
	tx *sql.Tx
}

func (w writing) exec(ctx context.Context, text string, args ...any) (int64, error) {
	result, err := w.tx.ExecContext(ctx, w.s.text(text), args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (w writing) query(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	return w.tx.QueryContext(ctx, w.s.text(text), args...)
}

// scan reads the only row of a statement, or returns sql.ErrNoRows.
func (w writing) scan(ctx context.Context, text string, args []any, dest ...any) error {
	return w.tx.QueryRowContext(ctx, w.s.text(text), args...).Scan(dest...)
}
