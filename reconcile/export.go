package reconcile

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/waybillhq/waybill"
)

// Export is what another engine needs to find candidates: keys that may
// differ. It is no verdict: [Runner.Run] with [ModeKey] confirms candidates, so
// one that is stale or wrong costs a look at its key.
type Export struct {
	Check      string    `json:"check"`
	Definition string    `json:"definition"`
	Cut        time.Time `json:"cut"` // by the clock of the log's database
	Key        []string  `json:"key"` // the columns of a list of candidates
	// Arms are the statements that read whole arms, each in its database's own
	// words, as texts that are equal where values are; Ranges the same by parts.
	Arms   []ExportArm   `json:"arms"`
	Ranges []ExportRange `json:"ranges"`
	// Compare are the statements that make candidates of the arms, by engine:
	// duckdb, spark, trino.
	Compare map[string]string `json:"compare"`
}

// ExportArm is a statement that reads an arm.
type ExportArm struct {
	Arm      string   `json:"arm"` // write, log or read
	Database string   `json:"database"`
	Dialect  Dialect  `json:"dialect"`
	Columns  []string `json:"columns"`
	SQL      string   `json:"sql"`
}

// ExportRange is a range of keys, half open.
type ExportRange struct {
	From []string    `json:"from,omitempty"`
	To   []string    `json:"to,omitempty"`
	Arms []ExportArm `json:"arms"`
}

// Export writes down what is to be compared elsewhere, in ranges of about so
// many rows; zero for one range.
func (e *Engine) Export(ctx context.Context, rows int) (*Export, error) {
	c := e.check
	if e.bases == nil || c.Write == nil && c.Log == nil {
		return nil, &waybill.Error{Op: "export plan", Key: c.Name, Err: errors.New("the arms are no databases")}
	}
	r, err := e.newRun(ctx)
	if err != nil {
		return nil, err
	}
	r.now()
	x := &Export{Check: c.Name, Definition: c.Definition(), Cut: r.rules.Now, Compare: make(map[string]string)}
	for _, part := range c.Key {
		x.Key = append(x.Key, part.Name)
	}
	w := &exporter{tables: e.bases}
	if err := w.learnKinds(ctx); err != nil {
		return nil, &waybill.Error{Op: "export plan", Key: c.Name, Err: err}
	}
	x.Arms = w.arms(Range{})
	for from := (*Key)(nil); ; {
		to := (*Key)(nil)
		if rows > 0 {
			if to, err = e.bases.boundary(ctx, from, rows); err != nil {
				return nil, &waybill.Error{Op: "export plan", Key: c.Name, Err: err}
			}
		}
		whole := Range{From: from, To: to}
		part := ExportRange{Arms: w.arms(whole)}
		if from != nil {
			part.From = from.texts()
		}
		if to != nil {
			part.To = to.texts()
		}
		x.Ranges = append(x.Ranges, part)
		if to == nil {
			break
		}
		from = to
	}
	for name, words := range engines {
		x.Compare[name] = w.compare(&words)
	}
	return x, nil
}

// exporter writes statements for other engines.
type exporter struct {
	*tables
	kinds []Kind // by compared column: as what the other engine compares it
}

// learnKinds takes the kinds from the check, else from the columns' types: a
// payload has none.
func (w *exporter) learnKinds(ctx context.Context) error {
	w.kinds = make([]Kind, len(w.check.Compare))
	for i := range w.kinds {
		c := &w.check.Compare[i]
		if w.kinds[i] = c.As; c.As != KindAuto {
			continue
		}
		for _, arm := range []struct {
			table    *Table
			database Database
			name     string
		}{{w.check.Write, w.write, c.in(c.Write)}, {w.check.Read, w.read, c.in(c.Read)}} {
			if arm.table == nil || arm.name == "" || w.kinds[i] != KindAuto {
				continue
			}
			kind, err := w.kindOf(ctx, arm.database, arm.table, arm.name)
			if err != nil {
				return err
			}
			w.kinds[i] = kind
		}
	}
	return nil
}

