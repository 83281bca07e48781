package mysql_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/mysql"
	"github.com/waybillhq/waybill/store/storetest"
)

const patience = 90 * time.Second

func event(id, key string) waybill.Event {
	e := waybill.Event{ID: id, Type: "OrderPaid", Topic: "orders", AggregateType: "order", AggregateID: key, Data: []byte(`{"n":1}`)}
	e.Normalize(time.Date(2026, 3, 29, 2, 30, 0, 123_456_000, time.UTC))
	return e
}

func hot(t testing.TB, st *mysql.Store) []*store.Row {
	t.Helper()
	var cursors []store.LaneCursor
	for lane := range store.Lanes {
		cursors = append(cursors, store.LaneCursor{Lane: lane})
	}
	rows, err := storetest.Hot(t.Context(), st, store.WalkRequest{Lanes: cursors})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func appendEvents(t testing.TB, st *mysql.Store, tx store.SQLTx, events ...waybill.Event) {
	t.Helper()
	results, err := st.Append(t.Context(), tx, events)
	if err := errors.Join(append(results, err)...); err != nil {
		t.Fatal(err)
	}
}

// shell runs SQL in the server's own client, which knows nothing of this package.
func shell(t *testing.T, s server, database, script string) string {
	t.Helper()
	variable := "WAYBILL_TEST_" + strings.ToUpper(s.name) + "_SHELL"
	name := os.Getenv(variable)
	if name == "" {
		const sentence = "%s is not set, so there is no shell: what plain SQL from outside does cannot be seen"
		if os.Getenv("CI") != "" || os.Getenv(testenv.EnvRequired) != "" {
			t.Fatalf(sentence, variable)
		}
		t.Skipf(sentence, variable)
	}
	settings, err := driver.ParseDSN(s.dsn)
	if err != nil {
		t.Fatal(err)
	}
	host, port, _ := strings.Cut(settings.Addr, ":")
	command := exec.CommandContext(t.Context(), name, "--no-defaults", "--protocol=TCP", "--host="+host, "--port="+port, "--user="+settings.User,
		"--default-character-set=utf8mb4", "--skip-column-names", "--batch", database)
	command.Env = append(os.Environ(), "MYSQL_PWD="+settings.Passwd)
	command.Stdin = strings.NewReader(script)
	var out, problems bytes.Buffer
	command.Stdout, command.Stderr = &out, &problems
	if err := command.Run(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, problems.String())
	}
	return out.String()
}

func TestShellInsertsAnEvent(t *testing.T) {
	onEach(t, func(t *testing.T, s server) {
		dsn := s.freshDatabase(t)
		settings, _ := driver.ParseDSN(dsn)
		names := store.Names{Event: "Order`Events", Pending: "the queue", Key: "group", Held: "select"}
		st := openStore(t, dsn, storetest.Options{Bare: true, Names: names})
		shell(t, s, settings.DBName, st.MigrateSQL(store.MigrateOptions{}))
		want := store.Meta{Version: store.SchemaVersion, Trigger: true, Outbox: true, Inbox: true}
		if meta, err := st.ReadMeta(t.Context()); err != nil || meta != want {
			t.Fatalf("meta after the printed script: got %+v, %v, want %+v", meta, err, want)
		}
		shell(t, s, settings.DBName, "SET time_zone = '+09:00';\n"+
			"INSERT INTO `Order``Events` (event_id, aggregate_type, aggregate_id, event_type, topic, payload)\n"+
			`VALUES ('e1', 'order', 'O-1', 'OrderPaid', 'orders', '{"customer":"Zoë 李"}'), ('e2', 'order', 'O-1', 'OrderPaid', 'orders', x'00ff');`+
			"\nINSERT INTO `Order``Events` (event_id, aggregate_type, aggregate_id, event_type, topic, payload, event_key, headers)\n"+
			`VALUES ('e3', 'order', 'O-1', 'OrderPaid', 'orders', '', '', '{"traceparent":"t","n":1}');`)
		rows := hot(t, st)
		if len(rows) != 3 {
			t.Fatalf("hot rows: got %d, want 3", len(rows))
		}
		if got, want := string(rows[0].Event.Data), `{"customer":"Zoë 李"}`; got != want {
			t.Errorf("payload: got %q, want %q", got, want)
		}
		if got := string(rows[1].Event.Data); got != "\x00\xff" {
			t.Errorf("payload: got %q", got)
		}
		if got := rows[2].Event; got.Key != "O-1" || got.TraceParent != "t" || got.Headers["n"] != "1" {
			t.Errorf("third event: got %+v", got)
		}
		for _, row := range rows {
			if age := time.Since(row.Event.OccurredAt); age < -time.Minute || age > time.Minute || row.Age > time.Minute {
				t.Errorf("%s occurred at %v, age %v: want now, whatever the session's zone", row.Event.ID, row.Event.OccurredAt, row.Age)
			}
			// Rows in users' databases carry these values.
			if row.Lane != 15 || row.KeyHash != 6882497914669862564 || row.TopicHash != 2023957755765852388 {
				t.Errorf("%s: lane and hashes: got %d, %d, %d", row.Event.ID, row.Lane, row.KeyHash, row.TopicHash)
			}
		}
	})
}

