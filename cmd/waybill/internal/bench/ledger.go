package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/cmd/waybill/internal/checks"
	"github.com/waybillhq/waybill/reconcile"
)

// The tables of a loan, as reconciliation is mostly used: rows, what was said of
// them, and what others made of that. Text sorts bytewise, as keys should.
var createLoans = statements{
	kindPostgres: `CREATE TABLE loan (id TEXT COLLATE "C" PRIMARY KEY, status TEXT NOT NULL, amount NUMERIC(12, 2) NOT NULL, version BIGINT NOT NULL, updated_at TIMESTAMPTZ NOT NULL)`,
	kindMySQL:    `CREATE TABLE loan (id VARCHAR(40) COLLATE utf8mb4_bin PRIMARY KEY, status VARCHAR(20) NOT NULL, amount DECIMAL(12, 2) NOT NULL, version BIGINT NOT NULL, updated_at DATETIME(6) NOT NULL)`,
	kindSQLite:   `CREATE TABLE loan (id TEXT PRIMARY KEY, status TEXT NOT NULL, amount NUMERIC NOT NULL, version INTEGER NOT NULL, updated_at TEXT NOT NULL) WITHOUT ROWID`,
}

var createView = statements{
	kindPostgres: `CREATE TABLE loan_view (id TEXT COLLATE "C" PRIMARY KEY, status TEXT NOT NULL, amount NUMERIC(12, 2) NOT NULL, version BIGINT NOT NULL, last_event_id TEXT NOT NULL)`,
	kindMySQL:    `CREATE TABLE loan_view (id VARCHAR(40) COLLATE utf8mb4_bin PRIMARY KEY, status VARCHAR(20) NOT NULL, amount DECIMAL(12, 2) NOT NULL, version BIGINT NOT NULL, last_event_id VARCHAR(60) NOT NULL)`,
	kindSQLite:   `CREATE TABLE loan_view (id TEXT PRIMARY KEY, status TEXT NOT NULL, amount NUMERIC NOT NULL, version INTEGER NOT NULL, last_event_id TEXT NOT NULL) WITHOUT ROWID`,
}

var createOwnLog = statements{
	kindPostgres: `CREATE TABLE loan_event (loan_id TEXT COLLATE "C" NOT NULL, version BIGINT NOT NULL, event_id TEXT NOT NULL, kind TEXT NOT NULL, status TEXT NOT NULL, amount NUMERIC(12, 2) NOT NULL, state TEXT NOT NULL, created_at TIMESTAMPTZ NOT NULL, PRIMARY KEY (loan_id, version))`,
	kindMySQL:    `CREATE TABLE loan_event (loan_id VARCHAR(40) COLLATE utf8mb4_bin NOT NULL, version BIGINT NOT NULL, event_id VARCHAR(60) NOT NULL, kind VARCHAR(40) NOT NULL, status VARCHAR(20) NOT NULL, amount DECIMAL(12, 2) NOT NULL, state VARCHAR(10) NOT NULL, created_at DATETIME(6) NOT NULL, PRIMARY KEY (loan_id, version))`,
	kindSQLite:   `CREATE TABLE loan_event (loan_id TEXT NOT NULL, version INTEGER NOT NULL, event_id TEXT NOT NULL, kind TEXT NOT NULL, status TEXT NOT NULL, amount NUMERIC NOT NULL, state TEXT NOT NULL, created_at TEXT NOT NULL, PRIMARY KEY (loan_id, version)) WITHOUT ROWID`,
}

const createDigits = `CREATE TABLE digit (d INTEGER NOT NULL PRIMARY KEY)`

const insertDigits = `INSERT INTO digit (d) VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)`

// fillStep is how many keys one statement makes.
const fillStep = 100_000

