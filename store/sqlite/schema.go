package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

//go:embed migrations/*.sql
var migrations embed.FS

func (s *Store) migration(name string) string {
	text, err := migrations.ReadFile("migrations/" + name + ".sql")
	if err != nil {
		panic(err) // it is embedded
	}
	put := strings.NewReplacer("{queue_select}", queueInserted, "{schema_version}", strconv.Itoa(store.SchemaVersion))
	return s.lexicon.Replace(put.Replace(string(text)))
}

// Migrate makes or brings up to date the tables, in one transaction.
func (s *Store) Migrate(ctx context.Context, options store.MigrateOptions) error {
	return s.write(ctx, "migrate", false, func(w writing) error {
		found, err := readMeta(ctx, w, s.config.Names.WithDefaults())
		if errors.Is(err, store.ErrSchemaNewer) {
			return err
		}
		if err != nil && !errors.Is(err, store.ErrNoSchema) && !errors.Is(err, store.ErrSchemaOlder) {
			return err
		}
		steps := []string{"000_create_meta"}
		if !options.SkipOutbox {
			steps = append(steps, "001_create_outbox")
		}
		if !options.SkipOutbox || found.Outbox {
			steps = append(steps, "003_create_position")
		}
		if !options.SkipInbox || found.Inbox {
			steps = append(steps, "001_create_inbox")
			if !found.effects {
				steps = append(steps, "002_add_effects")
			}
		}
		for _, step := range steps {
			if _, err := w.tx.ExecContext(ctx, s.migration(step)); err != nil {
				return fmt.Errorf("%s: %w", step, err)
			}
		}
		if !options.SkipOutbox {
			if err := s.migrateTrigger(ctx, w, options.NoTrigger, found.triggerText); err != nil {
				return err
			}
		}
		if options.Head && !options.SkipOutbox || found.Head {
			if err := s.migrateHead(ctx, w, options, &found); err != nil {
				return err
			}
		}
		_, err = w.exec(ctx, metaSetVersionSQL, strconv.Itoa(store.SchemaVersion))
		return err
	})
}

// migrateTrigger leaves a trigger alone that is as it should be.
func (s *Store) migrateTrigger(ctx context.Context, w writing, unwanted bool, found string) error {
	wanted := strings.TrimRight(s.migration("001_create_trigger"), ";\n")
	if found != "" && (unwanted || found != wanted) {
		if _, err := w.tx.ExecContext(ctx, s.lexicon.Replace(`DROP TRIGGER {event_queue}`)); err != nil {
			return fmt.Errorf("drop trigger: %w", err)
		}
		found = ""
	}
	if found == "" && !unwanted {
		if _, err := w.tx.ExecContext(ctx, wanted); err != nil {
			return fmt.Errorf("001_create_trigger: %w", err)
		}
	}
	return nil
}

// MigrateSQL returns the script for the sqlite3 shell. Without the trigger it
// ends in a comment that says how plain SQL writes the queue row.
func (s *Store) MigrateSQL(options store.MigrateOptions) string {
	var script strings.Builder
	script.WriteString("PRAGMA journal_mode = WAL;\n\nBEGIN IMMEDIATE;\n\n")
	script.WriteString(s.migration("000_create_meta"))
	if !options.SkipOutbox {
		script.WriteString("\n" + s.migration("001_create_outbox"))
		script.WriteString("\n" + s.migration("003_create_position"))
		if !options.NoTrigger {
			script.WriteString("\n" + s.migration("001_create_trigger"))
		}
	}
	if options.Head && !options.SkipOutbox {
		script.WriteString("\n" + s.migration("001_create_head"))
		if !options.NoTrigger {
			script.WriteString("\n" + s.migration("001_create_head_trigger"))
		}
	}
	if !options.SkipInbox {
		script.WriteString("\n" + s.migration("001_create_inbox"))
		script.WriteString("\n" + s.migration("002_add_effects"))
	}
	script.WriteString("\nCOMMIT;\n")
	if !options.SkipOutbox && options.NoTrigger {
		script.WriteString("\n-- Without the trigger, queue each event in the transaction that inserts it\n-- (:ids is a JSON array of outbox_event.id):\n--\n")
		queue := strings.ReplaceAll(s.text(appendQueueSQL), "?1", ":ids")
		script.WriteString("-- " + strings.ReplaceAll(queue, "\n", "\n-- ") + ";\n")
	}
	return script.String()
}

