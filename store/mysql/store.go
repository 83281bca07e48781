package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// Config adjusts a [Store]. Its zero value, and nil, are right for most.
type Config struct {
	// Names are the tables' names. Schema is a database, made by Migrate where it
	// does not exist; empty means the one that the DSN names.
	Names store.Names
	// NoTrigger makes Append write the queue row itself; see
	// [store.MigrateOptions].
	NoTrigger bool
	// Head makes Append, with NoTrigger, write the heads itself; see
	// [store.MigrateOptions.Head]. A trigger does it unasked.
	Head bool
	// MaxConns bounds the pool, in connections. 0 means 16. The store's own short
	// transactions have a pool of the same size beside it.
	MaxConns int
	// CommitWindow matters to an account without the right PROCESS, which cannot
	// see what transactions are running: how long after an event's INSERT its
	// transaction may take to commit and still be found at once. What commits later
	// is found by the relay's sweep. 0 means one minute.
	CommitWindow time.Duration
}

// Store implements all roles of package store. Its appender takes the
// transactions of database/sql and of what is built over it; its consumers'
// handlers see a *sql.Tx.
type Store struct {
	db      *sql.DB
	own     *sql.DB // for transactions that nobody else sees
	config  Config
	dialect dialect
	names   *names
	// texts are the statements with the names put in, by template.
	texts map[string]string

	frontier frontier
	walk     store.QueueWalk
}

var (
	_ store.Outbox                = (*Store)(nil)
	_ store.HeadReader            = (*Store)(nil)
	_ store.Appender[store.SQLTx] = (*Store)(nil)
	_ store.Consumer[*sql.Tx]     = (*Store)(nil)
)

const (
	defaultMaxConns     = 16
	defaultCommitWindow = time.Minute

	// A process that is frozen in the middle of a transaction keeps its locks, on
	// lanes that others have to take over, until the server ends an idle session.
	// Connections that wait in the pool are closed before that.
	ownSessionIdle = "6" // seconds
	ownPoolIdle    = 4 * time.Second
)

// Open connects to a database by a DSN: the driver's, as
// user:password@tcp(host:3306)/database, or a URL, as
// mysql://user:password@host:3306/database. An unreachable server is an error;
// that the tables exist is for [Store.ReadMeta] to say.
func Open(ctx context.Context, dsn string, config *Config) (*Store, error) {
	settings, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	s := &Store{}
	if config != nil {
		s.config = *config
	}
	if s.config.MaxConns <= 0 {
		s.config.MaxConns = defaultMaxConns
	}
	if s.config.CommitWindow <= 0 {
		s.config.CommitWindow = defaultCommitWindow
	}
	bare, err := mysql.NewConnector(settings)
	if err != nil {
		return nil, failure("open", settings.Addr, err)
	}
	s.db = sql.OpenDB(&connector{Connector: bare})
	s.db.SetMaxOpenConns(s.config.MaxConns)
	s.db.SetMaxIdleConns(s.config.MaxConns)
	if s.own, err = openOwn(settings, s.config.MaxConns); err == nil {
		err = s.start(ctx)
	}
	if err != nil {
		_ = s.Close()
		return nil, failure("open", settings.Addr+"/"+settings.DBName, err)
	}
	return s, nil
}

// openOwn makes the pool for transactions of which no statement waits for
// anybody outside the store.
func openOwn(settings *mysql.Config, conns int) (*sql.DB, error) {
	settings = settings.Clone()
	if settings.Params == nil {
		settings.Params = make(map[string]string)
	}
	settings.Params["wait_timeout"] = ownSessionIdle
	bare, err := mysql.NewConnector(settings)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(&connector{Connector: bare})
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	db.SetConnMaxIdleTime(ownPoolIdle)
	return db, nil
}

func (s *Store) start(ctx context.Context) error {
	var version string
	if err := s.db.QueryRowContext(ctx, `SELECT VERSION()`).Scan(&version); err != nil {
		return err
	}
	d, err := dialectOf(version)
	if err != nil {
		return err
	}
	s.dialect = d
	if s.names, err = newNames(s.config.Names, d); err != nil {
		return err
	}
	s.texts = make(map[string]string, len(statements))
	for _, statement := range statements {
		s.texts[statement.template] = s.names.expand(statement.template)
	}
	return nil
}

