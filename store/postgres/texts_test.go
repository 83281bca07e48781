package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/store/postgres"
)

// readTexts returns each row as texts, NULL as "NULL".
func readTexts(ctx context.Context, t *testing.T, query string, args ...any) (types []string, rows [][]string, read bool, err error) {
	t.Helper()
	config, err := pgx.ParseConfig(testenv.Postgres15(t))
	if err != nil {
		t.Fatal(err)
	}
	postgres.ReadInBulk(&config.Config)
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { _ = db.Close() })
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.Raw(func(driverConn any) error {
		read, err = postgres.ReadTexts(ctx, driverConn, query, args, func(names []string) error {
			types = names
			return nil
		}, func(values [][]byte) error {
			var row []string
			for _, value := range values {
				if value == nil {
					row = append(row, "NULL")
					continue
				}
				row = append(row, string(value))
			}
			rows = append(rows, row)
			return nil
		})
		return nil
	})
	var one int
	if ctx.Err() == nil {
		if queryErr := conn.QueryRowContext(t.Context(), "SELECT 1").Scan(&one); queryErr != nil {
			t.Errorf("the connection afterwards: %v", queryErr)
		}
	}
	return types, rows, read, err
}

func TestReadTexts(t *testing.T) {
	const query = `
SELECT i::text, 'v'::varchar(3), i, i::smallint, 1.50::numeric(9, 2), '\x00ff'::bytea, ''::text, NULL::text, 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'::uuid, '{"a": 1}'::json
FROM generate_series($1::bigint, $2::bigint) AS s (i) WHERE 'x' = $3 ORDER BY s.i`
	types, rows, read, err := readTexts(t.Context(), t, query, int64(-1), uint64(1), "x")
	if err != nil || !read {
		t.Fatalf("read %v, %v", read, err)
	}
	if want := []string{"TEXT", "VARCHAR", "INT8", "INT2", "NUMERIC", "BYTEA", "TEXT", "TEXT", "UUID", "JSON"}; !slices.Equal(types, want) {
		t.Errorf("types %v, want %v", types, want)
	}
	var want [][]string
	for _, n := range []string{"-1", "0", "1"} {
		want = append(want, []string{n, "v", n, n, "1.50", "\x00\xff", "", "NULL", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", `{"a": 1}`})
	}
	if got, want := fmt.Sprintf("%q", rows), fmt.Sprintf("%q", want); got != want {
		t.Errorf("rows\n%s, want\n%s", got, want)
	}
}

func TestReadTextsLeavesOthersAlone(t *testing.T) {
	for query, args := range map[string][]any{
		"SELECT now()":               nil,
		"SELECT 1.5::float8":         nil,
		"SELECT true":                nil,
		"SELECT $1::bytea IS NULL":   {[]byte("x")},
		"SELECT '1', '{}'::jsonb, 1": nil, // its text is another than json's
	} {
		if _, rows, read, err := readTexts(t.Context(), t, query, args...); read || err != nil || rows != nil {
			t.Errorf("%s: read %v, %v, rows %v", query, read, err, rows)
		}
	}
}

func TestReadTextsReturnsErrors(t *testing.T) {
	for _, query := range []string{"SELECT 1 / (n - 2) FROM generate_series(1, 3) n", "SELECT * FROM no_such_table_here"} {
		if _, _, _, err := readTexts(t.Context(), t, query); err == nil {
			t.Errorf("%s: no error", query)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, _, err := readTexts(ctx, t, "SELECT 1"); !errors.Is(err, context.Canceled) {
		t.Errorf("ended context: %v", err)
	}
}

// What is read in large pieces has every row, in its place.
func TestReadTextsOfALargeResult(t *testing.T) {
	const many = 50_000
	_, rows, read, err := readTexts(t.Context(), t, fmt.Sprintf("SELECT g, repeat('x', (g %% 50)::integer) FROM generate_series(1, %d) g", many))
	if !read || err != nil || len(rows) != many {
		t.Fatalf("%d rows, %v, %v", len(rows), read, err)
	}
	for i, row := range rows {
		if want := []string{fmt.Sprint(i + 1), strings.Repeat("x", (i+1)%50)}; !slices.Equal(row, want) {
			t.Fatalf("row %d: %q, want %q", i, row, want)
		}
	}
}

// A connection that knows a query's columns asks for bytes as they are. What it
// knows may be wrong later.
func TestReadTextsAgain(t *testing.T) {
	db, err := sql.Open("pgx", testenv.Postgres15(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	exec := func(statement string) {
		t.Helper()
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	read := func() (rows string, ok bool) {
		t.Helper()
		_ = conn.Raw(func(driverConn any) error {
			ok, err = postgres.ReadTexts(t.Context(), driverConn, "SELECT n, b, n FROM texts_again ORDER BY n", nil, func([]string) error { return nil }, func(values [][]byte) error {
				rows += fmt.Sprintf("%q", values)
				return nil
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return rows, ok
	}
	exec(`CREATE TEMPORARY TABLE texts_again (n integer NOT NULL, b bytea)`)
	exec(`INSERT INTO texts_again VALUES (1, '\x00ff'), (2, ''), (3, NULL), (4, '\x5c78')`)
	const want = `["1" "\x00\xff" "1"]["2" "" "2"]["3" "" "3"]["4" "\\x" "4"]`
	for range 3 {
		if got, ok := read(); !ok || got != want {
			t.Errorf("read %v, got %s, want %s", ok, got, want)
		}
	}
	exec(`ALTER TABLE texts_again ALTER b TYPE numeric USING n + 0.50`)
	if got, ok := read(); ok || got != "" {
		t.Errorf("after the type had changed: read %v, %s", ok, got)
	}
	if got, ok := read(); !ok || got != `["1" "1.50" "1"]["2" "2.50" "2"]["3" "3.50" "3"]["4" "4.50" "4"]` {
		t.Errorf("and then: read %v, %s", ok, got)
	}
}
