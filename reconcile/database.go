package reconcile

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waybillhq/waybill"
)

// Database is where tables of a check are. The engine only reads, in
// read-only transactions, unless it is asked to rebuild. Times without a zone
// are taken for UTC, so connections must be in UTC too.
//
// Several ranges are read at once, each on a connection of its own, and given
// back after each. A DB should keep [Connections] idle: one that keeps fewer, as
// database/sql does by default, connects anew for most ranges.
type Database struct {
	DB      *sql.DB
	Dialect Dialect
	// Texts, where set, reads large ranges faster than database/sql hands rows
	// over. For connections of pgx it is ReadTexts of store/postgres.
	Texts TextReader

	timeout time.Duration // of one statement; zero for none
}

// TextReader runs a query on a connection of [Database.DB], as sql.Conn.Raw has
// it, and hands over each row as the server writes it: numbers in decimal digits,
// bytes as they are, nil for NULL. What it hands over is valid during the call.
//
// Begin is called once, before the rows, with the names of the columns' types as
// database/sql has them. A query whose arguments or columns have other forms than
// that is not carried out, or not read: the answer is then false, without a row.
type TextReader func(ctx context.Context, driverConn any, query string, args []any, begin func(types []string) error, row func(values [][]byte) error) (read bool, err error)

// Databases are the databases of a check by the names it uses.
type Databases map[string]Database

func (d Databases) find(name string) (Database, error) {
	database, ok := d[name]
	switch {
	case !ok:
		return database, &waybill.Error{
			Op: "check", Key: name, Err: errors.New("no such database"),
			Hint: fmt.Sprintf("the databases are %v", slices.Sorted(maps.Keys(d))),
		}
	case database.DB == nil:
		return database, &waybill.Error{Op: "check", Key: name, Err: errors.New("the database is not open")}
	case !database.Dialect.known():
		return database, &waybill.Error{Op: "check", Key: name, Err: fmt.Errorf("unknown dialect %q", database.Dialect), Hint: "sqlite, postgres, mysql or mariadb"}
	}
	return database, nil
}

// queryer is a transaction or a database.
type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// snapshot runs f in a read-only transaction that sees one state of the
// database.
func (d Database) snapshot(ctx context.Context, f func(queryer) error) error {
	tx, err := d.begin(ctx)
	if err != nil {
		return err
	}
	defer tx.end()
	return f(tx)
}

// snapshot is a transaction and the connection it is on.
type snapshot struct {
	*sql.Tx
	conn  *sql.Conn
	texts TextReader
}

// end ends it; there is nothing to commit.
func (s *snapshot) end() {
	_ = s.Rollback()
	_ = s.conn.Close()
}

// limitPostgres bounds the statements of a transaction on the server, too, and
// what they wait for locks. Ranges are small, but a plan that is made once for
// all of them may take them for large, and read and sort a whole table for each.
// Nor is one to be compiled for a range, which takes longer than to read it.
const limitPostgres = `
SELECT set_config('statement_timeout', $1, true), set_config('lock_timeout', $2, true),
       set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
       set_config('max_parallel_workers_per_gather', '0', true), set_config('jit', 'off', true)`

// lockTimeout is how long a read waits for whoever changes a table.
const lockTimeout = 5 * time.Second

func (d Database) begin(ctx context.Context) (*snapshot, error) {
	options := &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead}
	if d.Dialect == SQLite {
		options.Isolation = sql.LevelDefault // every transaction sees one state
	}
	conn, err := d.DB.Conn(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := conn.BeginTx(ctx, options)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	s := &snapshot{Tx: tx, conn: conn, texts: d.Texts}
	if d.Dialect != Postgres || d.timeout == 0 {
		return s, nil
	}
	milliseconds := func(limit time.Duration) string { return strconv.FormatInt(max(limit.Milliseconds(), 1), 10) }
	if _, err := tx.ExecContext(ctx, limitPostgres, milliseconds(d.timeout), milliseconds(min(d.timeout, lockTimeout))); err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

// bounded returns a statement as the server is to carry it out within the
// context's time. PostgreSQL knows it by the transaction, and SQLite works here.
func (s *statement) bounded(ctx context.Context) string {
	text := s.text.String()
	limit, bounded := remaining(ctx)
	if !bounded || !strings.HasPrefix(text, "SELECT ") {
		return text
	}
	locks := max(int(min(limit, lockTimeout)/time.Second), 1)
	switch s.dialect {
	case MySQL:
		return fmt.Sprintf("SELECT /*+ MAX_EXECUTION_TIME(%d) SET_VAR(lock_wait_timeout=%d) */ %s", max(limit.Milliseconds(), 1), locks, strings.TrimPrefix(text, "SELECT "))
	case MariaDB:
		return fmt.Sprintf("SET STATEMENT max_statement_time=%d, lock_wait_timeout=%d FOR %s", max(int(limit/time.Second), 1), locks, text)
	}
	return text
}

// scan runs a statement and hands each row over; the values are valid during
// the call only.
func scan(ctx context.Context, q queryer, s *statement, row func(types []column, values []any) error) (err error) {
	rows, err := q.QueryContext(ctx, s.bounded(ctx), s.args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	types, err := columnsOf(rows)
	if err != nil {
		return err
	}
	values, targets := make([]any, len(types)), make([]any, len(types))
	for i := range values {
		targets[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		if err := row(types, values); err != nil {
			return err
		}
	}
	return rows.Err()
}

func columnsOf(rows *sql.Rows) ([]column, error) {
	types, err := rows.ColumnTypes()
	if err != nil {
		return nil, err
	}
	columns := make([]column, len(types))
	for i, t := range types {
		columns[i] = column{database: t.DatabaseTypeName(), digits: -1}
		if columns[i].kind() == KindTime {
			if digits, _, ok := t.DecimalSize(); ok && digits >= 0 && digits <= maxDigits {
				columns[i].digits = int(digits)
			}
		}
	}
	return columns, nil
}
