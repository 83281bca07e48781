package reconcile

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/waybillhq/waybill"
)

var ledgerTables = []string{"meta", "lease", "run", "range", "finding", "coverage", "behind", "alert", "plan", "action"}

// schemaVersion is what Migrate brings the tables to.
const schemaVersion = 2

// columnTypes are the types of each family of dialects. Texts are bytewise.
var columnTypes = map[Dialect]map[string]string{
	SQLite: {
		"{name}": "TEXT NOT NULL", "{word}": "TEXT NOT NULL", "{text}": "TEXT NOT NULL", "{text?}": "TEXT", "{time}": "TEXT NOT NULL", "{time?}": "TEXT",
		"{options}": "",
	},
	Postgres: {
		"{name}": `VARCHAR(128) COLLATE "C" NOT NULL`, "{word}": `VARCHAR(64) COLLATE "C" NOT NULL`, "{text}": "TEXT NOT NULL", "{text?}": "TEXT",
		"{time}": "TIMESTAMPTZ NOT NULL", "{time?}": "TIMESTAMPTZ",
		"{options}": "",
	},
	MySQL: {
		"{name}": "VARCHAR(128) COLLATE utf8mb4_bin NOT NULL", "{word}": "VARCHAR(64) COLLATE utf8mb4_bin NOT NULL", "{text}": "LONGTEXT NOT NULL", "{text?}": "LONGTEXT",
		"{time}": "DATETIME(6) NOT NULL", "{time?}": "DATETIME(6)",
		"{options}": " ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin",
	},
}

const createMeta = `
CREATE TABLE IF NOT EXISTS {meta} (
  name {word} PRIMARY KEY,
  value {text}
){options}`

// createLease: one row for each check, the right to run it.
const createLease = `
CREATE TABLE IF NOT EXISTS {lease} (
  check_name {name} PRIMARY KEY,
  owner {name},
  fence BIGINT NOT NULL,
  expires_at {time}
){options}`

const createRun = `
CREATE TABLE IF NOT EXISTS {run} (
  id {word} PRIMARY KEY,
  check_name {name},
  mode {word},
  state {word},
  owner {name},
  definition {word},
  changed_since {time?},
  started_at {time},
  finished_at {time?},
  keys_compared BIGINT NOT NULL,
  differences BIGINT NOT NULL,
  in_flight BIGINT NOT NULL,
  unverified BIGINT NOT NULL,
  healed BIGINT NOT NULL,
  complete SMALLINT NOT NULL,
  error {text?},
  counts {text},
  report {text?}
){options}`

const createRange = `
CREATE TABLE IF NOT EXISTS {range} (
  run_id {word},
  seq BIGINT NOT NULL,
  from_key {text?},
  to_key {text?},
  keys_compared BIGINT NOT NULL,
  verified SMALLINT NOT NULL,
  error {text?},
  recorded_at {time},
  report {text?},
  PRIMARY KEY (run_id, seq)
){options}`

const createFinding = `
CREATE TABLE IF NOT EXISTS {finding} (
  id {word} PRIMARY KEY,
  check_name {name},
  class {word},
  side {word},
  finding_key {text},
  stored_key {text},
  state {word},
  detail {text},
  causes {text},
  missing BIGINT NOT NULL,
  sample {text},
  digest {word},
  seen BIGINT NOT NULL,
  first_seen {time},
  last_seen {time},
  resolved_at {time?},
  first_run {word},
  last_run {word},
  ignored_until {time?},
  decided_by {text?},
  reason {text?}
){options}`

const createCoverage = `
CREATE TABLE IF NOT EXISTS {coverage} (
  check_name {name},
  kind {word},
  definition {word},
  covered_from {time?},
  covered_until {time},
  updated_at {time},
  PRIMARY KEY (check_name, kind)
){options}`

// createBehind: since when a read model has lacked sent events, for as long as
// the log may forget the first of them.
const createBehind = `
CREATE TABLE IF NOT EXISTS {behind} (
  check_name {name},
  id {word},
  stored_key {text},
  since {time},
  read_version BIGINT NOT NULL,
  sent_version BIGINT NOT NULL,
  PRIMARY KEY (check_name, id)
){options}`