// An application's own pool may have any settings.
func TestAppendFromAnyPool(t *testing.T) {
	onEach(t, func(t *testing.T, s server) {
		for name, params := range map[string]string{
			"plain":           "",
			"interpolated":    "interpolateParams=true",
			"another zone":    "parseTime=true&loc=America%2FNew_York&time_zone=%27-05%3A00%27",
			"repeatable read": "parseTime=true",
			"odd sql_mode":    "sql_mode=%27ANSI_QUOTES%2CNO_BACKSLASH_ESCAPES%27",
			"found rows":      "clientFoundRows=true",
		} {
			t.Run(name, func(t *testing.T) {
				dsn := s.usedDatabase(t)
				st := openStore(t, dsn, storetest.Options{})
				db, err := sql.Open("mysql", dsn+"?"+params)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = db.Close() }()
				tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = tx.Rollback() }()
				want := event("it's \\ e1", "Zoë 李")
				want.Data = []byte("\x00\xff'\\\" {\"lone\":\"\\ud800\"}")
				want.Headers = map[string]string{"a": "it's \\ \"b\""}
				appendEvents(t, st, tx, want)
				results, err := st.Append(t.Context(), tx, []waybill.Event{want, event("e2", "k")})
				if err != nil || !errors.Is(results[0], waybill.ErrDuplicateEvent) || results[1] != nil {
					t.Fatalf("again beside another: got %v, %v", results, err)
				}
				existing, err := st.Existing(t.Context(), tx, []string{want.ID})
				if err != nil || len(existing) != 1 || !existing[0].OccurredAt.Equal(want.OccurredAt) || existing[0].Headers["a"] != want.Headers["a"] {
					t.Errorf("existing: got %+v, %v", existing, err)
				}
				if err := tx.Commit(); err != nil {
					t.Fatal(err)
				}
				for _, row := range hot(t, st) {
					if row.Event.ID == want.ID && (!bytes.Equal(row.Event.Data, want.Data) || !row.Event.OccurredAt.Equal(want.OccurredAt) || row.Event.Key != "Zoë 李") {
						t.Errorf("fetched: got %+v, want %+v", row.Event, want)
					}
				}
			})
		}
	})
}

// The server makes a transaction the victim of a deadlock and rolls back all of
// it. What follows must not run by itself.
func TestDeadlockEndsTheWholeTransaction(t *testing.T) {
	onEach(t, func(t *testing.T, s server) {
		st := openStore(t, s.freshDatabase(t), storetest.Options{})
		for _, statement := range []string{
			"CREATE TABLE stock (id int PRIMARY KEY, n int NOT NULL)",
			"INSERT INTO stock VALUES (1, 0), (2, 0)",
		} {
			if _, err := st.DB().ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		inbox, err := st.BeginInbox(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = inbox.Rollback(t.Context()) }()
		if err := inbox.Savepoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		mine := inbox.Handle()
		consumed := store.Consumed{Group: "g", Event: event("e1", "k"), Outcome: store.Applied, Topic: "orders"}
		if _, err := inbox.MarkConsumed(t.Context(), consumed); err != nil {
			t.Fatal(err)
		}
		// The other transaction has written more, so this one is the victim.
		other, err := st.DB().BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = other.Rollback() }()
		if _, err := other.ExecContext(t.Context(), "INSERT INTO stock WITH RECURSIVE n (i) AS (SELECT 10 UNION ALL SELECT i + 1 FROM n WHERE i < 300) SELECT i, 0 FROM n"); err != nil {
			t.Fatal(err)
		}
		if _, err := mine.ExecContext(t.Context(), "UPDATE stock SET n = n + 1 WHERE id = 1"); err != nil {
			t.Fatal(err)
		}
		if _, err := other.ExecContext(t.Context(), "UPDATE stock SET n = n + 1 WHERE id = 2"); err != nil {
			t.Fatal(err)
		}
		waits := make(chan error, 1)
		go func() {
			_, err := other.ExecContext(t.Context(), "UPDATE stock SET n = n + 1 WHERE id = 1")
			waits <- err
		}()
		_, err = mine.ExecContext(t.Context(), "UPDATE stock SET n = n + 1 WHERE id = 2")
		var refused *driver.MySQLError
		if !errors.As(err, &refused) || refused.Number != 1213 {
			t.Fatalf("got error %v, want a deadlock", err)
		}
		if err := <-waits; err != nil {
			t.Fatalf("the survivor: %v", err)
		}
		// A handler that ignores the error goes on.
		if _, err := mine.ExecContext(t.Context(), "INSERT INTO stock VALUES (3, 0)"); err == nil {
			t.Error("a statement after the deadlock was run")
		}
		if _, err := inbox.MarkConsumed(t.Context(), consumed); err == nil {
			t.Error("the event was marked after the deadlock")
		}
		if err := inbox.RollbackTo(t.Context()); err == nil {
			t.Error("the savepoint outlived its transaction")
		}
		if err := inbox.Commit(t.Context()); err == nil {
			t.Error("a commit after the deadlock succeeded")
		}
		if err := other.Commit(); err != nil {
			t.Fatal(err)
		}
		var rows int
		if err := st.DB().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM stock WHERE id = 3").Scan(&rows); err != nil || rows != 0 {
			t.Errorf("half of the work stayed: %d, %v", rows, err)
		}
		if found, err := st.FindConsumed(t.Context(), "e1"); err != nil || len(found) != 0 {
			t.Errorf("consumed: got %v, %v", found, err)
		}
	})
}