func (w *exporter) kindOf(ctx context.Context, d Database, table *Table, name string) (kind Kind, err error) {
	ctx, cancel := w.limit(ctx)
	defer cancel()
	rows, err := d.DB.QueryContext(ctx, fmt.Sprintf("SELECT %s FROM %s WHERE 1 = 0", d.Dialect.quote(name), d.Dialect.table(table)))
	if err != nil {
		return KindAuto, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	types, err := columnsOf(rows)
	if err != nil || len(types) == 0 {
		return KindAuto, err
	}
	return types[0].kind(), rows.Err()
}

// arms are the statements of a range.
func (w *exporter) arms(r Range) (all []ExportArm) {
	c := w.check
	if c.Write != nil {
		all = append(all, w.rowArm("write", c.Write, w.write, r, func(i int) string { return c.Compare[i].in(c.Compare[i].Write) }))
	}
	if c.Log != nil {
		all = append(all, w.logArm(r))
	}
	if c.Read != nil {
		all = append(all, w.rowArm("read", c.Read, w.read, r, func(i int) string { return c.Compare[i].in(c.Compare[i].Read) }))
	}
	return all
}

// exported collects the columns of an arm.
type exported struct {
	dialect Dialect
	names   []string
	terms   []string
}

func (x *exported) add(name, term string) {
	x.names, x.terms = append(x.names, name), append(x.terms, term+" AS "+x.dialect.quote(name))
}

// text makes an expression a text that is empty for NULL alone.
func (x *exported) text(term string) string {
	switch x.dialect.family() {
	case MySQL:
		return "COALESCE(CONCAT('=', CAST(" + term + " AS CHAR)), '')"
	default:
		return "COALESCE('=' || CAST(" + term + " AS TEXT), '')"
	}
}

// key adds the parts of the key. A UUID is one text in every form.
func (x *exported) key(k keys) {
	for i, column := range k.columns {
		term := "CAST(" + column + " AS TEXT)"
		switch {
		case k.stored[i] == StoredBinary || k.kinds[i] == KeyBinary:
			term = map[Dialect]string{Postgres: "encode(" + column + ", 'hex')", MySQL: "LOWER(HEX(" + column + "))", SQLite: "LOWER(HEX(" + column + "))"}[x.dialect.family()]
		case x.dialect.family() == MySQL:
			term = "CAST(" + column + " AS CHAR)"
		}
		if k.kinds[i] == KeyUUID {
			term = "LOWER(REPLACE(" + term + ", '-', ''))"
		}
		x.add(fmt.Sprintf("k%d", i+1), term)
	}
}

func (w *exporter) rowArm(name string, table *Table, base Database, r Range, compared func(int) string) ExportArm {
	d := base.Dialect
	x := &exported{dialect: d}
	k := d.keys(table, w.tables.kinds)
	x.key(k)
	x.add("version", "COALESCE("+d.quote(table.Version)+", 0)")
	deleted := "0"
	if table.Deleted != "" {
		deleted = "CASE WHEN " + x.text(d.quote(table.Deleted)) + " IN ('', '=0', '=f', '=false') THEN 0 ELSE 1 END"
	}
	x.add("deleted", deleted)
	for i := range w.check.Compare {
		term := "''"
		if column := compared(i); column != "" {
			term = x.text(d.quote(column))
		}
		x.add(fmt.Sprintf("v%d", i+1), term)
	}
	return w.finish(name, table.Database, x, table, k, r)
}

func (w *exporter) logArm(r Range) ExportArm {
	log, d := w.check.Log, w.log.Dialect
	x := &exported{dialect: d}
	k := d.keys(&log.Table, w.tables.kinds)
	x.key(k)
	x.add("version", "COALESCE("+d.quote(log.Version)+", 0)")
	sent := "1"
	if log.State != "" {
		sent = "CASE WHEN " + d.quote(log.State) + " IN (" + d.words(log.Sent) + ") THEN 1 ELSE 0 END"
	}
	x.add("sent", sent)
	deleted := "0"
	if log.Type != "" && len(log.Deletes) > 0 {
		deleted = "CASE WHEN " + d.quote(log.Type) + " IN (" + d.words(log.Deletes) + ") THEN 1 ELSE 0 END"
	}
	x.add("deleted", deleted)
	for i := range w.check.Compare {
		c := &w.check.Compare[i]
		term := "''"
		switch path := c.in(c.Log); {
		case path == "":
		case log.Payload == "":
			term = x.text(d.quote(path))
		default:
			term = x.text(d.member(log, path))
		}
		x.add(fmt.Sprintf("v%d", i+1), term)
	}
	return w.finish("log", log.Database, x, &log.Table, k, r)
}

// member reads a member of a payload as text.
func (d Dialect) member(log *Log, path string) string {
	names := strings.Split(strings.TrimPrefix(path, "$."), ".")
	payload := d.quote(log.Payload)
	switch d.family() {
	case Postgres:
		if log.Outbox != nil {
			payload = "convert_from(" + payload + ", 'UTF8')"
		}
		return "CAST(" + payload + " AS json) #>> ARRAY[" + d.words(names) + "]"
	case MySQL:
		if log.Outbox != nil {
			payload = "CONVERT(" + payload + " USING utf8mb4)"
		}
		// A JSON null is no SQL NULL there, and unquoted it is a text.
		found := "JSON_EXTRACT(" + payload + ", " + d.literal("$."+jsonPath(names)) + ")"
		return "CASE WHEN JSON_TYPE(" + found + ") = 'NULL' THEN NULL ELSE JSON_UNQUOTE(" + found + ") END"
	}
	if log.Outbox != nil {
		payload = "CAST(" + payload + " AS TEXT)"
	}
	return "json_extract(" + payload + ", " + d.literal("$."+jsonPath(names)) + ")"
}

func jsonPath(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = `"` + strings.ReplaceAll(name, `"`, `\"`) + `"`
	}
	return strings.Join(quoted, ".")
}

