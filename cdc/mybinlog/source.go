package mybinlog

import (
	"context"
	"crypto/rand"
	"database/sql"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	wire "github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-sql-driver/mysql"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/cdc"
)

// Source is the binary log of a MySQL or MariaDB server, of which it reads what
// concerns one database.
type Source struct {
	db       *sql.DB // for everything but streams
	settings *mysql.Config
	config   Config
	name     string
	host     string

	mu     sync.Mutex
	stream *stream // the one that is open here
	// ordered is what Setup has found.
	ordered atomic.Bool
}

var (
	_ cdc.Source  = (*Source)(nil)
	_ cdc.Checker = (*Source)(nil)
	_ cdc.Ordered = (*Source)(nil)
)

// maxConns is enough for the lock of a stream, a look into the catalogue, a mark
// and a status.
const maxConns = 4

// New returns the log of the server that a DSN leads to: the driver's,
// user:password@tcp(host:3306)/database, or a URL, mysql://user:password@host:3306/database.
// It does not connect. The DSN must lead to the server itself and not to a proxy
// that shares connections, and to the primary.
func New(dsn string, config *Config) (*Source, error) {
	settings, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	complete, err := config.withDefaults(settings.DBName)
	if err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(settings)
	if err != nil {
		return nil, &waybill.Error{Op: "configure mybinlog", Err: err}
	}
	s := &Source{db: sql.OpenDB(connector), settings: settings, config: complete, name: "mysql:" + complete.Schema}
	if complete.Event != DefaultEvent {
		s.name += "." + complete.Event
	}
	s.db.SetMaxOpenConns(maxConns)
	s.db.SetMaxIdleConns(1)
	if s.host, err = os.Hostname(); err != nil {
		s.host = "localhost"
	}
	return s, nil
}

// Close closes the connections. Streams are not ended.
func (s *Source) Close() error { return s.db.Close() }

// Name is "mysql:" and the name of the database, with that of the table where it
// is another than usual.
func (s *Source) Name() string { return s.name }

// markKey is the row of waybill_meta that has the last mark.
const markKey = "cdc_mark"

// A row, since neither server has a way to write into the log alone. Its value is
// never the one before, or nothing would be logged.
const markSQL = "INSERT INTO {meta} (`key`, `value`) VALUES ('" + markKey + "', ?) ON DUPLICATE KEY UPDATE `value` = VALUES(`value`)"

// Mark writes a row, in a transaction of its own.
func (s *Source) Mark(ctx context.Context, text string) error {
	_, err := s.db.ExecContext(ctx, s.sql(markSQL), rand.Text()[:16]+" "+text)
	return classify("mark the log", err)
}

// Drop forgets nothing, since the server keeps nothing for its readers.
func (s *Source) Drop(ctx context.Context) error {
	holder, err := s.holder(ctx)
	if err == nil && holder != "" {
		return cdc.Busy(busyError(holder))
	}
	return err
}

// VisibleInOrder reports whether transactions become visible as they are logged:
// MySQL does so with binlog_order_commits. MariaDB does, except for those that
// were prepared by XA.
func (s *Source) VisibleInOrder() bool { return s.ordered.Load() }

func (s *Source) sql(template string) string {
	return strings.NewReplacer(
		"{meta}", quote(s.config.Schema)+"."+quote(s.config.Meta),
		"{event}", quote(s.config.Schema)+"."+quote(s.config.Event),
	).Replace(template)
}

// quote is right whatever sql_mode is.
func quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

const columnsSQL = `
SELECT column_name, data_type, column_type LIKE '%unsigned%'
FROM information_schema.columns
WHERE table_schema = ? AND table_name = ?
ORDER BY ordinal_position`

const catalogueTimeout = 10 * time.Second

// columns reads the catalogue for the decoder.
func (s *Source) columns(ctx context.Context, table string) ([]column, error) {
	ctx, cancel := context.WithTimeout(ctx, catalogueTimeout)
	defer cancel()
	rows, err := s.db.QueryContext(ctx, columnsSQL, s.config.Schema, table)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var all []column
	for rows.Next() {
		var one column
		if err := rows.Scan(&one.name, &one.kind, &one.unsigned); err != nil {
			return nil, err
		}
		one.kind = strings.ToLower(one.kind)
		all = append(all, one)
	}
	return all, rows.Err()
}

// flavorOf tells the servers apart by their version.
func flavorOf(version string) string {
	if strings.Contains(strings.ToLower(version), "mariadb") {
		return wire.MariaDBFlavor
	}
	return wire.MySQLFlavor
}
