package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/sqlite"
)

func makeTable(t testing.TB, st *sqlite.Store) {
	t.Helper()
	inTx(t, st, func(tx *sql.Tx) {
		if _, err := tx.ExecContext(t.Context(), `CREATE TABLE stock (id INTEGER PRIMARY KEY, n INTEGER NOT NULL)`); err != nil {
			t.Fatal(err)
		}
	})
}

func stock(t testing.TB, st *sqlite.Store) (rows int) {
	t.Helper()
	if err := st.DB().QueryRowContext(t.Context(), `SELECT count(*) FROM stock`).Scan(&rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

// endless writes until it is interrupted.
const endless = `INSERT INTO stock (n) WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c`

// A handler's own time-out interrupts its statement, SQLite rolls the whole
// transaction back, and the handler goes on as if nothing had happened: what it
// writes then must not be committed one by one.
func TestNothingIsWrittenAfterSQLiteRolledBack(t *testing.T) {
	st := open(t, nil)
	makeTable(t, st)
	tx, err := st.BeginInbox(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Savepoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	if first, err := tx.MarkConsumed(t.Context(), store.Consumed{Group: "g", Event: event("e1", "k"), Outcome: store.Applied}); !first || err != nil {
		t.Fatalf("mark consumed: got %t, %v", first, err)
	}
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := tx.Handle().ExecContext(short, endless); err == nil {
		t.Fatal("the endless statement ended")
	}
	if _, err := tx.Handle().ExecContext(t.Context(), `INSERT INTO stock (n) VALUES (1)`); err == nil {
		t.Error("a statement ran outside of the transaction")
	}
	if err := tx.RollbackTo(t.Context()); err == nil {
		t.Error("rollback to savepoint: got no error, though the transaction is gone")
	}
	if err := tx.Commit(t.Context()); err == nil {
		t.Error("commit: got no error")
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Errorf("rollback: %v", err)
	}
	if n := stock(t, st); n != 0 {
		t.Errorf("rows: got %d, want none", n)
	}
	if found, err := st.FindConsumed(t.Context(), "e1"); err != nil || len(found) != 0 {
		t.Errorf("consumed: got %v, %v, want none", found, err)
	}
}

func TestRollbackToSavepointLeavesTheTransactionAlive(t *testing.T) {
	st := open(t, nil)
	makeTable(t, st)
	tx, err := st.BeginInbox(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	step := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	insert := func() {
		t.Helper()
		_, err := tx.Handle().ExecContext(t.Context(), `INSERT INTO stock (n) VALUES (1)`)
		step(err)
	}
	step(tx.Savepoint(t.Context()))
	insert()
	step(tx.Release(t.Context()))
	step(tx.Savepoint(t.Context()))
	insert()
	step(tx.RollbackTo(t.Context()))
	insert()
	step(tx.Savepoint(t.Context()))
	insert()
	step(tx.RollbackTo(t.Context()))
	step(tx.Commit(t.Context()))
	step(tx.Rollback(t.Context()))
	if n := stock(t, st); n != 2 {
		t.Errorf("rows: got %d, want 2", n)
	}
}

func TestAbortInterruptsARunningStatement(t *testing.T) {
	st := open(t, nil)
	makeTable(t, st)
	for _, c := range []struct {
		name string
		run  func(tx *sql.Tx) error
	}{
		{"exec", func(tx *sql.Tx) error {
			_, err := tx.ExecContext(context.Background(), endless)
			return err
		}},
		{"query", func(tx *sql.Tx) error {
			var n int
			return tx.QueryRowContext(context.Background(), `WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c`).Scan(&n)
		}},
		{"prepared", func(tx *sql.Tx) error {
			stmt, err := tx.PrepareContext(context.Background(), endless)
			if err != nil {
				return err
			}
			defer stmt.Close()
			_, err = stmt.ExecContext(context.Background())
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tx, err := st.BeginInbox(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Handle().ExecContext(t.Context(), `INSERT INTO stock (n) VALUES (1)`); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- c.run(tx.Handle()) }()
			select {
			case err := <-ended:
				t.Fatalf("the endless statement ended: %v", err)
			case <-time.After(30 * time.Millisecond):
			}
			tx.Abort()
			select {
			case err := <-ended:
				if err == nil {
					t.Error("the interrupted statement reports success")
				}
			case <-time.After(2 * time.Minute):
				t.Fatal("the statement goes on after Abort")
			}
			if _, err := tx.Handle().ExecContext(t.Context(), `INSERT INTO stock (n) VALUES (1)`); err == nil {
				t.Error("a statement ran after Abort")
			}
			if err := tx.Handle().Commit(); err == nil {
				t.Error("the handler's own commit succeeded after Abort")
			}
			if err := tx.Commit(t.Context()); !errors.Is(err, store.ErrAborted) {
				t.Errorf("commit: got %v, want ErrAborted", err)
			}
			if _, err := tx.MarkConsumed(t.Context(), store.Consumed{Group: "g", Event: event("e1", "k"), Outcome: store.Applied}); !errors.Is(err, store.ErrAborted) {
				t.Errorf("mark consumed: got %v, want ErrAborted", err)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Errorf("rollback: %v", err)
			}
			if n := stock(t, st); n != 0 {
				t.Errorf("rows: got %d, want none", n)
			}
		})
	}
}

func TestDurabilityOfCommits(t *testing.T) {
	synchronous := func(t *testing.T, st *sqlite.Store) (level int) {
		t.Helper()
		inTx(t, st, func(tx *sql.Tx) {
			if err := tx.QueryRowContext(t.Context(), `PRAGMA synchronous`).Scan(&level); err != nil {
				t.Fatal(err)
			}
		})
		return level
	}
	const normal, full = 1, 2
	t.Run("the application's are durable, also after relaxed ones", func(t *testing.T) {
		st := open(t, nil)
		if err := st.Apply(t.Context(), store.Guard{}, store.Changes{}); err != nil {
			t.Fatal(err)
		}
		if got := synchronous(t, st); got != full {
			t.Errorf("in a transaction: got %d, want %d", got, full)
		}
		if err := st.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		var got int
		if err := st.DB().QueryRowContext(t.Context(), `PRAGMA synchronous`).Scan(&got); err != nil || got != full {
			t.Errorf("outside of a transaction: got %d, %v, want %d", got, err, full)
		}
	})
	t.Run("the DSN decides", func(t *testing.T) {
		st := openFile(t, "file:"+t.TempDir()+"/test.db?_pragma=synchronous(1)", nil)
		if err := st.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := synchronous(t, st); got != normal {
			t.Errorf("got %d, want %d", got, normal)
		}
	})
}

func TestCloseLeavesNoGoroutine(t *testing.T) {
	st, err := sqlite.Open(t.Context(), t.TempDir()+"/test.db", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Migrate(t.Context(), store.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	appendEvents(t, st, event("e1", "a"))
	hot(t, st)
	tx, err := st.BeginInbox(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tx.Abort()
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		left := 0
		for _, stack := range strings.Split(string(stacks), "\n\n") {
			if strings.Contains(stack, "database/sql") || strings.Contains(stack, "modernc.org/sqlite.") {
				left++
			}
		}
		if left == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines are left:\n%s", left, stacks)
		}
		runtime.Gosched()
	}
}

// A handler commits the transaction that it was given. What was marked for the
// events behind its own must not stay.
func TestHandlerCannotCommit(t *testing.T) {
	st := open(t, nil)
	makeTable(t, st)
	tx, err := st.BeginInbox(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Savepoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	if first, err := tx.MarkConsumed(t.Context(), store.Consumed{Group: "g", Event: event("e1", "k"), Outcome: store.Applied}); !first || err != nil {
		t.Fatalf("mark consumed: got %t, %v", first, err)
	}
	if _, err := tx.Handle().ExecContext(t.Context(), `INSERT INTO stock (n) VALUES (1)`); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{"COMMIT", " end;", "commit transaction", "/* so */ COMMIT", "-- so\nEND", "SELECT 1; COMMIT", "ROLLBACK"} {
		if _, err := tx.Handle().ExecContext(t.Context(), statement); err == nil {
			t.Errorf("%s: got no error", statement)
		}
		if rows, err := tx.Handle().QueryContext(t.Context(), statement); err == nil {
			t.Errorf("query %s: got no error", statement)
			_ = errors.Join(rows.Err(), rows.Close())
		}
		if stmt, err := tx.Handle().PrepareContext(t.Context(), statement); err == nil {
			t.Errorf("prepare %s: got no error", statement)
			_ = stmt.Close()
		}
	}
	for _, statement := range []string{"SAVEPOINT mine", "ROLLBACK TO mine", "RELEASE mine", "SELECT '; COMMIT'"} {
		if _, err := tx.Handle().ExecContext(t.Context(), statement); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
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
	if n := stock(t, st); n != 0 {
		t.Errorf("rows: got %d, want none", n)
	}
	if rows, err := st.FindConsumed(t.Context(), "e1"); err != nil || len(rows) != 0 {
		t.Errorf("consumed: got %v, %v", rows, err)
	}
}

// What handlers repeat is prepared once. It must keep up with the schema, and be
// read from twice at once.
func TestRepeatedStatementsOfHandlers(t *testing.T) {
	st := open(t, nil)
	makeTable(t, st)
	const insert, list = `INSERT INTO stock (n) VALUES (?)`, `SELECT * FROM stock ORDER BY id`
	for n := range 6 {
		tx, err := st.BeginInbox(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := tx.Handle().ExecContext(t.Context(), insert, n); err != nil {
				t.Fatalf("transaction %d: %v", n, err)
			}
		}
		outer, err := tx.Handle().QueryContext(t.Context(), list)
		if err != nil {
			t.Fatal(err)
		}
		if !outer.Next() {
			t.Fatalf("transaction %d: no row: %v", n, outer.Err())
		}
		inner, err := tx.Handle().QueryContext(t.Context(), list)
		if err != nil {
			t.Fatal(err)
		}
		if columns, err := inner.Columns(); err != nil || len(columns) != 2+n {
			t.Errorf("transaction %d: got columns %q, %v, want %d", n, columns, err, 2+n)
		}
		rows := 0
		for inner.Next() {
			rows++
		}
		if err := errors.Join(inner.Err(), inner.Close()); err != nil || rows != 3*(n+1) {
			t.Errorf("transaction %d: got %d rows, %v, want %d", n, rows, err, 3*(n+1))
		}
		for rows = 1; outer.Next(); rows++ {
		}
		if err := errors.Join(outer.Err(), outer.Close()); err != nil || rows != 3*(n+1) {
			t.Errorf("transaction %d, around another: got %d rows, %v, want %d", n, rows, err, 3*(n+1))
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		inTx(t, st, func(tx *sql.Tx) {
			if _, err := tx.ExecContext(t.Context(), `ALTER TABLE stock ADD COLUMN more`+strings.Repeat("_", n)+` INTEGER`); err != nil {
				t.Fatal(err)
			}
		})
	}
}
