package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// sorted is a part of a plan that sorts or reads far more rows than a range has.
type sorted struct {
	arm  arm
	rows int64 // about
}

// fewRows is how many times the rows of a range a table may have before it
// matters that no index serves.
const fewRows = 20

// plans asks each database how it would read its arm in the order of the keys,
// and returns the arms of which it would sort a large table for each range.
func (t *tables) plans(ctx context.Context) (found []sorted, err error) {
	for _, a := range t.each() {
		rows, err := t.sorts(ctx, a, t.check.ChunkRows)
		if err != nil {
			return nil, fmt.Errorf("%s: explain: %w", a.name, err)
		}
		enough := fewRows * t.check.ChunkRows
		if rows < 0 || rows > int64(enough) { // as far as the planner knows
			counted, err := t.atLeast(ctx, a, enough+1)
			if err != nil {
				return nil, fmt.Errorf("%s: count: %w", a.name, err)
			}
			if counted > int64(enough) {
				found = append(found, sorted{a, max(rows, counted)})
			}
		}
	}
	return found, nil
}

func (t *tables) unordered(ctx context.Context) (lines []string, err error) {
	found, err := t.plans(ctx)
	for _, f := range found {
		// MariaDB reads and sorts a smaller table rather than to look up each row.
		if rows, err := t.sorts(ctx, f.arm, 1); err == nil && rows == 0 {
			lines = append(lines, fmt.Sprintf("%s: its about %d rows are sorted, though an index gives them in the order of the keys: the database expects that to be cheaper", f.arm.name, f.rows))
			continue
		}
		lines = append(lines, fmt.Sprintf("%s: no index gives its about %d rows in the order of the keys; an index as in %s would", f.arm.name, f.rows, t.index(f.arm)))
	}
	return lines, err
}

// sorts returns about how many rows are sorted to read so many in order: 0 where
// an index gives the order, -1 where it is not known how many.
func (t *tables) sorts(ctx context.Context, a arm, limit int) (rows int64, err error) {
	ctx, cancel := t.limit(ctx)
	defer cancel()
	k := a.database.Dialect.keys(a.table, t.kinds)
	s := &statement{dialect: a.database.Dialect}
	s.text.WriteString(map[Dialect]string{Postgres: "EXPLAIN (FORMAT JSON) ", MySQL: "EXPLAIN ", SQLite: "EXPLAIN QUERY PLAN "}[s.dialect.family()])
	s.add("SELECT %s FROM %s", k.selected(), s.dialect.table(a.table))
	k.where(s, Range{})
	filter(s, a.table)
	s.add(" ORDER BY %s LIMIT %d", k.orderBy(), limit)
	err = a.database.snapshot(ctx, func(q queryer) error {
		return explain(ctx, q, s, func(names []string, row []string) error {
			switch s.dialect.family() {
			case Postgres:
				n, err := sortsPostgres(strings.Join(row, ""))
				rows = max(rows, n)
				return err
			case MySQL:
				rows = max(rows, sortsMySQL(names, row))
			default:
				if strings.Contains(strings.Join(row, " "), "TEMP B-TREE FOR ORDER BY") {
					rows = -1
				}
			}
			return nil
		})
	})
	return rows, err
}

// explain reads rows as text.
func explain(ctx context.Context, q queryer, s *statement, each func(names, row []string) error) (err error) {
	rows, err := q.QueryContext(ctx, s.text.String(), s.args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	names, err := rows.Columns()
	if err != nil {
		return err
	}
	values, targets := make([]any, len(names)), make([]any, len(names))
	for i := range values {
		targets[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		row := make([]string, len(names))
		for i := range values {
			row[i] = textAt(values, i)
		}
		if err := each(names, row); err != nil {
			return err
		}
	}
	return rows.Err()
}

// nodePostgres is a step of a plan.
type nodePostgres struct {
	Type  string         `json:"Node Type"`
	Rows  float64        `json:"Plan Rows"`
	Plans []nodePostgres `json:"Plans"`
}

// sortsPostgres finds the largest sort of a plan. One that only sorts within
// equal first columns is none.
func sortsPostgres(text string) (int64, error) {
	var explained []struct{ Plan nodePostgres }
	if err := json.Unmarshal([]byte(text), &explained); err != nil || len(explained) == 0 {
		return 0, errors.Join(err, errors.New("not a plan"))
	}
	var most func(n *nodePostgres) float64
	most = func(n *nodePostgres) (rows float64) {
		for i := range n.Plans {
			rows = max(rows, most(&n.Plans[i]))
			if n.Type == "Sort" {
				rows = max(rows, n.Plans[i].Rows)
			}
		}
		return rows
	}
	return int64(most(&explained[0].Plan)), nil
}

// sortsMySQL reads one line of the plan in its old form, which both servers have.
func sortsMySQL(names, row []string) int64 {
	var rows int64
	sorts := false
	for i, name := range names {
		switch strings.ToLower(name) {
		case "rows":
			rows, _ = strconv.ParseInt(row[i], 10, 64)
		case "extra":
			sorts = strings.Contains(row[i], "filesort")
		}
	}
	if !sorts {
		return 0
	}
	return rows
}

// atLeast counts the rows of an arm as far as it matters.
func (t *tables) atLeast(ctx context.Context, a arm, enough int) (rows int64, err error) {
	ctx, cancel := t.limit(ctx)
	defer cancel()
	s := &statement{dialect: a.database.Dialect}
	k := s.dialect.keys(a.table, t.kinds)
	s.add("SELECT COUNT(*) FROM (SELECT 1 AS one FROM %s", s.dialect.table(a.table))
	k.where(s, Range{})
	filter(s, a.table)
	s.add(" LIMIT %d) AS counted", enough)
	err = scan(ctx, a.database.DB, s, func(_ []column, got []any) error {
		rows, err = versionOf(got[0])
		return err
	})
	return rows, err
}

// index says which index would give an arm the order of the keys.
func (t *tables) index(a arm) string {
	d := a.database.Dialect
	k := d.keys(a.table, t.kinds)
	terms := make([]string, len(k.columns))
	for i := range terms {
		if terms[i] = k.order(i); terms[i] != k.columns[i] {
			terms[i] = "(" + terms[i] + ")"
		}
	}
	table := *a.table
	if a.name == "log" && t.check.Log.Outbox != nil { // read through a view
		table.Table = t.check.Log.Outbox.Names.WithDefaults().Event
	}
	return fmt.Sprintf("CREATE INDEX ... ON %s (%s)", d.table(&table), strings.Join(terms, ", "))
}
