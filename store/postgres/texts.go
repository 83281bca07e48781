package postgres

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// textTypes are those whose text is what pgx makes of them for database/sql, but
// for BYTEA, which is made of its text here.
var textTypes = []string{"TEXT", "VARCHAR", "BPCHAR", "INT2", "INT4", "INT8", "NUMERIC", "UUID", "JSON", typeBytes}

const typeBytes = "BYTEA"

// ReadTexts reads the rows of a query on a connection of pgx's stdlib driver, as
// sql.Conn.Raw has it, without making values of them. It is the reconcile
// engine's TextReader for PostgreSQL:
//
//	reconcile.Database{DB: db, Dialect: reconcile.Postgres, Texts: postgres.ReadTexts}
//
// It reads text, numbers that are exact, UUIDs, JSON and bytes; it answers false
// where another type is among the columns, or an argument is neither a text nor a
// whole number.
func ReadTexts(ctx context.Context, driverConn any, query string, args []any, begin func(types []string) error, row func(values [][]byte) error) (read bool, err error) {
	inner, ok := driverConn.(*stdlib.Conn)
	if !ok {
		return false, nil
	}
	params := make([][]byte, len(args))
	for i, arg := range args {
		switch x := arg.(type) {
		case string:
			params[i] = []byte(x)
		case int64:
			params[i] = strconv.AppendInt(nil, x, 10)
		case uint64:
			params[i] = strconv.AppendUint(nil, x, 10)
		default:
			return false, nil
		}
	}
	conn := inner.Conn().PgConn()
	asked := formatsOf(conn)
	rows := conn.ExecParams(ctx, query, params, nil, nil, asked[query])
	defer func() {
		if _, closed := rows.Close(); err == nil && closed != nil {
			read, err = true, closed
		}
	}()
	fields := rows.FieldDescriptions()
	types, ok := typeNames(inner, fields)
	if !ok || len(fields) == 0 { // or an error, which Close returns
		delete(asked, query)
		return false, nil
	}
	asked.learn(query, types)
	if err := begin(types); err != nil {
		return true, err
	}
	for rows.NextRow() {
		values := rows.Values()
		for i, name := range types {
			if name != typeBytes || values[i] == nil || fields[i].Format == formatBinary {
				continue
			}
			if values[i], err = unhex(values[i]); err != nil {
				return true, fmt.Errorf("column %s: %w", fields[i].Name, err)
			}
		}
		if err := row(values); err != nil {
			return true, err
		}
	}
	return true, nil
}

// typeNames names the columns' types as database/sql has them; false where one
// of them cannot be read by its text.
func typeNames(conn *stdlib.Conn, fields []pgconn.FieldDescription) ([]string, bool) {
	names := make([]string, len(fields))
	for i := range fields {
		known, ok := conn.Conn().TypeMap().TypeForOID(fields[i].DataTypeOID)
		if !ok {
			return nil, false
		}
		if names[i] = strings.ToUpper(known.Name); !slices.Contains(textTypes, names[i]) || fields[i].Format == formatBinary && names[i] != typeBytes {
			return nil, false // the second: the column has changed its type
		}
	}
	return names, true
}

// formats are the forms in which the columns of queries are asked for, as a
// connection knows them: the text of bytes has two digits for each, but which
// columns hold bytes is known only when the first rows have come.
type formats map[string][]int16

const (
	formatBinary  = 1
	formatsKey    = "waybill.formats"
	formatsAtMost = 100 // queries
)

func formatsOf(conn *pgconn.PgConn) formats {
	known, ok := conn.CustomData()[formatsKey].(formats)
	if !ok {
		known = make(formats)
		conn.CustomData()[formatsKey] = known
	}
	return known
}

func (f formats) learn(query string, types []string) {
	if f[query] != nil || !slices.Contains(types, typeBytes) {
		return
	}
	if len(f) >= formatsAtMost {
		clear(f)
	}
	f[query] = make([]int16, len(types))
	for i, name := range types {
		if name == typeBytes {
			f[query][i] = formatBinary
		}
	}
}

// unhex decodes the text of a BYTEA in its place.
func unhex(text []byte) ([]byte, error) {
	digits, ok := bytes.CutPrefix(text, []byte(`\x`))
	if !ok {
		return nil, fmt.Errorf("bytes are not written in hex: bytea_output is to be hex")
	}
	n, err := hex.Decode(text, digits)
	return text[:n], err
}