const (
	metaTablesSQL = `
SELECT name, type, sql FROM sqlite_master WHERE name IN (?1, ?2, ?3, ?4, ?5, ?6, ?7)`

	metaVersionSQL = `
SELECT key, value FROM {meta} WHERE key IN ('schema_version', 'lane_function')`

	metaSetVersionSQL = `
INSERT INTO {meta} (key, value) VALUES ('schema_version', ?1)
ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE value <> excluded.value`
)

// ReadMeta returns what the tables say of themselves.
func (s *Store) ReadMeta(ctx context.Context) (store.Meta, error) {
	found, err := readMeta(ctx, s, s.config.Names.WithDefaults())
	return found.Meta, s.failed("read meta", "", err)
}

type querier interface {
	query(ctx context.Context, text string, args ...any) (*sql.Rows, error)
}

type foundSchema struct {
	store.Meta
	triggerText string
	headTrigger string
	effects     bool // the second version of the inbox tables
}

// laneFunction names what lane.go computes; the migration writes it down.
const laneFunction = "1"

func readMeta(ctx context.Context, q querier, names store.Names) (foundSchema, error) {
	var found foundSchema
	trigger := names.Event + "_queue"
	rows, err := q.query(ctx, metaTablesSQL, names.Meta, names.Event, names.Consumed, trigger, names.Effect, names.Head, names.Event+"_head")
	if err != nil {
		return found, err
	}
	exists := false
	for rows.Next() {
		var name, kind, text string
		if err := rows.Scan(&name, &kind, &text); err != nil {
			return found, errors.Join(err, rows.Close())
		}
		switch {
		case kind == "trigger" && name == trigger:
			found.Trigger, found.triggerText = true, text
		case kind == "trigger" && name == names.Event+"_head":
			found.HeadTrigger, found.headTrigger = true, text
		case kind == "table" && name == names.Head:
			found.Head = true
		case kind == "table" && name == names.Meta:
			exists = true
		case kind == "table" && name == names.Event:
			found.Outbox = true
		case kind == "table" && name == names.Consumed:
			found.Inbox = true
		case kind == "table" && name == names.Effect:
			found.effects = true
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return found, err
	}
	if !exists {
		return found, store.ErrNoSchema
	}
	rows, err = q.query(ctx, metaVersionSQL)
	if err != nil {
		return found, err
	}
	values := make(map[string]string, 2)
	for rows.Next() {
		var key, value string
		if err := rows.Scan(&key, &value); err != nil {
			return found, errors.Join(err, rows.Close())
		}
		values[key] = value
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return found, err
	}
	text, ok := values["schema_version"]
	if !ok {
		return found, store.ErrNoSchema
	}
	if found.Version, err = strconv.Atoi(text); err != nil {
		return found, &waybill.Error{Op: "read meta", Key: names.Meta, Err: err, Hint: "the row schema_version must hold a number"}
	}
	if err := store.CheckVersion(found.Version); err != nil {
		return found, err
	}
	return found, store.CheckLanes(values["lane_function"], laneFunction)
}

const pingSQL = `
UPDATE {meta} SET value = value WHERE key = 'schema_version'`

// Ping writes and commits a page, for a file can be readable and its disk full.
func (s *Store) Ping(ctx context.Context) error {
	return s.write(ctx, "ping", true, func(w writing) error {
		_, err := w.exec(ctx, pingSQL)
		return err
	})
}
