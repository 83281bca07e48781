package sqlite_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/sqlite"
)

// shell runs SQL in the sqlite3 shell, which knows nothing of this package.
func shell(t testing.TB, path, script string) string {
	t.Helper()
	name, err := exec.LookPath("sqlite3")
	if err != nil {
		if os.Getenv("CI") != "" || os.Getenv("WAYBILL_TEST_REQUIRED") != "" {
			t.Fatal("the sqlite3 shell is not on PATH, and is required here")
		}
		t.Skip("the sqlite3 shell is not on PATH: what plain SQL from outside does cannot be seen")
	}
	command := exec.CommandContext(t.Context(), name, "-bail", "-cmd", ".timeout 5000", path)
	command.Stdin = strings.NewReader(script)
	var out, errors bytes.Buffer
	command.Stdout, command.Stderr = &out, &errors
	if err := command.Run(); err != nil || errors.Len() > 0 {
		t.Fatalf("sqlite3: %v: %s", err, errors.String())
	}
	return out.String()
}

func TestShellInsertsAnEvent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	st := openFile(t, path, nil)
	shell(t, path, `INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, topic, payload)
VALUES ('e1', 'order', 'O-1', 'OrderPaid', 'orders', '{"customer":"Zoë 李"}');
INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, topic, payload, event_key, tenant_id, occurred_at, headers)
VALUES ('e2', 'order', 'O-1', 'OrderPaid', 'orders', x'00ff', NULL, NULL, '2026-01-02 03:04', '{"traceparent":"t","n":1}');`)
	rows := hot(t, st)
	if len(rows) != 2 {
		t.Fatalf("hot rows: got %d, want 2", len(rows))
	}
	first, second := rows[0], rows[1]
	if got, want := string(first.Event.Data), `{"customer":"Zoë 李"}`; got != want {
		t.Errorf("text payload: got %q, want %q", got, want)
	}
	if first.Event.Key != "O-1" || first.Event.ContentType != waybill.DefaultContentType || first.Event.SchemaVersion != 1 {
		t.Errorf("defaults: got %+v", first.Event)
	}
	if age := time.Since(first.Event.OccurredAt); age < -time.Minute || age > time.Minute {
		t.Errorf("occurred at: got %v, want now", first.Event.OccurredAt)
	}
	if got := hex.EncodeToString(second.Event.Data); got != "00ff" {
		t.Errorf("blob payload: got %s, want 00ff", got)
	}
	if want := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC); !second.Event.OccurredAt.Equal(want) {
		t.Errorf("occurred at: got %v, want %v", second.Event.OccurredAt, want)
	}
	if second.Event.TraceParent != "t" || second.Event.Headers["n"] != "1" {
		t.Errorf("headers: got %+v", second.Event)
	}
	appended := event("e3", "O-1")
	appendEvents(t, st, appended)
	third := hot(t, st)[0]
	for _, row := range hot(t, st) {
		if row.Lane != third.Lane || row.KeyHash != third.KeyHash || row.TopicHash != third.TopicHash {
			t.Errorf("event %s: lane and hashes %d %d %d, others have %d %d %d", row.Event.ID,
				row.Lane, row.KeyHash, row.TopicHash, third.Lane, third.KeyHash, third.TopicHash)
		}
	}
}

// The shell's SQLite, another version than the driver's, must agree on every lane.
func TestShellAgreesOnLanes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	st := openFile(t, path, nil)
	var script strings.Builder
	script.WriteString("BEGIN IMMEDIATE;\n")
	var events []waybill.Event
	for _, family := range keyFamilies {
		for i := range 50 {
			e := event(fmt.Sprintf("go/%s/%d", family.name, i), family.key(i))
			events = append(events, e)
			fmt.Fprintf(&script, "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, topic, payload) VALUES ('sh%s', 'order', '%s', 'T', 'orders', '');\n",
				strings.TrimPrefix(e.ID, "go"), e.AggregateID)
		}
	}
	script.WriteString("COMMIT;\n")
	shell(t, path, script.String())
	appendEvents(t, st, events...)
	byKey := make(map[string]*store.Row)
	for _, row := range hot(t, st) {
		other, seen := byKey[row.Event.Key]
		if seen && (row.Lane != other.Lane || row.KeyHash != other.KeyHash || row.TopicHash != other.TopicHash) {
			t.Errorf("key %q: %s got %d %d %d, %s got %d %d %d", row.Event.Key,
				row.Event.ID, row.Lane, row.KeyHash, row.TopicHash, other.Event.ID, other.Lane, other.KeyHash, other.TopicHash)
		}
		byKey[row.Event.Key] = row
	}
	if rows, want := len(hot(t, st)), 2*len(events); rows != want {
		t.Errorf("hot rows: got %d, want %d", rows, want)
	}
}