// What the statements below have in common: s.n is the number of a loan.
var phrases = map[string]statements{
	"{id}": {
		kindPostgres: `'L-' || LPAD(CAST(s.n AS TEXT), 9, '0')`, kindMySQL: `CONCAT('L-', LPAD(s.n, 9, '0'))`, kindSQLite: `printf('L-%09d', s.n)`,
	},
	"{event}": {
		kindPostgres: `'L-' || s.n || '-{version}'`, kindMySQL: `CONCAT('L-', s.n, '-{version}')`, kindSQLite: `'L-' || s.n || '-{version}'`,
	},
	"{amount}": {
		kindPostgres: `CAST(MOD(s.n, 100000) / 100.0 AS NUMERIC(12, 2))`, kindMySQL: `CAST(MOD(s.n, 100000) / 100.0 AS DECIMAL(12, 2))`, kindSQLite: `((s.n % 100000) / 100.0)`,
	},
	"{document}": {
		kindPostgres: `CONVERT_TO('{"status": "' || {status} || '", "amount": ' || {amount} || ', "note": "the {version}th thing that was said of this loan"}', 'UTF8')`,
		kindMySQL:    `CONCAT('{"status": "', {status}, '", "amount": ', {amount}, ', "note": "the {version}th thing that was said of this loan"}')`,
		kindSQLite:   `CAST('{"status": "' || {status} || '", "amount": ' || {amount} || ', "note": "the {version}th thing that was said of this loan"}' AS BLOB)`,
	},
}

const (
	status = `CASE WHEN {version} < {versions} THEN 'ON_LOAN' ELSE 'RETURNED' END`

	numbers = `
FROM (SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 10000 * f.d + {first} AS n
      FROM digit AS a CROSS JOIN digit AS b CROSS JOIN digit AS c CROSS JOIN digit AS e CROSS JOIN digit AS f) AS s
WHERE s.n <= {last}
ORDER BY s.n`

	insertLoans = `
INSERT INTO loan (id, status, amount, version, updated_at)
SELECT {id}, {status}, {amount}, {version}, '2026-01-01 00:00:00'` + numbers

	insertView = `
INSERT INTO loan_view (id, status, amount, version, last_event_id)
SELECT {id}, {status}, {amount}, {version}, {event}` + numbers

	insertOwnLog = `
INSERT INTO loan_event (loan_id, version, event_id, kind, status, amount, state, created_at)
SELECT {id}, {version}, {event}, 'loan.changed', {status}, {amount}, 'SENT', '2026-01-01 00:00:00'` + numbers

	insertEvents = `
INSERT INTO outbox_event (id, event_id, aggregate_type, aggregate_id, aggregate_version, event_type, topic, event_key, payload)
SELECT (s.n - 1) * {versions} + {version}, {event}, 'loan', {id}, {version}, 'loan.changed', 'loans', {id}, {document}` + numbers

	insertReceipts = `
INSERT INTO outbox_receipt (id, event_id, outcome, via, published_to, note)
SELECT (s.n - 1) * {versions} + {version}, {event}, 'SENT', 'poll', 'loans', ''` + numbers
)

// statement completes a template for a stretch of loans at one of their versions.
func (d *database) statement(template string, first, last, version, versions int) string {
	for range 3 { // phrases are in phrases
		for mark, phrase := range phrases {
			template = strings.ReplaceAll(template, mark, phrase.of(d.kind))
		}
		template = strings.ReplaceAll(template, "{status}", status)
	}
	return strings.NewReplacer(
		"{first}", fmt.Sprint(first), "{last}", fmt.Sprint(last), "{version}", fmt.Sprint(version), "{versions}", fmt.Sprint(versions),
	).Replace(template)
}

