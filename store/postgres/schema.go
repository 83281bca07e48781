package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

//go:embed migrations/*.sql trigger/*.sql head/*.sql external/*.sql
var scripts embed.FS

// Keys of the meta table.
const (
	metaVersion = "schema_version"
	metaOutbox  = "outbox"  // version of the outbox tables
	metaInbox   = "inbox"   // version of the inbox tables
	metaTrigger = "trigger" // triggerVersion, or absent
	metaLanes   = "lane_function"
	metaHead    = "head" // headVersion, or absent
)

// laneFunction names the expressions for lane and hashes, whose values stored
// rows carry: others are another name, and a migration.
const laneFunction = "1"

// triggerVersion grows when the trigger functions change.
const triggerVersion = "1"

// headVersion grows when the table of heads or its trigger changes.
const headVersion = "1"

const (
	lockTimeout     = 2 * time.Second
	migrateAttempts = 15
	migrateBase     = 100 * time.Millisecond
)

const makeSchemaSQL = `
DO $waybill$
BEGIN
    -- Asked first, because IF NOT EXISTS alone wants the right to create one.
    IF to_regnamespace({schema_literal}) IS NULL THEN
        CREATE SCHEMA {schema};
    END IF;
END $waybill$`

// Functions take over this path; see trigger/create_functions.sql.
const namedPathSQL = `SELECT set_config('search_path', {search_path_literal}, true)`

const ownPathSQL = `SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true)`

const writeMetaSQL = `
INSERT INTO {meta} AS m (key, value) VALUES (%s, %s)
ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value WHERE m.value <> EXCLUDED.value`

const deleteTriggerMetaSQL = `DELETE FROM {meta} WHERE key = 'trigger'`

// Migrate brings the tables to the present version.
//
// Everything happens in one transaction under an advisory lock of that
// transaction, so several processes may start at once, through a pooler too.
func (s *Store) Migrate(ctx context.Context, options store.MigrateOptions) error {
	for attempt := 0; ; attempt++ {
		fill := false
		err := retry(ctx, func() (err error) { fill, err = s.migrate(ctx, options); return err })
		if err == nil && fill {
			err = s.fillHeads(ctx)
		}
		if codeOf(err) != codeLockTimeout || attempt == migrateAttempts {
			return failure("migrate", "", err)
		}
		if pause(ctx, migrateBase, attempt) != nil {
			return failure("migrate", "", err)
		}
	}
}

// migrate reports whether heads are to be filled: it has made their table, or
// the trigger that was to keep them.
func (s *Store) migrate(ctx context.Context, options store.MigrateOptions) (fill bool, err error) {
	err = pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if err := s.lockMigration(ctx, tx); err != nil {
			return err
		}
		done, err := s.readMetaRows(ctx, tx)
		if err != nil && !errors.Is(err, store.ErrNoSchema) {
			return err
		}
		if version, _ := strconv.Atoi(done[metaVersion]); version > store.SchemaVersion {
			return store.CheckVersion(version)
		}
		kept := false
		if done[metaHead] != "" {
			if err := tx.QueryRow(ctx, s.sql(readHeadTriggerSQL)).Scan(&kept); err != nil {
				return err
			}
		}
		for _, step := range s.plan(options, done) {
			if _, err := tx.Exec(ctx, step, pgx.QueryExecModeSimpleProtocol); err != nil {
				return err
			}
		}
		fill = options.Head && done[metaHead] == "" || done[metaHead] != "" && !kept && !options.NoTrigger
		return nil
	})
	return fill && err == nil, err
}

// MigrateSQL returns the statements that Migrate runs on an empty database.
func (s *Store) MigrateSQL(options store.MigrateOptions) string {
	var b strings.Builder
	b.WriteString("BEGIN;\n")
	for _, step := range s.plan(options, nil) {
		b.WriteString("\n" + strings.TrimRight(strings.TrimSpace(step), ";") + ";\n")
	}
	b.WriteString("\nCOMMIT;\n")
	return b.String()
}

// plan returns what is to be run where the meta rows done are found.
func (s *Store) plan(options store.MigrateOptions, done map[string]string) []string {
	var steps []string
	add := func(template string) { steps = append(steps, s.names.expand(template)) }
	current := strconv.Itoa(store.SchemaVersion)
	record := func(key, value string) {
		if done[key] != value {
			add(fmt.Sprintf(writeMetaSQL, quoteLiteral(key), quoteLiteral(value)))
		}
	}
	if s.names.Schema != "" {
		add(makeSchemaSQL)
		add(namedPathSQL)
	} else {
		add(ownPathSQL)
	}
	if done == nil {
		add(script("migrations/000_create_meta.sql"))
	}
	for _, side := range []struct {
		skip  bool
		key   string
		files [store.SchemaVersion]string // by version; empty where it changes nothing of this side
	}{
		{options.SkipOutbox, metaOutbox, [...]string{"create_outbox", "", "create_position"}},
		{options.SkipInbox, metaInbox, [...]string{"create_inbox", "add_effects", ""}},
	} {
		have, _ := strconv.Atoi(done[side.key])
		if side.skip && have == 0 {
			continue
		}
		for version, file := range side.files {
			if version++; have < version && file != "" {
				add(script(fmt.Sprintf("migrations/%03d_%s.sql", version, file)))
			}
		}
		if side.key == metaOutbox {
			record(metaLanes, laneFunction)
		}
		record(side.key, current)
	}
	if hasOutbox := !options.SkipOutbox || done[metaOutbox] != ""; hasOutbox {
		switch {
		case done[store.MetaDelivery] != "":
			// The triggers are as the switch of the delivery has left them.
		case options.NoTrigger:
			if done != nil { // nothing to remove from an empty database
				add(script("trigger/remove.sql"))
				add(deleteTriggerMetaSQL)
			}
		default:
			if done[metaTrigger] != triggerVersion {
				add(script("trigger/create_functions.sql"))
			}
			add(script("trigger/install.sql"))
			record(metaTrigger, triggerVersion)
		}
		if options.Head || done[metaHead] != "" {
			if done[metaHead] != headVersion {
				add(script("head/create.sql"))
			}
			if !options.NoTrigger {
				add(script("head/install.sql"))
			}
			record(metaHead, headVersion)
		}
	}
	record(metaVersion, current)
	return steps
}