func TestPrintedScriptMakesTheTables(t *testing.T) {
	for _, noTrigger := range []bool{false, true} {
		t.Run(fmt.Sprintf("no trigger %t", noTrigger), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "test.db")
			options := store.MigrateOptions{NoTrigger: noTrigger}
			config := &sqlite.Config{NoTrigger: noTrigger, Names: store.Names{Event: `Sales-EU"."Order`, Pending: "the queue"}}
			printer, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "other.db"), config)
			if err != nil {
				t.Fatal(err)
			}
			defer printer.Close()
			script := printer.MigrateSQL(options)
			shell(t, path, script)
			st, err := sqlite.Open(t.Context(), path, config)
			if err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			meta, err := st.ReadMeta(t.Context())
			if want := (store.Meta{Version: store.SchemaVersion, Trigger: !noTrigger, Outbox: true, Inbox: true}); err != nil || meta != want {
				t.Errorf("meta: got %+v, %v, want %+v", meta, err, want)
			}
			before := shell(t, path, ".schema")
			if err := st.Migrate(t.Context(), options); err != nil {
				t.Fatal(err)
			}
			if after := shell(t, path, ".schema"); after != before {
				t.Errorf("migrate changed what the script had made:\n%s\nwas:\n%s", after, before)
			}
			insert := `INSERT INTO "Sales-EU"".""Order" (event_id, aggregate_type, aggregate_id, event_type, topic, payload) VALUES ('e1', 'order', 'O-1', 'T', 'orders', 'x');`
			if noTrigger {
				// As the comment at the script's end says.
				_, comment, ok := strings.Cut(script, "outbox_event.id):\n--\n")
				if !ok {
					t.Fatalf("the script does not say how to queue:\n%s", script)
				}
				queue := strings.ReplaceAll(strings.ReplaceAll(comment, "-- ", ""), ":ids", "'[1]'")
				insert = "BEGIN IMMEDIATE;\n" + insert + queue + "COMMIT;"
			}
			shell(t, path, insert)
			if rows := hot(t, st); len(rows) != 1 || rows[0].Event.ID != "e1" || rows[0].Event.Key != "O-1" {
				t.Errorf("hot rows: got %+v, want e1", rows)
			}
		})
	}
}

// One row that cannot be read whole must not keep the others from being sent.
func TestOddRowsStopNothing(t *testing.T) {
	st := open(t, nil)
	for i, odd := range []string{
		`headers) VALUES ('O-1', CAST(x'7b7d00787878' AS TEXT)`,
		`headers) VALUES ('O-2', CAST(x'7b2261223a22ff227d' AS TEXT)`,
		`occurred_at) VALUES ('O-3', '0000-01-01'`,
		`created_at) VALUES ('O-4', 'never'`,
		`event_version) VALUES ('O-5', 9223372036854775807`,
		`tenant_id) VALUES (CAST(x'4f00ff' AS TEXT), CAST(x'00ff' AS TEXT)`,
	} {
		statement := fmt.Sprintf(`INSERT INTO outbox_event (event_id, aggregate_type, event_type, topic, payload, aggregate_id, %s)`, odd)
		statement = strings.Replace(statement, "VALUES (", fmt.Sprintf("VALUES ('e%d', 'order', 'T', 'orders', '{}', ", i), 1)
		if _, err := st.DB().ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	appendEvents(t, st, event("good", "O-9"))
	if rows := hot(t, st); len(rows) != 7 {
		t.Errorf("hot rows: got %d, want 7", len(rows))
	}
	if found, err := st.Find(t.Context(), store.Filter{Limit: 10}); err != nil || len(found) != 7 {
		t.Errorf("find: got %d, %v, want 7", len(found), err)
	}
}

func TestTableRefuses(t *testing.T) {
	st := open(t, nil)
	good := map[string]string{
		"event_id": `'e1'`, "aggregate_type": `'order'`, "aggregate_id": `'O-1'`, "event_type": `'T'`, "topic": `'orders'`, "payload": `'x'`,
	}
	for _, c := range []struct{ name, column, value string }{
		{"empty id", "event_id", `''`},
		{"long id", "event_id", `printf('%.129c', 'x')`},
		{"long id in bytes", "event_id", `printf('%.65c', 'x') || replace(printf('%.32c', 'x'), 'x', 'é')`},
		{"no id", "event_id", `NULL`},
		{"empty type", "event_type", `''`},
		{"empty topic", "topic", `''`},
		{"illegal topic", "topic", `'orders paid'`},
		{"topic of a dot", "topic", `'.'`},
		{"no key and no aggregate", "aggregate_id", `''`},
		{"no payload", "payload", `NULL`},
		{"a number as payload", "payload", `1`},
		{"headers that are no JSON", "headers", `'{'`},
		{"headers that are no object", "headers", `'[]'`},
		{"a time that is none", "occurred_at", `'yesterday'`},
		{"a day that is none", "occurred_at", `'2026-99-99'`},
		{"a negative version", "aggregate_version", `-1`},
		{"an id that no cursor reaches", "id", `0`},
	} {
		t.Run(c.name, func(t *testing.T) {
			columns, values := []string{c.column}, []string{c.value}
			for column, value := range good {
				if column != c.column {
					columns, values = append(columns, column), append(values, value)
				}
			}
			_, err := st.DB().ExecContext(t.Context(), "INSERT INTO outbox_event ("+strings.Join(columns, ", ")+") VALUES ("+strings.Join(values, ", ")+")")
			if err == nil {
				t.Error("the table took it")
			}
		})
	}
	if rows := hot(t, st); len(rows) != 0 {
		t.Errorf("hot rows: got %d, want none", len(rows))
	}
}
