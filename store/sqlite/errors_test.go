package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/sqlite"
)

func wantHint(t *testing.T, err error, hint string) {
	t.Helper()
	var failure *waybill.Error
	if !errors.As(err, &failure) {
		t.Fatalf("got %v, want a waybill.Error", err)
	}
	if !strings.Contains(failure.Hint, hint) {
		t.Errorf("hint of %v: want %q in it", err, hint)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text.db")
	if err := os.WriteFile(text, []byte(strings.Repeat("this is no database\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	utf16 := filepath.Join(dir, "utf16.db")
	db, err := sql.Open("sqlite", utf16)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), `PRAGMA encoding = 'UTF-16'; CREATE TABLE t (x)`); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, dsn, hint string }{
		{"nothing", "", "give a path"},
		{"memory", ":memory:", "memstore"},
		{"shared memory", "file:x?mode=memory&cache=shared", "memstore"},
		{"memory by URI", "file::memory:?cache=shared", "memstore"},
		{"bad parameters", "file:x.db?a=%zz", "%3F"},
		{"missing directory", filepath.Join(dir, "missing", "x.db"), "directory must exist"},
		{"a directory", dir, "directory must exist"},
		{"no database", text, "not a SQLite database"},
		{"another journal", "file:" + filepath.Join(dir, "x.db") + "?_pragma=journal_mode(delete)", "journal_mode"},
		{"another encoding", utf16, "UTF-8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			st, err := sqlite.Open(t.Context(), c.dsn, nil)
			if err == nil {
				_ = st.Close()
				t.Fatal("opened")
			}
			wantHint(t, err, c.hint)
		})
	}
}

func TestOpenPaths(t *testing.T) {
	for _, c := range []struct{ name, dsn, file string }{
		{"path", "%s/a.db", "a.db"},
		{"path with parameters", "%s/a.db?_pragma=foreign_keys(1)", "a.db"},
		{"path with odd letters", "%s/100%% of #1's ñ.db", "100% of #1's ñ.db"},
		{"two slashes", "/%s/a.db", "a.db"},
		{"URI", "file:%s/a%%20b%%3F.db", "a b?.db"},
		{"URI with an empty host", "file://%s/a.db", "a.db"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			openFile(t, fmt.Sprintf(c.dsn, dir), nil)
			if _, err := os.Stat(filepath.Join(dir, c.file)); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("the caller's parameters count", func(t *testing.T) {
		st := openFile(t, filepath.Join(t.TempDir(), "a.db")+"?_pragma=foreign_keys(1)&_pragma=cache_size(-1234)", nil)
		var keys, cache int
		if err := st.DB().QueryRowContext(t.Context(), `SELECT foreign_keys, cache_size FROM pragma_foreign_keys, pragma_cache_size`).Scan(&keys, &cache); err != nil {
			t.Fatal(err)
		}
		if keys != 1 || cache != -1234 {
			t.Errorf("got foreign_keys %d and cache_size %d, want 1 and -1234", keys, cache)
		}
	})
	t.Run("a relative path", func(t *testing.T) {
		t.Chdir(t.TempDir())
		openFile(t, "file:orders.db", nil)
		if _, err := os.Stat("orders.db"); err != nil {
			t.Error(err)
		}
	})
}

func TestReadOnlyIsTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	first := openFile(t, path, nil)
	appendEvents(t, first, event("e1", "a"))
	st, err := sqlite.Open(t.Context(), "file:"+path+"?mode=ro", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if rows := hot(t, st); len(rows) != 1 {
		t.Errorf("hot rows: got %d, want 1", len(rows))
	}
	wantHint(t, st.Ping(t.Context()), "mode=ro")
	wantHint(t, st.Apply(t.Context(), store.Guard{}, store.Changes{}), "mode=ro")
}

func TestFullDatabaseIsTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	openFile(t, path, nil)
	st := openFile(t, path+"?_pragma=max_page_count(80)", nil)
	var failure error
	for i := 0; failure == nil && i < 1000; i++ {
		tx, err := st.DB().BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		e := event(fmt.Sprint("e", i), "k")
		e.Data = make([]byte, 10_000)
		_, failure = st.Append(t.Context(), tx, []waybill.Event{e})
		if failure == nil {
			failure = tx.Commit()
		}
		_ = tx.Rollback()
	}
	wantHint(t, failure, "full")
	if err := st.Ping(t.Context()); err != nil {
		t.Errorf("ping, which needs no more pages: %v", err)
	}
}

func TestAMissingTableIsTold(t *testing.T) {
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "test.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	_, err = st.Load(t.Context(), []int64{1}, 0)
	if !errors.Is(err, store.ErrNoSchema) {
		t.Errorf("load: got %v, want ErrNoSchema", err)
	}
	wantHint(t, err, "Migrate")
	if _, err := st.Claim(t.Context(), "o", time.Second, 1); !errors.Is(err, store.ErrNoSchema) {
		t.Errorf("claim: got %v, want ErrNoSchema", err)
	}
}

func TestWaitingForAWriterIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	st := openFile(t, path, &sqlite.Config{BusyTimeout: 50 * time.Millisecond})
	other := openFile(t, path, nil)
	t.Run("of another handle", func(t *testing.T) {
		tx, err := other.DB().BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		wantHint(t, st.Ping(t.Context()), "write lock")
		if rows := hot(t, st); len(rows) != 0 {
			t.Errorf("hot rows: got %d, want none", len(rows))
		}
		_, err = st.BeginInbox(t.Context())
		wantHint(t, err, "write lock")
	})
	t.Run("of the same handle", func(t *testing.T) {
		tx, err := st.DB().BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		wantHint(t, st.Ping(t.Context()), "end each transaction")
		_, err = st.BeginInbox(t.Context())
		wantHint(t, err, "end each transaction")
	})
	t.Run("or by the caller's context", func(t *testing.T) {
		tx, err := other.DB().BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		patient := openFile2(t, path)
		if err := patient.Ping(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("ping: got %v, want the context's error", err)
		}
	})
	if err := st.Ping(t.Context()); err != nil {
		t.Errorf("ping after all of them ended: %v", err)
	}
}

// openFile2 opens a database that has its tables.
func openFile2(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	st, err := sqlite.Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	return st
}
