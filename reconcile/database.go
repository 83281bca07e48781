package reconcile

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/waybillhq/waybill"
)

// Database is where tables of a check are. The engine only reads, in
// read-only transactions, unless it is asked to rebuild. Times without a zone
// are taken for UTC, so connections must be in UTC too.
type Database struct {
	DB      *sql.DB
	Dialect Dialect
}

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
	defer func() { _ = tx.Rollback() }() // there is nothing to commit
	return f(tx)
}

func (d Database) begin(ctx context.Context) (*sql.Tx, error) {
	options := &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead}
	if d.Dialect == SQLite {
		options.Isolation = sql.LevelDefault // every transaction sees one state
	}
	return d.DB.BeginTx(ctx, options)
}

// scan runs a statement and hands each row over; the values are valid during
// the call only.
func scan(ctx context.Context, q queryer, s *statement, row func(types []column, values []any) error) (err error) {
	rows, err := q.QueryContext(ctx, s.text.String(), s.args...)
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