func (w *exporter) finish(name, database string, x *exported, table *Table, k keys, r Range) ExportArm {
	s := &statement{dialect: x.dialect}
	s.add("%s", "SELECT "+strings.Join(x.terms, ",\n       ")+"\nFROM "+x.dialect.table(table)+"\n")
	k.where(s, r)
	filter(s, table)
	return ExportArm{Arm: name, Database: database, Dialect: x.dialect, Columns: x.names, SQL: s.inlined()}
}

// ReadCandidates reads a list of candidates: CSV with a heading that names the
// parts of the key, in any order, and perhaps other columns. A line that names
// no key is counted, and left out.
func (e *Engine) ReadCandidates(r io.Reader) (keys [][]string, strange int, err error) {
	fail := func(err error) ([][]string, int, error) {
		return nil, 0, &waybill.Error{Op: "read candidates", Key: e.check.Name, Err: err, Hint: "the first line names the columns of the key"}
	}
	reader := csv.NewReader(r)
	reader.FieldsPerRecord = -1
	heading, err := reader.Read()
	if err != nil {
		return fail(err)
	}
	at := make([]int, len(e.check.Key))
	for i, part := range e.check.Key {
		at[i] = -1
		for j, name := range heading {
			if strings.TrimSpace(strings.TrimPrefix(name, "\ufeff")) == part.Name {
				at[i] = j
			}
		}
		if at[i] < 0 {
			return fail(fmt.Errorf("there is no column %s", part.Name))
		}
	}
	kinds := e.check.kinds()
	for {
		line, err := reader.Read()
		switch {
		case errors.Is(err, io.EOF):
			return keys, strange, nil
		case err != nil:
			return fail(err)
		}
		texts := make([]string, len(at))
		whole := true
		for i, j := range at {
			if whole = whole && j < len(line); whole {
				texts[i] = line[j]
			}
		}
		if _, err := ParseKey(kinds, texts); err != nil || !whole {
			strange++
			continue
		}
		keys = append(keys, texts)
	}
}