func script(name string) string {
	text, err := scripts.ReadFile(name)
	if err != nil {
		panic(err) // it is part of this program
	}
	return putHead.Replace(string(text))
}

const readMetaSQL = `SELECT key, value FROM {meta}`

// querier is what a pool and a transaction have in common.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

const metaExistsSQL = `SELECT to_regclass({meta_literal}) IS NOT NULL`

// readMetaRows asks first whether the table exists, since an error would end
// the transaction.
func (s *Store) readMetaRows(ctx context.Context, q querier) (map[string]string, error) {
	var exists bool
	if err := q.QueryRow(ctx, s.sql(metaExistsSQL)).Scan(&exists); err != nil {
		return nil, err
	}
	if !exists {
		return nil, store.ErrNoSchema
	}
	rows, err := q.Query(ctx, s.sql(readMetaSQL))
	if err != nil {
		return nil, err
	}
	values := make(map[string]string)
	var key, value string
	_, err = pgx.ForEachRow(rows, []any{&key, &value}, func() error {
		values[key] = value
		return nil
	})
	return values, err
}

const readTriggerSQL = `
SELECT EXISTS (SELECT FROM pg_trigger
               WHERE tgrelid = to_regclass({event_literal}) AND tgname = 'waybill_queue' AND tgenabled IN ('O', 'A'))`

const readHeadTriggerSQL = `
SELECT EXISTS (SELECT FROM pg_trigger
               WHERE tgrelid = to_regclass({event_literal}) AND tgname = 'waybill_head' AND tgenabled IN ('O', 'A'))`

const readSequenceSQL = `
SELECT COALESCE((SELECT seqcache FROM pg_sequence
                 WHERE seqrelid = pg_get_serial_sequence({event_literal}, 'id')::regclass), 1)`

// ReadMeta returns what the tables say of themselves. It refuses an id sequence
// with a cache: ids would no longer follow the order of insertion.
func (s *Store) ReadMeta(ctx context.Context) (store.Meta, error) {
	values, err := s.readMetaRows(ctx, s.pool)
	if errors.Is(err, store.ErrNoSchema) {
		return store.Meta{}, &waybill.Error{Op: "postgres: read meta", Key: s.names.expand("{meta}"), Err: err, Hint: hints[codeNoTable]}
	}
	if err != nil {
		return store.Meta{}, failure("read meta", "", err)
	}
	var meta store.Meta
	if meta.Version, err = strconv.Atoi(values[metaVersion]); err != nil {
		return meta, failure("read meta", metaVersion, err)
	}
	meta.Outbox, meta.Inbox, meta.Head = values[metaOutbox] != "", values[metaInbox] != "", values[metaHead] != ""
	if err := store.CheckVersion(meta.Version); err != nil {
		return meta, failure("read meta", "", err)
	}
	if !meta.Outbox {
		return meta, nil
	}
	if err := store.CheckLanes(values[metaLanes], laneFunction); err != nil {
		return meta, failure("read meta", "", err)
	}
	if err := s.pool.QueryRow(ctx, s.sql(readTriggerSQL)).Scan(&meta.Trigger); err != nil {
		return meta, failure("read meta", "", err)
	}
	if err := s.pool.QueryRow(ctx, s.sql(readHeadTriggerSQL)).Scan(&meta.HeadTrigger); err != nil {
		return meta, failure("read meta", "", err)
	}
	var cache int64
	if err := s.pool.QueryRow(ctx, s.sql(readSequenceSQL)).Scan(&cache); err != nil {
		return meta, failure("read meta", "", err)
	}
	if cache != 1 {
		return meta, &waybill.Error{
			Op: "postgres: read meta", Key: s.names.expand("{event}"), Err: fmt.Errorf("the sequence of ids has a cache of %d", cache),
			Hint: "ALTER SEQUENCE ... CACHE 1: with more, ids do not follow the order of insertion",
		}
	}
	return meta, nil
}

const pingSQL = `SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean`

var errReadOnly = errors.New("the database is read-only")

// Ping reports whether the database answers and accepts writes.
func (s *Store) Ping(ctx context.Context) error {
	var readOnly bool
	if err := s.pool.QueryRow(ctx, s.sql(pingSQL)).Scan(&readOnly); err != nil {
		return failure("ping", "", err)
	}
	if readOnly {
		return &waybill.Error{Op: "postgres: ping", Err: errReadOnly, Hint: hints[codeReadOnly]}
	}
	return nil
}
