package pgwal

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/cdc"
)

// Source is the write-ahead log of one PostgreSQL database.
type Source struct {
	pool        *pgxpool.Pool // for everything but streams
	replication *pgconn.Config
	config      Config
	names       *strings.Replacer

	mu     sync.Mutex
	making *making // the slot that is being made, if one is
	stuck  stuck
	rate   rate

	background context.Context // ends with Close
	end        context.CancelFunc
	running    sync.WaitGroup
}

var (
	_ cdc.Source  = (*Source)(nil)
	_ cdc.Checker = (*Source)(nil)
)

// maxConns is enough for a slot that is being made, a look at what is in its way,
// a mark and a status.
const maxConns = 4

// New returns the log of the database of a DSN, in pgx's URL or key=value form. It
// does not connect. The DSN must lead to the server itself, or to a pooler that
// passes replication connections through, and to the primary.
func New(dsn string, config *Config) (*Source, error) {
	settings, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		// The cause could quote the DSN, and the password with it.
		return nil, &waybill.Error{
			Op: "configure pgwal", Err: errors.New("the DSN cannot be understood"),
			Hint: "write postgres://user:password@host:5432/database?sslmode=..., with special characters escaped as in a URL",
		}
	}
	complete, err := config.withDefaults(settings.ConnConfig.Database)
	if err != nil {
		return nil, err
	}
	settings.MaxConns, settings.MinConns, settings.MinIdleConns = maxConns, 0, 0
	replication := settings.ConnConfig.Config.Copy()
	if replication.RuntimeParams == nil {
		replication.RuntimeParams = make(map[string]string)
	}
	for name, value := range map[string]string{
		"replication":        "database",
		"wal_sender_timeout": strconv.FormatInt(complete.SenderTimeout.Milliseconds(), 10),
	} {
		replication.RuntimeParams[name] = value
	}
	if replication.RuntimeParams["application_name"] == "" {
		replication.RuntimeParams["application_name"] = applicationName
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), settings)
	if err != nil {
		return nil, &waybill.Error{Op: "configure pgwal", Err: err}
	}
	s := &Source{pool: pool, replication: replication, config: complete}
	s.names = strings.NewReplacer("{event}", s.table(), "{publication}", quoteIdentifier(complete.Publication))
	s.background, s.end = context.WithCancel(context.Background())
	return s, nil
}

// applicationName shows in pg_stat_replication. A server whose
// synchronous_standby_names has it, or '*', would wait for the relay.
const applicationName = "waybill_cdc"

// Close ends what the source does by itself, as the making of a slot, and closes
// its connections. Streams are not ended.
func (s *Source) Close() error {
	s.end()
	s.running.Wait()
	s.pool.Close()
	return nil
}

// Name is "postgres:" and the name of the slot.
func (s *Source) Name() string { return "postgres:" + s.config.Slot }

// markPrefix makes marks known to the readers of this slot, and to no others.
func (s *Source) markPrefix() string { return "waybill:" + s.config.Slot }

// A mark must not wait for a standby, as commits may have to.
const markSQL = `
SELECT pg_logical_emit_message(true, $1::text, $2::text)
FROM (SELECT set_config('synchronous_commit', 'local', true)) AS local_commit`

// Mark writes a message into the log, in a transaction of its own.
func (s *Source) Mark(ctx context.Context, text string) error {
	_, err := s.pool.Exec(ctx, s.sql(markSQL), s.markPrefix(), text)
	return classify("mark the log", err)
}

// sql returns a statement with the names put in.
func (s *Source) sql(template string) string { return s.names.Replace(template) }

func (s *Source) table() string {
	if s.config.Schema == "" {
		return quoteIdentifier(s.config.Event)
	}
	return quoteIdentifier(s.config.Schema) + "." + quoteIdentifier(s.config.Event)
}

func quoteIdentifier(name string) string {
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

// quoteOption quotes a text within a command of replication, which knows no
// escapes.
func quoteOption(text string) string { return `'` + strings.ReplaceAll(text, `'`, `''`) + `'` }
