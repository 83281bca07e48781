package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/mysql"
	"github.com/waybillhq/waybill/store/storetest"
)

// leavePrepared inserts an event in a transaction that is prepared and left by its
// session. The name is the arguments of XA COMMIT.
func leavePrepared(t *testing.T, dsn, xid string) {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	for _, statement := range []string{
		"XA START " + xid,
		"INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, topic, payload) VALUES ('e1', 'order', '1', 'OrderPaid', 'orders', '1')",
		"XA END " + xid, "XA PREPARE " + xid,
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func TestPreparedTransactionsAreNamed(t *testing.T) {
	onEach(t, func(t *testing.T, s server) {
		dsn := s.freshDatabase(t)
		st := openStore(t, dsn, storetest.Options{})
		settings, err := driver.ParseDSN(dsn)
		if err != nil {
			t.Fatal(err)
		}
		for _, xid := range []string{fmt.Sprintf("'%s','a branch',7", settings.DBName), fmt.Sprintf("X'00ff27%x',X'',1", settings.DBName)} {
			leavePrepared(t, dsn, xid)
			ended := false
			end := func(how string) {
				if !ended {
					ended = true
					s.run(t, how)
				}
			}
			t.Cleanup(func() { end("XA ROLLBACK " + xid) })
			mine := func(p store.PreparedTransaction) bool { return sameXID(p.Name, xid) }
			found, err := st.ListPrepared(t.Context())
			i := slices.IndexFunc(found, mine)
			if err != nil || i < 0 {
				t.Fatalf("prepared: got %+v, %v, want one of %s", found, err, xid)
			}
			end(found[i].Rollback)
			if found, err := st.ListPrepared(t.Context()); err != nil || slices.ContainsFunc(found, mine) {
				t.Errorf("after %s: %+v, %v", found, found, err)
			}
			if rows := hot(t, st); len(rows) != 0 {
				t.Errorf("rolled back, but in the queue: %+v", rows)
			}
		}
	})
}

// sameXID compares two ways to write a name.
func sameXID(a, b string) bool {
	plain := func(xid string) string {
		parts := strings.Split(strings.ToLower(strings.ReplaceAll(xid, " ,", ",")), ",")
		for i, part := range parts {
			if digits, isHex := strings.CutPrefix(part, "x'"); isHex {
				parts[i] = strings.TrimSuffix(digits, "'")
			} else if text, isText := strings.CutPrefix(part, "'"); isText {
				parts[i] = fmt.Sprintf("%x", strings.TrimSuffix(text, "'"))
			}
		}
		for i, usual := range []string{1: "", 2: "1"} { // MariaDB leaves these out
			if i == len(parts) {
				parts = append(parts, usual)
			}
		}
		return strings.Join(parts, ",")
	}
	return plain(a) == plain(b)
}

// An account with the rights on its own tables and no others is told nothing, or
// that there is one.
func TestPreparedTransactionsWithoutTheRightToSeeThem(t *testing.T) {
	onEach(t, func(t *testing.T, s server) {
		dsn := s.freshDatabase(t)
		openStore(t, dsn, storetest.Options{})
		settings, err := driver.ParseDSN(dsn)
		if err != nil {
			t.Fatal(err)
		}
		account := "'" + settings.DBName + "'@'127.0.0.1'"
		s.run(t, "CREATE USER "+account+" IDENTIFIED BY 'secret'", "GRANT ALL ON "+settings.DBName+".* TO "+account)
		t.Cleanup(func() { s.run(t, "DROP USER "+account) })
		settings.User, settings.Passwd = settings.DBName, "secret"
		limited := func() *mysql.Store {
			st, err := mysql.Open(t.Context(), settings.FormatDSN(), nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = st.Close() })
			return st
		}
		xid := "'" + settings.DBName + "','',1"
		leavePrepared(t, dsn, xid)
		t.Cleanup(func() {
			if err := execute(context.WithoutCancel(t.Context()), s.dsn, "XA ROLLBACK "+xid); err != nil {
				t.Error(err)
			}
		})
		isMine := func(p store.PreparedTransaction) bool { return sameXID(p.Name, xid) }
		found, err := limited().ListPrepared(t.Context())
		if err != nil || s.name == "mysql9" && slices.ContainsFunc(found, isMine) {
			t.Errorf("without any right: %+v, %v", found, err)
		}
		if s.name != "mysql9" {
			return // MariaDB names them to everybody
		}
		s.run(t, "GRANT PROCESS ON *.* TO "+account)
		found, err = limited().ListPrepared(t.Context())
		if err != nil || len(found) == 0 || found[0].Name != "" {
			t.Errorf("with the right PROCESS: %+v, %v, want one without a name", found, err)
		}
	})
}
