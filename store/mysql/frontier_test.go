package mysql_test

import (
	"context"
	"database/sql"
	bad "database/sql/driver"
	"fmt"
	"sync"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/mysql"
)

// shortWindow passes many times while a case keeps a transaction open.
const shortWindow = 100 * time.Millisecond

func openWindow(t *testing.T, dsn string, window time.Duration) *mysql.Store {
	t.Helper()
	st, err := mysql.Open(t.Context(), dsn, &mysql.Config{CommitWindow: window})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	if err := st.Migrate(t.Context(), store.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	return st
}

func frontier(t *testing.T, st *mysql.Store) store.Frontier {
	t.Helper()
	f, err := st.Frontier(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func closes(t *testing.T, st *mysql.Store, seen store.Frontier) {
	t.Helper()
	until(t, "the frontier closes", func() bool { return frontier(t, st).Closed >= seen.Opened })
}

// staysOpen asks for twice as long as it takes to close what nobody holds open.
func staysOpen(t *testing.T, st *mysql.Store, seen store.Frontier) {
	t.Helper()
	began := time.Now()
	until(t, "time passes", func() bool {
		if f := frontier(t, st); f.Closed >= seen.Opened {
			t.Fatalf("closed %d over an open transaction at %d", f.Closed, seen.Opened)
		}
		return time.Since(began) > 2500*time.Millisecond
	})
}

func execOn(t *testing.T, on interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}, statement string,
) {
	t.Helper()
	if _, err := on.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func insertOf(id string) string {
	return fmt.Sprintf(`INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, topic, payload)
		VALUES ('%s', 'order', 'O-1', 'OrderPaid', 'orders', '{}')`, id)
}

func TestFrontierWaitsForTransactionsHoweverLong(t *testing.T) {
	onEach(t, func(t *testing.T, s server) {
		t.Run("an open one", func(t *testing.T) {
			t.Parallel()
			st := openWindow(t, s.freshDatabase(t), shortWindow)
			tx := beginTx(t, st)
			execOn(t, tx, insertOf("lower"))
			execOn(t, st.DB(), insertOf("higher"))
			seen := frontier(t, st)
			staysOpen(t, st, seen)
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			closes(t, st, seen)
		})
		t.Run("a prepared one whose session is gone", func(t *testing.T) {
			t.Parallel()
			dsn := s.freshDatabase(t)
			st := openWindow(t, dsn, shortWindow)
			conn, err := st.DB().Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			name := "'" + databaseOf(t, dsn) + "'"
			for _, statement := range []string{"XA START " + name, insertOf("lower"), "XA END " + name, "XA PREPARE " + name} {
				execOn(t, conn, statement)
			}
			_ = conn.Raw(func(any) error { return bad.ErrBadConn }) // which closes it
			defer func() {
				if t.Failed() { // what is prepared would outlive the test, and keep its tables
					_, _ = st.DB().ExecContext(context.WithoutCancel(t.Context()), "XA ROLLBACK "+name)
				}
			}()
			execOn(t, st.DB(), insertOf("higher"))
			seen := frontier(t, st)
			staysOpen(t, st, seen)
			execOn(t, st.DB(), "XA COMMIT "+name)
			closes(t, st, seen)
		})
	})
}

// An INSERT takes its id, then waits for another session that inserts the same
// event id.
func TestFrontierWaitsForAnInsertThatWaits(t *testing.T) {
	onEach(t, func(t *testing.T, s server) {
		st := openWindow(t, s.freshDatabase(t), shortWindow)
		blocker, waiting := beginTx(t, st), beginTx(t, st)
		execOn(t, blocker, insertOf("same"))
		done := make(chan error, 1)
		go func() {
			_, err := waiting.ExecContext(t.Context(), insertOf("same"))
			done <- err
		}()
		until(t, "a session waits", func() bool {
			var n int
			err := st.DB().QueryRowContext(t.Context(), `SELECT COUNT(*) FROM information_schema.PROCESSLIST
				WHERE DB = DATABASE() AND COMMAND = 'Query' AND INFO LIKE '%''same''%' AND ID <> CONNECTION_ID()`).Scan(&n)
			if err != nil {
				t.Fatal(err)
			}
			return n > 0
		})
		execOn(t, st.DB(), insertOf("visible"))
		seen := frontier(t, st)
		if err := blocker.Rollback(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		staysOpen(t, st, seen)
		if err := waiting.Commit(); err != nil {
			t.Fatal(err)
		}
		closes(t, st, seen)
	})
}

func beginTx(t *testing.T, st *mysql.Store) *sql.Tx {
	t.Helper()
	tx, err := st.DB().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func databaseOf(t *testing.T, dsn string) string {
	t.Helper()
	settings, err := driver.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return settings.DBName
}

// A reader has no ids, also if it keeps its snapshot.
func TestFrontierPassesReaders(t *testing.T) {
	onEach(t, func(t *testing.T, s server) {
		st := openWindow(t, s.freshDatabase(t), time.Hour)
		execOn(t, st.DB(), insertOf("e1"))
		tx, err := st.DB().BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		execOn(t, tx, "SELECT COUNT(*) FROM outbox_event")
		closes(t, st, frontier(t, st))
	})
}

// The server renews its list of transactions only when nobody has read it for a
// while: those who read it must not keep it old for each other.
func TestFrontierClosesForManyRelays(t *testing.T) {
	onEach(t, func(t *testing.T, s server) {
		dsn := s.freshDatabase(t)
		// A transaction that someone left open on this server keeps it for ever.
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		var all sync.WaitGroup
		for range 6 {
			st := openWindow(t, dsn, time.Hour)
			all.Go(func() {
				seen, err := st.Frontier(ctx)
				for f := seen; err == nil && f.Closed < seen.Opened; {
					f, err = st.Frontier(ctx)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	})
}

func TestFrontierWithoutTheRightToSeeTransactions(t *testing.T) {
	const window = 2 * time.Second
	onEach(t, func(t *testing.T, s server) {
		dsn := s.freshDatabase(t)
		openWindow(t, dsn, time.Minute)
		settings, err := driver.ParseDSN(dsn)
		if err != nil {
			t.Fatal(err)
		}
		account := fmt.Sprintf("'%s'@'127.0.0.1'", settings.DBName)
		s.run(t, "CREATE USER "+account+" IDENTIFIED BY 'waybill'", "GRANT ALL ON `"+settings.DBName+"`.* TO "+account)
		t.Cleanup(func() { s.run(t, "DROP USER "+account) })
		settings.User, settings.Passwd = settings.DBName, "waybill"
		st, err := mysql.Open(t.Context(), settings.FormatDSN(), &mysql.Config{CommitWindow: window})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = st.Close() }()
		execOn(t, st.DB(), insertOf("e1"))
		began := time.Now()
		seen := frontier(t, st)
		if again := frontier(t, st); again.Closed >= seen.Opened && time.Since(began) < window {
			t.Error("closed at once, without knowing what runs")
		}
		closes(t, st, seen)
	})
}