// fill makes the tables, all equal. Rows lie in the order of their keys.
func (l *ledger) fill(ctx context.Context, o *ReconcileOptions) error {
	for _, on := range []*database{l.db, l.readDB} {
		for _, statement := range []string{createDigits, insertDigits} {
			if _, err := on.db.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		if l.readDB == l.db {
			break
		}
	}
	type part struct {
		on       *database
		create   statements
		insert   []string
		versions bool
	}
	parts := []part{{l.db, createLoans, []string{insertLoans}, false}, {l.readDB, createView, []string{insertView}, false}}
	if o.Log == LogOutbox {
		parts = append(parts, part{l.db, nil, []string{insertEvents, insertReceipts}, true})
	} else {
		parts = append(parts, part{l.db, createOwnLog, []string{insertOwnLog}, true})
	}
	for _, p := range parts {
		if p.create != nil {
			if _, err := p.on.db.ExecContext(ctx, p.create.of(p.on.kind)); err != nil {
				return err
			}
		}
		for first := 0; first < o.Keys; first += fillStep {
			from := o.Versions
			if p.versions {
				from = 1
			}
			for version := from; version <= o.Versions; version++ {
				for _, insert := range p.insert {
					text := p.on.statement(insert, first+1, min(first+fillStep, o.Keys), version, o.Versions)
					if _, err := p.on.db.ExecContext(ctx, text); err != nil {
						return fmt.Errorf("%w: %s", err, text)
					}
				}
			}
		}
	}
	o.say("%d keys, %d events", o.Keys, o.Keys*o.Versions)
	return errors.Join(l.db.settle(ctx), l.readDB.settle(ctx))
}

// settle lets the database learn what is in the tables.
func (d *database) settle(ctx context.Context) error {
	if text := settleSQL.of(d.kind); text != "" {
		_, err := d.db.ExecContext(ctx, text)
		return err
	}
	return nil
}

// A table that is not there is no error of MySQL's.
var settleSQL = statements{
	kindPostgres: `VACUUM ANALYZE`, kindSQLite: `ANALYZE`,
	kindMySQL: `ANALYZE TABLE loan, loan_view, loan_event, outbox_event, outbox_pending, outbox_receipt`,
}

// comparison is what an arm is to compare, or to read one side of.
type comparison struct {
	ReadStore, ReadDSN string
	Log                string
	Keys               int
	Side               string
}

const (
	armReconcile = "reconcile"
	armScan      = "scan"

	sideWrite = "rows"
	sideLog   = "log"
	sideRead  = "read"
	sideAll   = "all" // the three at once
)

// arms opens the databases of the three, as "waybill reconcile" does.
func (t *task) arms(ctx context.Context) (shop, search reconcile.Database, leave func(), err error) {
	c := t.Compare
	shop, leaveShop, err := arm(ctx, t.Store, t.DSN)
	if err != nil || c.ReadDSN == t.DSN {
		return shop, shop, leaveShop, err
	}
	search, leaveSearch, err := arm(ctx, c.ReadStore, c.ReadDSN)
	if err != nil {
		leaveShop()
		return shop, search, nil, err
	}
	return shop, search, func() { leaveShop(); leaveSearch() }, nil
}

func arm(ctx context.Context, kind, dsn string) (d reconcile.Database, leave func(), err error) {
	if kind == kindPostgres { // the store's pool would be another way than the command's
		db, err := checks.Connect(kind, dsn, false)
		if err != nil {
			return d, nil, err
		}
		return checks.Of(db, kind), func() { _ = db.Close() }, nil
	}
	made, err := openDatabase(ctx, kind, dsn)
	if err != nil {
		return d, nil, err
	}
	return checks.Of(made.db, kind), func() { _ = made.close() }, nil
}

// compare compares all three.
func (t *task) compare(ctx context.Context) (*outcome, error) {
	c := t.Compare
	shop, search, leave, err := t.arms(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	log := &reconcile.Log{Table: reconcile.Table{Database: "shop", Table: "loan_event", Key: []string{"loan_id"}, Version: "version", EventID: "event_id"}, State: "state", CreatedAt: "created_at"}
	if c.Log == LogOutbox {
		log = &reconcile.Log{Table: reconcile.Table{Database: "shop"}, Outbox: &reconcile.Outbox{AggregateType: "loan"}}
	}
	engine, err := reconcile.New(reconcile.Check{
		Name: "loans", Key: []reconcile.KeyPart{{Name: "id"}}, Compare: []reconcile.Column{{Name: "status"}, {Name: "amount"}},
		Write: &reconcile.Table{Database: "shop", Table: "loan", Version: "version", UpdatedAt: "updated_at"}, Log: log,
		Read:    &reconcile.Table{Database: "search", Table: "loan_view", Version: "version", EventID: "last_event_id"},
		Confirm: []time.Duration{},
	}, reconcile.Databases{
		"shop":   shop,
		"search": search,
	}, nil)
	if err != nil {
		return nil, err
	}
	began := now()
	report, err := engine.Run(ctx)
	if err != nil {
		return nil, err
	}
	if report.Differences+report.InFlight+report.Unverified > 0 {
		return nil, &waybill.Error{Op: "bench", Err: fmt.Errorf("equal tables have findings: %s: %v", report.Summary(), report.Findings[0].Detail)}
	}
	return &outcome{Events: int(report.Keys), Seconds: since(began)}, nil
}
