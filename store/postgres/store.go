package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// Config adjusts a [Store]. Its zero value, and nil, are right for most.
type Config struct {
	// Names are the tables' names. A schema that does not exist is made by
	// Migrate.
	Names store.Names
	// NoTrigger makes Append write the queue row itself; see
	// [store.MigrateOptions].
	NoTrigger bool
	// Head makes Append, with NoTrigger, write the heads itself; see
	// [store.MigrateOptions.Head]. A trigger does it unasked.
	Head bool
	// MaxConns bounds the pool that Open makes, in connections. 0 means what the
	// DSN says with pool_max_conns, else 8.
	MaxConns int
}

// Store implements all roles of package store. Its transactions are [pgx.Tx].
type Store struct {
	pool      *pgxpool.Pool
	owned     bool
	noTrigger bool
	head      bool
	names     *names
	// texts are the statements with the names put in, by template.
	texts map[string]string
	// planned is how statements run whose plan must not be kept from a time when
	// the queue was empty.
	planned pgx.QueryExecMode
	walk    store.QueueWalk
}

var (
	_ store.Outbox                 = (*Store)(nil)
	_ store.CommitAppender[pgx.Tx] = (*Store)(nil)
	_ store.Consumer[pgx.Tx]       = (*Store)(nil)
	_ store.HeadReader             = (*Store)(nil)
)

const defaultMaxConns = 8

// Open connects to a database by a DSN, in pgx's URL or key=value form. The
// store's Close closes the connections. An unreachable server is an error; that
// the tables exist is for [Store.ReadMeta] to say.
func Open(ctx context.Context, dsn string, config *Config) (*Store, error) {
	settings, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		// The cause could quote the DSN, and the password with it.
		return nil, &waybill.Error{
			Op: "postgres: open", Err: errors.New("the DSN cannot be understood"),
			Hint: "write postgres://user:password@host:5432/database?sslmode=..., with special characters escaped as in a URL",
		}
	}
	switch {
	case config != nil && config.MaxConns > 0:
		settings.MaxConns = int32(config.MaxConns)
	case !strings.Contains(dsn, "pool_max_conns"):
		settings.MaxConns = defaultMaxConns
	}
	pool, err := pgxpool.NewWithConfig(ctx, settings)
	if err != nil {
		return nil, failure("open", "", err)
	}
	s, err := New(pool, config)
	if err == nil {
		if err = pool.Ping(ctx); err != nil {
			err = failure("open", fmt.Sprintf("%s:%d/%s", settings.ConnConfig.Host, settings.ConnConfig.Port, settings.ConnConfig.Database), err)
		}
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	s.owned = true
	return s, nil
}

// New returns a store over a pool that stays the caller's: Close does not close
// it. It does not connect.
func New(pool *pgxpool.Pool, config *Config) (*Store, error) {
	if config == nil {
		config = &Config{}
	}
	n, err := newNames(config.Names)
	if err != nil {
		return nil, err
	}
	s := &Store{pool: pool, noTrigger: config.NoTrigger, head: config.Head, names: n, texts: make(map[string]string, len(statements))}
	for _, statement := range statements {
		s.texts[statement.template] = n.expand(statement.template)
	}
	s.planned = pool.Config().ConnConfig.DefaultQueryExecMode
	if s.planned == pgx.QueryExecModeCacheStatement {
		s.planned = pgx.QueryExecModeCacheDescribe
	}
	return s, nil
}

// Pool returns the pool, for the application's own use.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// Close closes the connections that Open made.
func (s *Store) Close() error {
	if s.owned {
		s.pool.Close()
	}
	return nil
}

// sql returns a statement of the list with the names put in.
func (s *Store) sql(template string) string {
	text, ok := s.texts[template]
	if !ok {
		panic("postgres: a statement is missing from the list: " + template)
	}
	return text
}

// A process that is frozen in the middle of a transaction, as by SIGSTOP or by
// the pause of its virtual machine, keeps its locks on leases and queue rows:
// nobody could take its lanes over. The server ends such a transaction.
const beginSQL = `BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = '5s'`

// inTx runs a transaction of our own at READ COMMITTED, again after a deadlock.
func (s *Store) inTx(ctx context.Context, do func(tx pgx.Tx) error) error {
	return retry(ctx, func() error {
		return pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{BeginQuery: beginSQL}, do)
	})
}
