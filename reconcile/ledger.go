package reconcile

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/waybillhq/waybill"
)

// Ledger keeps [Results] in tables of a database. It implements [Findings] and
// [History] too.
type Ledger struct {
	db      Database
	names   *strings.Replacer
	keep    time.Duration
	clock   Clock
	dialect Dialect
}

var (
	_ Results = (*Ledger)(nil)
	_ Records = (*Ledger)(nil)
)

// LedgerConfig says where the tables are. Nil means all defaults.
type LedgerConfig struct {
	Prefix string        // of the tables' names. Default "reconcile_"
	Keep   time.Duration // how long runs and resolved findings are kept, at least 30 days. Default 30 days
	Clock  Clock         // default: the machine's
}

// minKeep is what people need to look back at.
const minKeep = 30 * 24 * time.Hour

// NewLedger makes a ledger; [Ledger.Migrate] makes its tables. The database must
// let itself be written.
func NewLedger(db Database, config *LedgerConfig) (*Ledger, error) {
	c := LedgerConfig{}
	if config != nil {
		c = *config
	}
	if c.Prefix == "" {
		c.Prefix = "reconcile_"
	}
	if c.Keep == 0 {
		c.Keep = minKeep
	}
	if c.Clock == nil {
		c.Clock = wallClock{}
	}
	fail := func(err error) (*Ledger, error) { return nil, &waybill.Error{Op: "open results", Err: err} }
	switch {
	case db.DB == nil || !db.Dialect.known():
		return fail(errors.New("the database is missing, or its dialect unknown"))
	case c.Keep < minKeep:
		return fail(fmt.Errorf("keep: %s is less than 30 days", c.Keep))
	case len(c.Prefix) > 40: // PostgreSQL cuts names at 63 bytes
		return fail(fmt.Errorf("prefix: %q is longer than 40 bytes", c.Prefix))
	}
	l := &Ledger{db: db, keep: c.Keep, clock: c.Clock, dialect: db.Dialect}
	pairs := []string{"{now}", nowOf[db.Dialect.family()], "{later}", laterOf[db.Dialect.family()]}
	for _, noun := range ledgerTables {
		pairs = append(pairs, "{"+noun+"}", db.Dialect.quote(c.Prefix+noun), "{"+noun+"_by}", db.Dialect.quote(c.Prefix+noun+"_by"))
	}
	for placeholder, text := range columnTypes[db.Dialect.family()] {
		pairs = append(pairs, placeholder, text)
	}
	l.names = strings.NewReplacer(pairs...)
	return l, nil
}

// The time of the database, and that time and some microseconds.
var (
	nowOf = map[Dialect]string{
		SQLite:   `strftime('%Y-%m-%dT%H:%M:%fZ', 'now')`,
		Postgres: `clock_timestamp()`,
		MySQL:    `UTC_TIMESTAMP(6)`,
	}
	laterOf = map[Dialect]string{
		SQLite:   `strftime('%Y-%m-%dT%H:%M:%fZ', 'now', printf('+%.3f seconds', ? / 1000000.0))`,
		Postgres: `clock_timestamp() + CAST(? AS BIGINT) * INTERVAL '1 microsecond'`,
		MySQL:    `TIMESTAMPADD(MICROSECOND, ?, UTC_TIMESTAMP(6))`,
	}
)

// text puts names and placeholders into a statement.
func (l *Ledger) text(template string) string {
	text := l.names.Replace(template)
	if l.dialect != Postgres {
		return text
	}
	var b strings.Builder
	for n := 1; ; n++ {
		before, after, found := strings.Cut(text, "?")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		fmt.Fprintf(&b, "$%d", n)
		text = after
	}
}

// executor is a transaction or a database that is written.
type executor interface {
	queryer
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// exec runs a statement and returns how many rows it touched.
func (l *Ledger) exec(ctx context.Context, x executor, template string, args ...any) (int64, error) {
	result, err := x.ExecContext(ctx, l.text(template), l.params(args)...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// rows runs a query and hands over each row.
func (l *Ledger) rows(ctx context.Context, q queryer, template string, args []any, each func(r *ledgerRow) error) error {
	s := &statement{dialect: l.dialect, args: l.params(args)}
	s.text.WriteString(l.text(template))
	return scan(ctx, q, s, func(types []column, values []any) error {
		return each(&ledgerRow{types: types, values: values})
	})
}

// params turns times into what the columns take.
func (l *Ledger) params(args []any) []any {
	out := make([]any, len(args))
	for i, arg := range args {
		switch x := arg.(type) {
		case time.Time:
			out[i] = nil
			if !x.IsZero() {
				out[i] = l.dialect.timeParam(x.Truncate(time.Microsecond))
			}
		case *time.Time:
			out[i] = nil
			if x != nil {
				out[i] = l.dialect.timeParam(x.Truncate(time.Microsecond))
			}
		case bool:
			out[i] = map[bool]int64{true: 1}[x]
		case Class, Side, Mode, RunState, FindingState:
			out[i] = fmt.Sprint(x)
		default:
			out[i] = arg
		}
	}
	return out
}

// ledgerRow takes the columns of a row one by one.
type ledgerRow struct {
	types  []column
	values []any
	at     int
}

func (r *ledgerRow) text() string {
	r.at++
	return textAt(r.values, r.at-1)
}

func (r *ledgerRow) number() int64 {
	r.at++
	n, err := versionOf(r.values[r.at-1])
	if err != nil {
		return 0
	}
	return n
}

func (r *ledgerRow) time() time.Time {
	r.at++
	return timeAt(r.types, r.values, r.at-1)
}

func (r *ledgerRow) timeOrNil() *time.Time {
	at := r.time()
	if at.IsZero() {
		return nil
	}
	return &at
}

// transaction runs f in a transaction. Of the statements in it the first one
// writes, so that SQLite has to wait for nobody later.
func (l *Ledger) transaction(ctx context.Context, f func(tx executor) error) error {
	tx, err := l.db.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// now returns the time of the database.
func (l *Ledger) now(ctx context.Context) (at time.Time, err error) {
	err = l.rows(ctx, l.db.DB, "SELECT {now}", nil, func(r *ledgerRow) error {
		at = r.time()
		return nil
	})
	return at, err
}

func (l *Ledger) failed(op, key string, err error) error {
	if err == nil {
		return nil
	}
	var known *waybill.Error
	if errors.As(err, &known) {
		return err
	}
	return &waybill.Error{Op: op, Key: key, Err: err}
}
