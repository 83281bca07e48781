package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// keyColumnsPostgres lists a table's columns of text and how each is sorted. A
// column of the database's own collation has that of the database; the column
// that says who provides it is newer than some servers.
const keyColumnsPostgres = `
SELECT a.attname, t.typname,
       CASE WHEN c.collname = 'default'
            THEN CASE WHEN COALESCE(to_jsonb(d) ->> 'datlocprovider', 'c') = 'c' THEN d.datcollate ELSE '' END
            ELSE COALESCE(c.collname, '') END
FROM pg_attribute AS a
JOIN pg_type AS t ON t.oid = a.atttypid
LEFT JOIN pg_collation AS c ON c.oid = a.attcollation
CROSS JOIN pg_database AS d
WHERE d.datname = current_database() AND a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped`

const keyColumnsMySQL = `
SELECT column_name, data_type, COALESCE(collation_name, '')
FROM information_schema.columns
WHERE table_schema = COALESCE(%s, DATABASE()) AND table_name = %s`

// learn finds out which key columns sort as keys do by themselves. Only these
// are compared as they stand, so that any index on them serves; all others are
// converted row by row. A database that cannot say leaves all converted.
func (t *tables) learn(ctx context.Context) error {
	for _, arm := range t.each() {
		bare, err := t.bare(ctx, arm.database, arm.table)
		if err != nil {
			return fmt.Errorf("read columns of %s: %w", arm.table.Table, err)
		}
		arm.table.bare = bare
	}
	return nil
}

// arm is one of the tables, with where it is.
type arm struct {
	name     string
	table    *Table
	database Database
}

// each returns the arms that the check has.
func (t *tables) each() (all []arm) {
	for _, a := range []arm{{"write side", t.check.Write, t.write}, {"log", t.check.Log.table(), t.log}, {"read side", t.check.Read, t.read}} {
		if a.table != nil {
			all = append(all, a)
		}
	}
	return all
}

func (t *tables) bare(ctx context.Context, d Database, table *Table) ([]bool, error) {
	bare := make([]bool, len(t.kinds))
	s := &statement{dialect: d.Dialect}
	switch d.Dialect.family() {
	case Postgres:
		s.add(keyColumnsPostgres, s.bind(d.Dialect.table(table)))
	case MySQL:
		schema := any(nil)
		if table.Schema != "" {
			schema = table.Schema
		}
		s.add(keyColumnsMySQL, s.bind(schema), s.bind(table.Table))
	default:
		return bare, nil // its expressions cost nothing: they are the columns' own
	}
	ctx, cancel := t.limit(ctx)
	defer cancel()
	err := scan(ctx, d.DB, s, func(_ []column, got []any) error {
		if i := slices.Index(table.Key, textAt(got, 0)); i >= 0 {
			bare[i] = sortsAlone(d.Dialect, t.kinds[i], table.KeyStored[i], textAt(got, 1), textAt(got, 2))
		}
		return nil
	})
	return bare, err
}

// sortsAlone reports whether a column of a type and collation sorts as keys of
// a kind do. Text that is padded before it is compared does so but for keys
// with control characters; a read notices that, as it does every wrong order.
func sortsAlone(d Dialect, kind KeyKind, stored Stored, typeName, collation string) bool {
	bytewise := false
	switch d.family() {
	case Postgres:
		bytewise = slices.Contains([]string{"C", "POSIX", "ucs_basic", "pg_c_utf8"}, collation)
	case MySQL:
		charset, _, _ := strings.Cut(collation, "_")
		bytewise = slices.Contains([]string{"utf8mb4", "utf8mb3", "utf8", "ascii"}, charset) && strings.HasSuffix(collation, "_bin")
	}
	switch kind {
	case KeyText:
		return bytewise && typeName != "bpchar" && typeName != "char" // padded: compared without what pads them
	case KeyUUID:
		// Without regard to case, as the keys; text that has regard to it is
		// converted, for it may hold the same key in another case.
		return stored != StoredBinary && d.family() == MySQL && strings.HasSuffix(collation, "_ci")
	}
	return false
}
