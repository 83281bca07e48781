package guard

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/waybillhq/waybill"
)

// Dialect is how a database spells what guards need.
type Dialect uint8

// The dialects.
const (
	SQLite Dialect = iota + 1
	Postgres
	MySQL // MariaDB too
)

// Row is values by column. A value is what the driver takes.
type Row map[string]any

// Tx is a transaction as guards use it. It is made by [Over] or [OverNative]
// and ends with the transaction under it, which stays the caller's.
type Tx struct {
	dialect Dialect
	exec    func(ctx context.Context, statement string, args []any) (int64, error)
	row     func(ctx context.Context, query string, args, into []any) error
}

// SQL is what guards need of a transaction of database/sql, or of what looks
// like one: *sql.Tx, *sql.Conn, the transactions of sqlx and bun, gorm's ConnPool.
type SQL interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Over returns tx for guards.
func Over(tx SQL, dialect Dialect) Tx {
	return Tx{
		dialect: dialect,
		exec: func(ctx context.Context, statement string, args []any) (int64, error) {
			result, err := tx.ExecContext(ctx, statement, args...)
			if err != nil {
				return 0, err
			}
			return result.RowsAffected()
		},
		row: func(ctx context.Context, query string, args, into []any) (err error) {
			rows, err := tx.QueryContext(ctx, query, args...)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, rows.Close()) }()
			if !rows.Next() {
				return errors.Join(rows.Err(), sql.ErrNoRows)
			}
			return errors.Join(rows.Scan(into...), rows.Err())
		},
	}
}

// Native is a transaction of a driver's own, as pgx has it: pgx.Tx implements
// it with T pgconn.CommandTag and R pgx.Row.
type Native[T interface{ RowsAffected() int64 }, R interface{ Scan(into ...any) error }] interface {
	Exec(ctx context.Context, statement string, args ...any) (T, error)
	QueryRow(ctx context.Context, query string, args ...any) R
}

// OverNative returns tx, of PostgreSQL, for guards: OverNative(tx) with a pgx.Tx.
func OverNative[T interface{ RowsAffected() int64 }, R interface{ Scan(into ...any) error }](tx Native[T, R]) Tx {
	return Tx{
		dialect: Postgres,
		exec: func(ctx context.Context, statement string, args []any) (int64, error) {
			tag, err := tx.Exec(ctx, statement, args...)
			if err != nil {
				return 0, err
			}
			return tag.RowsAffected(), nil
		},
		row: func(ctx context.Context, query string, args, into []any) error {
			return tx.QueryRow(ctx, query, args...).Scan(into...)
		},
	}
}

// Exec runs a statement whose parameters are written ? in every dialect, and
// returns how many rows it touched.
func (tx Tx) Exec(ctx context.Context, statement string, args ...any) (int64, error) {
	return tx.exec(ctx, tx.dialect.bind(statement), args)
}

// Scan reads the first row of a query whose parameters are written ? in every
// dialect. Without one, its error wraps sql.ErrNoRows.
func (tx Tx) Scan(ctx context.Context, query string, args, into []any) error {
	return tx.row(ctx, tx.dialect.bind(query), args, into)
}

var (
	// ErrConflict says that another writer was faster, or that what is there
	// already differs from what should be there.
	ErrConflict = errors.New("conflict")
	// ErrState says that a row's state allows no such move.
	ErrState = errors.New("state does not allow it")
	// ErrMissing says that there is no such row.
	ErrMissing = errors.New("no such row")
)

func failure(op, table string, key any, err error) error {
	if err == nil {
		return nil
	}
	return &waybill.Error{Op: op, Key: fmt.Sprintf("%s %v", table, key), Err: err}
}

// bind writes the parameters as the dialect does. A ? within quotes is none.
func (d Dialect) bind(statement string) string {
	if d != Postgres {
		return statement
	}
	var b strings.Builder
	n, quote := 0, rune(0)
	for _, r := range statement {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '\'' || r == '"':
			quote = r
		case r == '?':
			n++
			b.WriteByte('$')
			b.WriteString(strconv.Itoa(n))
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// name quotes a column, or a table with or without its schema.
func (d Dialect) name(name string) string {
	quote := `"`
	if d == MySQL {
		quote = "`"
	}
	parts := strings.Split(name, ".")
	for i, part := range parts {
		parts[i] = quote + strings.ReplaceAll(part, quote, quote+quote) + quote
	}
	return strings.Join(parts, ".")
}

// column quotes a column, whose name may contain a dot.
func (d Dialect) column(name string) string {
	return strings.ReplaceAll(d.name(strings.ReplaceAll(name, ".", "\x00")), "\x00", ".")
}

// columns returns the row's columns in one order for all calls, so that
// prepared statements are found again.
func (r Row) columns() []string { return slices.Sorted(maps.Keys(r)) }

// assignments returns "a = ?, b = ?" and the values.
func (d Dialect) assignments(r Row) (text []string, args []any) {
	for _, column := range r.columns() {
		text = append(text, d.column(column)+" = ?")
		args = append(args, r[column])
	}
	return text, args
}

// insertion returns a plain INSERT of the row, and the values.
func (d Dialect) insertion(table string, r Row) (statement string, args []any) {
	var names, marks []string
	for _, column := range r.columns() {
		names, marks, args = append(names, d.column(column)), append(marks, "?"), append(args, r[column])
	}
	return "INSERT INTO " + d.name(table) + " (" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(marks, ", ") + ")", args
}

// orNothing ends an INSERT that leaves a row of the same key alone. MySQL then
// locks that row for writing, so that two that wait for each other's lock are
// none.
func (d Dialect) orNothing(key []string) string {
	names := make([]string, len(key))
	for i, column := range key {
		names[i] = d.column(column)
	}
	if d == MySQL {
		return " ON DUPLICATE KEY UPDATE " + names[0] + " = " + names[0]
	}
	return " ON CONFLICT (" + strings.Join(names, ", ") + ") DO NOTHING"
}

// share ends a SELECT that must see what is committed now. On MySQL the
// transaction's snapshot may be older; elsewhere each statement looks anew.
func (d Dialect) share() string {
	if d == MySQL {
		return " LOCK IN SHARE MODE"
	}
	return ""
}

// equals returns "a = ? AND b IS NULL" and the values.
func (d Dialect) equals(r Row, columns []string) (text string, args []any) {
	var all []string
	for _, column := range columns {
		if isNull(r[column]) {
			all = append(all, d.column(column)+" IS NULL")
			continue
		}
		all = append(all, d.column(column)+" = ?")
		args = append(args, r[column])
	}
	return strings.Join(all, " AND "), args
}

func isNull(value any) bool {
	if valuer, ok := value.(driver.Valuer); ok {
		v, err := valuer.Value()
		return err == nil && v == nil
	}
	return value == nil
}
