package mysql

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

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

// triggerVersion grows when the triggers change.
const triggerVersion = "1"

// headVersion grows when the table of heads or its trigger changes.
const headVersion = "1"

const (
	// While a statement waits for a table's lock, everybody who comes after it
	// waits too: better to give up at once and try again.
	lockTimeoutSQL  = `SET SESSION lock_wait_timeout = 1`
	defaultLocksSQL = `SET SESSION lock_wait_timeout = DEFAULT`
	lockSQL         = `SELECT GET_LOCK(?, 1)`
	unlockSQL       = `SELECT RELEASE_LOCK(?)`

	migrateAttempts = 15
	migrateBase     = 100 * time.Millisecond
)

const makeSchemaSQL = `CREATE DATABASE IF NOT EXISTS {schema} CHARACTER SET utf8mb4`

const schemaExistsSQL = `SELECT 1 FROM information_schema.schemata WHERE schema_name = ?`

const writeMetaSQL = "INSERT INTO {meta} (`key`, `value`) VALUES ('%s', '%s') ON DUPLICATE KEY UPDATE `value` = VALUES(`value`)"

const deleteTriggerMetaSQL = "DELETE FROM {meta} WHERE `key` = 'trigger'"

// Migrate brings the tables to the present version.
//
// The server commits each statement that changes a table by itself, so each of
// them may be repeated, and the meta table is written last. A lock of the
// session keeps several processes that start at once from doing it at the same
// time.
func (s *Store) Migrate(ctx context.Context, options store.MigrateOptions) error {
	return failure("migrate", "", s.migrateLocked(ctx, options))
}

func (s *Store) migrateLocked(ctx context.Context, options store.MigrateOptions) error {
	return s.underLock(ctx, func(conn *sql.Conn) error { return s.migrate(ctx, conn, options) })
}

// underLock keeps others out who change these tables by the same lock, and has
// the connection give up early on the locks of tables.
func (s *Store) underLock(ctx context.Context, do func(conn *sql.Conn) error) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	name, err := s.lockName(ctx, conn)
	if err != nil {
		return err
	}
	for {
		var got sql.NullInt64
		if err := conn.QueryRowContext(ctx, lockSQL, name).Scan(&got); err != nil {
			return err
		}
		if got.Int64 == 1 {
			break
		}
	}
	last := context.WithoutCancel(ctx)
	defer func() {
		_, _ = conn.ExecContext(last, defaultLocksSQL)
		_, _ = conn.ExecContext(last, unlockSQL, name)
	}()
	if _, err := conn.ExecContext(ctx, lockTimeoutSQL); err != nil {
		return err
	}
	return do(conn)
}

// lockName is one for each set of tables; the server has these locks in common
// for all databases, and limits their names to 64 characters.
func (s *Store) lockName(ctx context.Context, conn *sql.Conn) (string, error) {
	var database string
	if err := conn.QueryRowContext(ctx, `SELECT DATABASE()`).Scan(&database); err != nil {
		return "", err
	}
	if s.names.Schema != "" {
		database = s.names.Schema
	}
	sum := sha256.Sum256([]byte(qualify(database, s.names.Meta)))
	return "waybill " + hex.EncodeToString(sum[:16]), nil
}

func (s *Store) migrate(ctx context.Context, conn *sql.Conn, options store.MigrateOptions) error {
	run := func(statement string) error { return patiently(ctx, conn, statement) }
	if s.names.Schema != "" {
		// Asked first, because IF NOT EXISTS alone wants the right to create one.
		var one int
		err := conn.QueryRowContext(ctx, schemaExistsSQL, s.names.Schema).Scan(&one)
		if errors.Is(err, sql.ErrNoRows) {
			err = run(s.names.expand(makeSchemaSQL))
		}
		if err != nil {
			return err
		}
	}
	done, err := s.readMetaRows(ctx, conn)
	if err != nil && !errors.Is(err, store.ErrNoSchema) {
		return err
	}
	if version, _ := strconv.Atoi(done[metaVersion]); version > store.SchemaVersion {
		return store.CheckVersion(version)
	}
	_, kept, err := s.readTriggers(ctx, conn, done)
	if err != nil {
		return err
	}
	for _, step := range s.plan(options, done) {
		if err := run(step); err != nil {
			return err
		}
	}
	if options.Head && done[metaHead] == "" || done[metaHead] != "" && !kept && !options.NoTrigger {
		return s.fillHeads(ctx)
	}
	return nil
}

// patiently runs a statement again while others use the table.
func patiently(ctx context.Context, conn *sql.Conn, statement string) error {
	for attempt := 0; ; attempt++ {
		_, err := conn.ExecContext(ctx, statement)
		if codeOf(err) == codeColumnExists {
			return nil // added by a migration that did not come to its end
		}
		if code := codeOf(err); err == nil || attempt == migrateAttempts || code != codeLockTimeout && code != codeDeadlock {
			return err
		}
		if err := pause(ctx, migrateBase, attempt); err != nil {
			return err
		}
	}
}