// A handler commits the transaction that it was given. What was marked for the
// events behind its own must not stay.
func TestHandlerCannotCommit(t *testing.T) {
	onEach(t, func(t *testing.T, s server) {
		st := openStore(t, s.freshDatabase(t), storetest.Options{})
		tx, err := st.BeginInbox(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if first, err := tx.MarkConsumed(t.Context(), store.Consumed{Group: "g", Event: event("e1", "k"), Outcome: store.Applied}); !first || err != nil {
			t.Fatalf("mark consumed: got %t, %v", first, err)
		}
		for _, statement := range []string{
			"COMMIT", " begin;", "START TRANSACTION", "CREATE TABLE surprise (id int)", "truncate table consumed_event",
			"/* so */ COMMIT", "-- so\nCOMMIT", "# so\nROLLBACK", "/*!50000 COMMIT */", "SET autocommit = 1", "SET @@session.autocommit = 1",
		} {
			if _, err := tx.Handle().ExecContext(t.Context(), statement); !errors.Is(err, mysql.ErrNotYours) {
				t.Errorf("%s: got %v", statement, err)
			}
			if rows, err := tx.Handle().QueryContext(t.Context(), statement); !errors.Is(err, mysql.ErrNotYours) {
				t.Errorf("query %s: got %v", statement, err)
				_ = errors.Join(rows.Err(), rows.Close())
			}
			if stmt, err := tx.Handle().PrepareContext(t.Context(), statement); !errors.Is(err, mysql.ErrNotYours) {
				t.Errorf("prepare %s: got %v", statement, err)
				_ = stmt.Close()
			}
		}
		for _, statement := range []string{"SAVEPOINT mine", "ROLLBACK TO mine", "RELEASE SAVEPOINT mine", "SET @a = 1", "SELECT '; COMMIT'"} {
			if _, err := tx.Handle().ExecContext(t.Context(), statement); err != nil {
				t.Errorf("%s: %v", statement, err)
			}
		}
		if _, err := tx.Handle().ExecContext(t.Context(), "CREATE TEMPORARY TABLE mine (id int)"); err != nil {
			t.Error(err) // commits nothing
		}
		if err := tx.Sound(); err != nil {
			t.Errorf("sound: %v", err)
		}
		if err := tx.Handle().Commit(); err == nil {
			t.Error("the handler's commit: got no error")
		}
		if err := tx.Sound(); err == nil {
			t.Error("sound: got no error")
		}
		if err := tx.Commit(t.Context()); err == nil {
			t.Error("commit: got no error")
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Errorf("rollback: %v", err)
		}
		if found, err := st.FindConsumed(t.Context(), "e1"); err != nil || len(found) != 0 {
			t.Errorf("consumed: got %v, %v", found, err)
		}
	})
}

// A statement that nobody can see into may commit under the handler.
func TestProcedureThatCommitsIsNoticed(t *testing.T) {
	onEach(t, func(t *testing.T, s server) {
		st := openStore(t, s.freshDatabase(t), storetest.Options{})
		for _, text := range []string{
			"CREATE PROCEDURE keeps() SELECT 1",
			"CREATE PROCEDURE commits() COMMIT",
			"CREATE PROCEDURE commits_and_begins() BEGIN COMMIT; START TRANSACTION; END",
		} {
			if _, err := st.DB().ExecContext(t.Context(), text); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []struct {
			name string
			run  []string
			ends bool
		}{
			{"a harmless one", []string{"CALL keeps()", "/* again */ CALL keeps()"}, false},
			{"one that commits", []string{"CALL commits()"}, true},
			{"one that begins anew", []string{"CALL commits_and_begins()"}, true},
			{"a prepared statement", []string{"PREPARE c FROM 'COMMIT'", "EXECUTE c"}, true},
		} {
			for _, prepared := range []bool{false, true} {
				tx, err := st.BeginInbox(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if err := tx.Savepoint(t.Context()); err != nil {
					t.Fatal(err)
				}
				for _, text := range c.run {
					exec := tx.Handle().ExecContext
					if prepared && !strings.HasPrefix(text, "PREPARE") && !strings.HasPrefix(text, "EXECUTE") {
						stmt, err := tx.Handle().PrepareContext(t.Context(), text)
						if err != nil {
							t.Fatalf("%s: prepare: %v", c.name, err)
						}
						exec = func(ctx context.Context, _ string, args ...any) (sql.Result, error) {
							return stmt.ExecContext(ctx, args...)
						}
					}
					if _, err := exec(t.Context(), text); err != nil {
						t.Fatalf("%s: %s: %v", c.name, text, err)
					}
				}
				if err := tx.Sound(); errors.Is(err, store.ErrEnded) != c.ends {
					t.Errorf("%s, prepared %t: sound: %v", c.name, prepared, err)
				}
				if _, err := tx.Handle().ExecContext(t.Context(), "DO 1"); errors.Is(err, store.ErrEnded) != c.ends {
					t.Errorf("%s, prepared %t: a statement after it: %v", c.name, prepared, err)
				}
				if err := tx.RollbackTo(t.Context()); (err != nil) != c.ends {
					t.Errorf("%s, prepared %t: rollback to the savepoint: %v", c.name, prepared, err)
				}
				if err := tx.Rollback(t.Context()); err != nil {
					t.Errorf("%s, prepared %t: rollback: %v", c.name, prepared, err)
				}
			}
		}
	})
}

// TRUNCATE lets ids begin anew, while queue rows of old stay behind.
func TestTruncateAndNewEvents(t *testing.T) {
	onEach(t, func(t *testing.T, s server) {
		st := openStore(t, s.freshDatabase(t), storetest.Options{})
		appendEvents(t, st, st.DB(), event("e1", "a"), event("e2", "b"))
		if _, err := st.DB().ExecContext(t.Context(), "TRUNCATE TABLE outbox_event"); err != nil {
			t.Fatal(err)
		}
		if orphans, err := st.Orphans(t.Context(), 10); err != nil || len(orphans) != 2 {
			t.Errorf("orphans: got %v, %v, want two", orphans, err)
		}
		appendEvents(t, st, st.DB(), event("e3", "c"))
		rows := hot(t, st)
		if len(rows) != 1 || rows[0].Event.ID != "e3" || rows[0].ID != 1 {
			t.Errorf("hot rows: got %+v, want e3 with id 1", rows)
		}
	})
}

// Nothing of ours waits for an application's open transaction, nor it for us,
// though the tables are so small that reading all of one would look cheap.
func TestNobodyWaitsForAnOpenTransaction(t *testing.T) {
	onEach(t, func(t *testing.T, s server) {
		st := openStore(t, s.freshDatabase(t), storetest.Options{})
		appendEvents(t, st, st.DB(), event("sent", "a"), event("forgotten", "b"), event("dead", "c"), event("parked", "d"), event("old", "e"))
		rows := make(map[string]*store.Row)
		for _, row := range hot(t, st) {
			rows[row.Event.ID] = row
		}
		tx, err := st.DB().BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		appendEvents(t, st, tx, event("open-1", "a"), event("open-2", "b"))
		if results, err := st.Append(t.Context(), tx, []waybill.Event{event("old", "e"), event("sent", "a")}); err != nil || results[0] == nil || results[1] == nil {
			t.Fatalf("append of what is there: got %v, %v, want duplicates", results, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		leases, err := st.Claim(ctx, "relay", time.Hour, store.Lanes)
		if err != nil {
			t.Fatal(err)
		}
		guard := store.Guard{Owner: "relay", Lanes: leases}
		change := func(id string) store.Change { return store.Change{ID: rows[id].ID, EventID: id} }
		for name, changes := range map[string]store.Changes{
			"settle": {Settled: []store.SettledChange{{Change: change("sent"), Outcome: store.StatusSent}, {Change: change("old"), Outcome: store.StatusSent}}},
			"forget": {Settled: []store.SettledChange{{Change: change("forgotten"), Outcome: store.StatusSent}}, Forget: true},
			"fail":   {Failed: []store.FailedChange{{Change: change("dead"), Dead: true, Error: "no"}}, Parked: []int64{rows["parked"].ID}},
		} {
			if err := st.Apply(ctx, guard, changes); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		action := store.Action{Actor: "test", Reason: "mended"}
		if _, err := st.RetryDead(ctx, action, []string{"dead"}); err != nil {
			t.Errorf("retry: %v", err)
		}
		if results, err := st.Requeue(ctx, action, []string{"sent"}); err != nil || results[0].Outcome != store.OutcomeQueued {
			t.Errorf("requeue: %v, %v", results, err)
		}
		if n, err := st.Cleanup(ctx, store.CleanupRequest{Archive: true}); err != nil || n != 1 {
			t.Errorf("cleanup: got %d, %v, want 1", n, err)
		}
		appendEvents(t, st, tx, event("open-3", "c"), event("zz", "d"), event("0", "e"))
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	})
}

// An account without special rights may not make triggers while the binary log
// is on, and is told what to do.
func TestTriggerRightsAreExplained(t *testing.T) {
	onEach(t, func(t *testing.T, s server) {
		dsn := s.freshDatabase(t)
		settings, _ := driver.ParseDSN(dsn)
		user := settings.DBName + "_app"
		s.run(t, "CREATE USER '"+user+"'@'127.0.0.1' IDENTIFIED BY 'app'", "GRANT ALL ON "+settings.DBName+".* TO '"+user+"'@'127.0.0.1'")
		t.Cleanup(func() { s.run(t, "DROP USER '"+user+"'@'127.0.0.1'") })
		settings.User, settings.Passwd = user, "app"
		st := openStore(t, settings.FormatDSN(), storetest.Options{Bare: true, NoTrigger: true})
		err := st.Migrate(t.Context(), store.MigrateOptions{})
		var wrong *waybill.Error
		if !errors.As(err, &wrong) || !strings.Contains(wrong.Hint, "log_bin_trust_function_creators") || !strings.Contains(wrong.Hint, "--no-trigger") {
			t.Fatalf("got %v, want the setting and --no-trigger named", err)
		}
		if err := st.Migrate(t.Context(), store.MigrateOptions{NoTrigger: true}); err != nil {
			t.Fatalf("without the trigger: %v", err)
		}
		appendEvents(t, st, st.DB(), event("e1", "a"))
		if rows := hot(t, st); len(rows) != 1 {
			t.Errorf("hot rows: got %d, want 1", len(rows))
		}
	})
}

func TestOpenTellsWhatIsWrong(t *testing.T) {
	onEach(t, func(t *testing.T, s server) {
		settings, err := driver.ParseDSN(s.dsn)
		if err != nil {
			t.Fatal(err)
		}
		for name, spoil := range map[string]func(*driver.Config){
			"wrong password": func(c *driver.Config) { c.Passwd = "hunter2-secret" },
			"no database":    func(c *driver.Config) { c.DBName = "waybill_nowhere" },
			"no server":      func(c *driver.Config) { c.Addr = "127.0.0.1:1" },
			"no name":        func(c *driver.Config) { c.DBName = "" },
		} {
			t.Run(name, func(t *testing.T) {
				bad := settings.Clone()
				spoil(bad)
				_, err := mysql.Open(t.Context(), bad.FormatDSN(), nil)
				var wrong *waybill.Error
				if !errors.As(err, &wrong) || wrong.Hint == "" {
					t.Fatalf("got %v, want a hint", err)
				}
				if strings.Contains(err.Error(), bad.Passwd) && bad.Passwd != bad.User {
					t.Errorf("the password is told: %v", err)
				}
			})
		}
		url := "mysql://" + settings.User + ":" + settings.Passwd + "@" + settings.Addr + "/" + settings.DBName + "?timeout=5s"
		st, err := mysql.Open(t.Context(), url, nil)
		if err != nil {
			t.Fatalf("a URL: %v", err)
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
}