const createAlert = `
CREATE TABLE IF NOT EXISTS {alert} (
  check_name {name},
  name {word},
  firing SMALLINT NOT NULL,
  since {time},
  sent_at {time?},
  claimed_until {time},
  PRIMARY KEY (check_name, name)
){options}`

// createPlan: what is to be done about findings, and who has agreed to it.
const createPlan = `
CREATE TABLE IF NOT EXISTS {plan} (
  id {word} PRIMARY KEY,
  check_name {name},
  definition {word},
  digest {word},
  state {word},
  planned_by {name},
  planned_at {time},
  reason {text},
  approved_by {text?},
  approved_at {time?},
  applied_by {text?},
  finished_at {time?},
  healed BIGINT NOT NULL
){options}`

const createAction = `
CREATE TABLE IF NOT EXISTS {action} (
  plan_id {word},
  seq BIGINT NOT NULL,
  state {word},
  note {text},
  acted_by {text?},
  acted_at {time?},
  body {text},
  PRIMARY KEY (plan_id, seq)
){options}`

// The indexes; MySQL cannot be asked to make one only if it is missing.
const (
	createRunIndex     = `CREATE INDEX {run_by} ON {run} (check_name, started_at)`
	createFindingIndex = `CREATE INDEX {finding_by} ON {finding} (check_name, state)`
)

// Migrate makes the tables that are missing. It may be called at any time.
func (l *Ledger) Migrate(ctx context.Context) error {
	version, err := l.version(ctx)
	if err == nil && version == schemaVersion {
		return nil
	}
	if err == nil && version > schemaVersion {
		return l.failed("migrate results", "", fmt.Errorf("the tables are of version %d, this program knows %d: use a newer one", version, schemaVersion))
	}
	for _, create := range []string{createMeta, createLease, createRun, createRange, createFinding, createCoverage, createBehind, createAlert, createPlan, createAction} {
		if _, err := l.exec(ctx, l.db.DB, create); err != nil {
			return l.failed("migrate results", "", err)
		}
	}
	for _, create := range []string{createRunIndex, createFindingIndex} {
		if _, err := l.exec(ctx, l.db.DB, create); err != nil && !duplicate(err) {
			return l.failed("migrate results", "", err)
		}
	}
	if err := l.insertOnce(ctx, "INSERT INTO {meta} (name, value) VALUES ('version', ?)", strconv.Itoa(schemaVersion)); err != nil {
		return l.failed("migrate results", "", err)
	}
	_, err = l.exec(ctx, l.db.DB, "UPDATE {meta} SET value = ? WHERE name = 'version'", strconv.Itoa(schemaVersion))
	return l.failed("migrate results", "", err)
}

// Ready reports whether the tables are there and of this program's version.
func (l *Ledger) Ready(ctx context.Context) error {
	version, err := l.version(ctx)
	switch {
	case err != nil:
		return &waybill.Error{Op: "open results", Err: err, Hint: "waybill reconcile migrate makes the tables"}
	case version != schemaVersion:
		return &waybill.Error{
			Op: "open results", Err: fmt.Errorf("the tables are of version %d, this program knows %d", version, schemaVersion),
			Hint: "waybill reconcile migrate brings older tables up to date",
		}
	}
	return nil
}

func (l *Ledger) version(ctx context.Context) (version int, err error) {
	err = l.rows(ctx, l.db.DB, "SELECT value FROM {meta} WHERE name = 'version'", nil, func(r *ledgerRow) error {
		var err error
		version, err = strconv.Atoi(r.text())
		return err
	})
	if err == nil && version == 0 {
		err = errors.New("the tables are not complete")
	}
	return version, err
}

// insertOnce inserts a row unless its key is there already.
func (l *Ledger) insertOnce(ctx context.Context, template string, args ...any) error {
	switch l.dialect.family() {
	case MySQL:
		template = strings.Replace(template, "INSERT INTO", "INSERT IGNORE INTO", 1)
	default:
		template += " ON CONFLICT DO NOTHING"
	}
	_, err := l.exec(ctx, l.db.DB, template, args...)
	return err
}

// duplicate reports whether a name is taken: by two programs that migrate at
// once, or by an interrupted one.
func duplicate(err error) bool {
	text := strings.ToLower(err.Error())
	return strings.Contains(text, "already exists") || strings.Contains(text, "duplicate key name")
}