// MigrateSQL returns the statements that Migrate runs on an empty database.
func (s *Store) MigrateSQL(options store.MigrateOptions) string {
	var b strings.Builder
	if s.names.Schema != "" {
		b.WriteString(s.names.expand(makeSchemaSQL) + ";\n\n")
	}
	for _, step := range s.plan(options, nil) {
		b.WriteString(step + ";\n\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// plan returns what is to be run where the meta rows done are found.
func (s *Store) plan(options store.MigrateOptions, done map[string]string) []string {
	var steps []string
	add := func(template string) { steps = append(steps, s.names.expand(template)) }
	addScript := func(name string) {
		for _, statement := range statementsOf(script(name)) {
			add(statement)
		}
	}
	current := strconv.Itoa(store.SchemaVersion)
	record := func(key, value string) {
		if done[key] != value {
			add(fmt.Sprintf(writeMetaSQL, key, value))
		}
	}
	if done == nil {
		addScript("migrations/000_create_meta.sql")
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
				addScript(fmt.Sprintf("migrations/%03d_%s.sql", version, file))
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
			if done[metaTrigger] != "" {
				addScript("trigger/remove.sql")
				add(deleteTriggerMetaSQL)
			}
		default:
			addScript("trigger/install.sql")
			record(metaTrigger, triggerVersion)
		}
		if options.Head || done[metaHead] != "" {
			addScript("head/create.sql")
			if !options.NoTrigger {
				addScript("head/install.sql")
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

// statementsOf splits a script of ours, in which a semicolon at the end of a
// line is the end of a statement.
func statementsOf(script string) []string {
	var all []string
	for _, part := range strings.Split(script, ";\n") {
		if part = strings.TrimSpace(part); part != "" {
			all = append(all, part)
		}
	}
	return all
}

const readMetaSQL = "SELECT `key`, `value` FROM {meta}"

func (s *Store) readMetaRows(ctx context.Context, q querier) (map[string]string, error) {
	rows, err := q.QueryContext(ctx, s.sql(readMetaSQL))
	if code := codeOf(err); code == codeNoTable || code == codeNoDatabase {
		return nil, fmt.Errorf("%w: %w", store.ErrNoSchema, err)
	}
	if err != nil {
		return nil, err
	}
	values := make(map[string]string)
	err = each(rows, func() error {
		var key, value string
		err := rows.Scan(&key, &value)
		values[key] = value
		return err
	})
	return values, err
}

const readTriggersSQL = `
SELECT COUNT(*), COALESCE(SUM(trigger_name = ?), 0), COALESCE(SUM(trigger_name = ?), 0)
FROM information_schema.triggers
WHERE event_object_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND event_object_table = ?`

// readTriggers reports which triggers the table of events has. An account
// without the TRIGGER right sees none of them; the meta table then tells what the
// migration did.
func (s *Store) readTriggers(ctx context.Context, q querier, done map[string]string) (queue, head bool, err error) {
	var all, queues, heads int
	rows, err := q.QueryContext(ctx, readTriggersSQL, s.names.queueTrigger, s.names.headTrigger, s.names.Schema, s.names.Event)
	if err != nil {
		return false, false, err
	}
	if err := each(rows, func() error { return rows.Scan(&all, &queues, &heads) }); err != nil {
		return false, false, err
	}
	if all == 0 {
		return done[metaTrigger] != "", done[metaTrigger] != "" && done[metaHead] != "", nil
	}
	return queues > 0, heads > 0, nil
}

// ReadMeta returns what the tables say of themselves.
func (s *Store) ReadMeta(ctx context.Context) (store.Meta, error) {
	values, err := s.readMetaRows(ctx, s.db)
	if errors.Is(err, store.ErrNoSchema) {
		return store.Meta{}, &waybill.Error{Op: "mysql: read meta", Key: s.names.expand("{meta}"), Err: err, Hint: hintMigrate}
	}
	if err != nil {
		return store.Meta{}, failure("read meta", "", err)
	}
	var meta store.Meta
	if meta.Version, err = strconv.Atoi(values[metaVersion]); err != nil {
		return meta, failure("read meta", metaVersion, fmt.Errorf("%w: a migration was not finished", store.ErrSchemaOlder))
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
	meta.Trigger, meta.HeadTrigger, err = s.readTriggers(ctx, s.db, values)
	return meta, failure("read meta", "", err)
}

const pingSQL = `SELECT @@global.read_only, @@session.transaction_read_only`

const pingMariaSQL = `SELECT @@global.read_only, @@session.tx_read_only`

var errReadOnly = errors.New("the database is read-only")

// Ping reports whether the database answers and accepts writes.
func (s *Store) Ping(ctx context.Context) error {
	text := pingSQL
	if !s.dialect.of {
		text = pingMariaSQL
	}
	var server, session bool
	if _, err := s.pool().one(ctx, text, nil, &server, &session); err != nil {
		return failure("ping", "", err)
	}
	if server || session {
		return &waybill.Error{Op: "mysql: ping", Err: errReadOnly, Hint: hintReadOnly}
	}
	return nil
}