var versionNumber = regexp.MustCompile(`^(?:5\.5\.5-)?(\d+)\.(\d+)`)

func dialectOf(version string) (dialect, error) {
	d, major, minor := dialectMySQL, 8, 0
	if strings.Contains(strings.ToLower(version), "mariadb") {
		d, major, minor = dialectMariaDB, 10, 6
	}
	number := versionNumber.FindStringSubmatch(version)
	if number == nil {
		return d, fmt.Errorf("the server's version %q is not understood", version)
	}
	haveMajor, _ := strconv.Atoi(number[1])
	haveMinor, _ := strconv.Atoi(number[2])
	if haveMajor < major || haveMajor == major && haveMinor < minor {
		return d, &waybill.Error{
			Op: "mysql: open", Err: fmt.Errorf("%s %s is too old", d.name, version),
			Hint: "use MySQL 8.4 or newer, or MariaDB 10.11 or newer",
		}
	}
	return d, nil
}

// DB returns the pool, for the application's own use. Its sessions are at READ
// COMMITTED, in UTC and strict. A transaction of it refuses all statements once
// the server has rolled it back after a deadlock.
func (s *Store) DB() *sql.DB { return s.db }

// Close closes the connections.
func (s *Store) Close() error {
	err := s.db.Close()
	if s.own != nil {
		err = errors.Join(err, s.own.Close())
	}
	return failure("close", "", err)
}

// sql returns a statement of the list with the names put in.
func (s *Store) sql(template string) string {
	text, ok := s.texts[template]
	if !ok {
		panic("mysql: a statement is missing from the list: " + template)
	}
	return text
}

// inTx runs a transaction of our own, again after a deadlock.
func (s *Store) inTx(ctx context.Context, do func(tx ownTx) error) error {
	return retry(ctx, func() error {
		tx, err := s.own.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := do(ownTx{s, tx}); err != nil {
			return err
		}
		return tx.Commit()
	})
}

// querier is what a pool and a transaction have in common.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// ownTx runs statements of the list in a transaction.
type ownTx struct {
	s  *Store
	tx querier
}

func (t ownTx) exec(ctx context.Context, template string, args ...any) (int64, error) {
	result, err := t.tx.ExecContext(ctx, t.s.sql(template), args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (t ownTx) query(ctx context.Context, template string, args ...any) (*sql.Rows, error) {
	return t.tx.QueryContext(ctx, t.s.sql(template), args...)
}

// one reads the first row, or reports that there is none.
func (t ownTx) one(ctx context.Context, template string, args []any, targets ...any) (bool, error) {
	rows, err := t.query(ctx, template, args...)
	if err != nil {
		return false, err
	}
	found := false
	err = each(rows, func() error {
		if found {
			return nil
		}
		found = true
		return rows.Scan(targets...)
	})
	return found, err
}

// pool runs statements of the list outside of any transaction.
func (s *Store) pool() ownTx { return ownTx{s, s.db} }

// each calls do for each row, and closes the rows.
func each(rows *sql.Rows, do func() error) error {
	for rows.Next() {
		if err := do(); err != nil {
			return errors.Join(err, rows.Close())
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}

// collect scans all rows of a statement of the list.
func collect[T any](ctx context.Context, t ownTx, scan func(rows *sql.Rows) (T, error), template string, args ...any) ([]T, error) {
	rows, err := t.query(ctx, template, args...)
	if err != nil {
		return nil, err
	}
	return collectRows(rows, scan)
}

func collectRows[T any](rows *sql.Rows, scan func(rows *sql.Rows) (T, error)) ([]T, error) {
	var all []T
	err := each(rows, func() error {
		value, err := scan(rows)
		all = append(all, value)
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

func scanOne[T any](rows *sql.Rows) (value T, err error) { return value, rows.Scan(&value) }
