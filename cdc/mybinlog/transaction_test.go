package mybinlog_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/waybillhq/waybill/cdc"
)

// A prepared branch is told when it is committed, and where it was committed
// among the others.
func TestPreparedTransactions(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		d := s.database(t)
		f := follow(t, d.source(t), "")
		f.toMark(t)
		first := d.prepared(t, "first", 2)
		second := d.prepared(t, "second", cdc.MaxIDs+10)
		d.prepared(t, "gone", 1)
		want := d.commit(t, 1)
		f.toMark(t)
		f.want(t, want, 0)

		run(t, d.db, "XA COMMIT 'second'")
		want = append(want, second...)
		want = append(want, d.commit(t, 1)...)
		run(t, d.db, "XA ROLLBACK 'gone'", "XA COMMIT 'first'")
		want = append(want, first...)
		want = append(want, d.onePhase(t, "single", 3)...)
		f.toMark(t)
		f.want(t, want, 0)
	})
}

// prepared leaves a prepared branch behind. The session ends, as that of an
// application that waits for a coordinator may.
func (d *database) prepared(t testing.TB, name string, n int) []int64 {
	t.Helper()
	return d.xa(t, name, n, "XA PREPARE '"+name+"'")
}

func (d *database) onePhase(t testing.TB, name string, n int) []int64 {
	t.Helper()
	return d.xa(t, name, n, "XA COMMIT '"+name+"' ONE PHASE")
}

func (d *database) xa(t testing.TB, name string, n int, last string) []int64 {
	t.Helper()
	conn, err := d.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	run(t, conn, "XA START '"+name+"'")
	x := &tx{conn: conn}
	ids := x.Insert(t, n)
	run(t, conn, "XA END '"+name+"'", last)
	discard(conn)
	return ids
}

// A position told while a branch is prepared loses nothing of it: it stays before
// the branch, and what came after is told again.
func TestPreparedAcrossStreams(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		d := s.database(t)
		f := follow(t, d.source(t), "")
		f.toMark(t)
		branch := d.prepared(t, "across", 2)
		between := d.commit(t, 1)
		f.toMark(t)
		f.want(t, between, 0)
		f.close(t)

		f = follow(t, f.source, f.after)
		run(t, d.db, "XA COMMIT 'across'")
		f.toMark(t)
		f.want(t, append(between, branch...), 0)
		f.close(t)

		// All is told: the position has moved on.
		f = follow(t, f.source, f.after)
		last := d.commit(t, 1)
		f.toMark(t)
		f.want(t, last, 0)
	})
}

// A branch that was prepared before the stream began may have any ids.
func TestPreparedBefore(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		d := s.database(t)
		d.prepared(t, "before", 2)
		d.prepared(t, "undone", 2)
		f := follow(t, d.source(t), "")
		run(t, d.db, "XA ROLLBACK 'undone'", "XA COMMIT 'before'")
		want := d.commit(t, 1)
		f.toMark(t)
		f.want(t, want, 1)
	})
}

// compression is how each server compresses its log.
func (d *database) compress(t testing.TB) {
	t.Helper()
	if d.isMaria {
		d.set(t, "log_bin_compress", "1")
		d.set(t, "log_bin_compress_min_len", "10")
		return
	}
	d.set(t, "binlog_transaction_compression", "1")
}

func TestCompressed(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		d := s.database(t)
		d.compress(t)
		d = d.again(t)
		f := follow(t, d.source(t), "")
		f.toMark(t)
		x := d.begin(t)
		want := x.Insert(t, 3)
		x.Savepoint(t)
		x.Insert(t, 1)
		x.RollbackTo(t)
		run(t, x.conn, "UPDATE outbox_event SET payload = REPEAT('compressible ', 1000)")
		want = append(want, x.Insert(t, cdc.MaxIDs+1)...)
		x.Commit(t)
		branch := d.prepared(t, "compressed", 2)
		run(t, d.db, "TRUNCATE TABLE orders /* "+strings.Repeat("long ", 100)+" */")
		want = append(want, d.commit(t, 1)...)
		run(t, d.db, "XA COMMIT 'compressed'")
		want = append(want, branch...)
		d.truncate(t)
		f.toMark(t)
		f.want(t, want, 0)
		if f.told.Truncates != 1 {
			t.Errorf("got %d truncates, want 1", f.told.Truncates)
		}
	})
}

// again is the database over connections that have the server's settings of now.
func (d *database) again(t testing.TB) *database {
	t.Helper()
	again := *d
	again.db = connect(t, d.dsn)
	return &again
}

// A table of an engine without transactions keeps rows that were rolled back in
// the log, with the statement that undid them.
func TestRollbackThatIsLogged(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		if !s.isMaria {
			t.Skip("MySQL refuses such transactions with GTIDs")
		}
		d := s.database(t)
		f := follow(t, d.source(t), "")
		f.toMark(t)
		x := d.begin(t)
		want := x.Insert(t, 1)
		run(t, x.conn, "SAVEPOINT `Here`")
		x.Insert(t, 2)
		run(t, x.conn, "INSERT INTO untransactional VALUES ()", "ROLLBACK TO SAVEPOINT here")
		want = append(want, x.Insert(t, 1)...)
		x.Commit(t)
		x = d.begin(t)
		x.Insert(t, 1)
		run(t, x.conn, "INSERT INTO untransactional VALUES ()")
		x.Rollback(t)
		f.toMark(t)
		f.want(t, want, 0)
	})
}

// Rows that are logged as a statement, and ids that no event has.
func TestUndecodable(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		d := s.database(t)
		f := follow(t, d.source(t), "")
		f.toMark(t)
		conn, err := d.db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		run(t, conn, "SET SESSION binlog_format = STATEMENT", "INSERT INTO outbox_event (event_id) VALUES ('statement')")
		discard(conn)
		want := d.commit(t, 1)
		run(t, d.db, "INSERT INTO outbox_event (id, event_id) VALUES (-5, 'negative')", "DELETE FROM outbox_event WHERE id < 0",
			"ALTER TABLE outbox_event MODIFY COLUMN id bigint unsigned NOT NULL AUTO_INCREMENT",
			"INSERT INTO outbox_event (id, event_id) VALUES (9223372036854775808, 'beyond'), (9223372036854775807, 'last')")
		want = append(want, 9223372036854775807)
		f.toMark(t)
		f.want(t, want, 3)
	})
}

// A REPLACE may be carried out as an update of the row that was there.
func TestReplace(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		d := s.database(t)
		f := follow(t, d.source(t), "")
		f.toMark(t)
		run(t, d.db, "INSERT INTO outbox_event (id, event_id) VALUES (10, 'e')", "REPLACE INTO outbox_event (id, event_id) VALUES (11, 'e')",
			"UPDATE outbox_event SET payload = 'changed'", "DELETE FROM outbox_event")
		f.toMark(t)
		f.want(t, []int64{10, 11}, 0)
	})
}

// Keys are never read from the log, so that no type can be told wrong; ids are
// read past whatever stands before them.
func TestColumnsOfAllTypes(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		d := s.database(t)
		run(t, d.db, "DROP TABLE outbox_event", `
CREATE TABLE outbox_event (
    big bigint unsigned NOT NULL, f float, y year, ts timestamp NULL, d6 decimal(65, 30), d1 decimal(1, 0), d9 decimal(18, 9),
    c1 char(1), c255 char(255) CHARACTER SET utf8mb4, vb varbinary(300), vc varchar(63) CHARACTER SET utf8mb4,
    tb tinyblob, mb mediumblob, tt text, b1 bit(1), b64 bit(64), g geometry, e enum('a','b'), s set('a','b','c','d','e','f','g','h','i'),
    t0 time, t6 time(6), dt0 datetime, virtual_one int AS (1 + 1) VIRTUAL, stored_one varchar(10) AS ('x') STORED,
    event_id varchar(128) NOT NULL UNIQUE, j json, i3 mediumint, id bigint NOT NULL AUTO_INCREMENT PRIMARY KEY, after_id decimal(10, 5)
) ENGINE = InnoDB`)
		f := follow(t, d.source(t), "")
		f.toMark(t)
		values := []string{
			"18446744073709551615, 1.5, 2026, '2026-01-02 03:04:05', -12345678901234567890.123456789012345678, 9, 123456789.987654321",
			"'c', REPEAT('字', 200), REPEAT('v', 300), REPEAT('字', 63), REPEAT('t', 255), REPEAT('m', 70000), REPEAT('字', 300)",
			"b'1', 18446744073709551615, ST_GeomFromText('POINT(1 2)'), 'b', 'a,i', '-838:59:59', '10:11:12.123456', '2026-01-02 03:04:05'",
		}
		run(t, d.db,
			"INSERT INTO outbox_event (big, f, y, ts, d6, d1, d9, c1, c255, vb, vc, tb, mb, tt, b1, b64, g, e, s, t0, t6, dt0, event_id, j, i3, id, after_id) VALUES "+
				"("+strings.Join(values, ", ")+", 'full', '{\"a\": [1, 2, 3]}', -3, 42, 1.5), "+
				"(0, "+strings.Repeat("NULL, ", 21)+"'empty', NULL, NULL, 43, NULL)")
		f.toMark(t)
		f.want(t, []int64{42, 43}, 0)
	})
}

// The rows of a partition say which one it is, and a TRUNCATE may be of one.
func TestPartitions(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		d := s.database(t)
		run(t, d.db, "DROP TABLE outbox_event",
			"CREATE TABLE outbox_event (id bigint NOT NULL AUTO_INCREMENT PRIMARY KEY, event_id varchar(128) NOT NULL) ENGINE = InnoDB PARTITION BY HASH (id) PARTITIONS 4")
		f := follow(t, d.source(t), "")
		f.toMark(t)
		want := d.commit(t, 6)
		// Within one statement the rows of a partition may come together.
		slices.Sort(want)
		run(t, d.db, "ALTER TABLE outbox_event TRUNCATE PARTITION p1")
		run(t, d.db, "UPDATE outbox_event SET event_id = CONCAT(event_id, 'x')")
		f.toMark(t)
		slices.Sort(f.told.IDs)
		f.want(t, want, 0)
		if f.told.Truncates != 1 {
			t.Errorf("got %d truncates, want 1", f.told.Truncates)
		}
	})
}

// The transactions of MySQL may be numbered under a tag.
func TestTags(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		if s.isMaria {
			t.Skip("MariaDB has domains instead, which the suite has")
		}
		d := s.database(t)
		f := follow(t, d.source(t), "")
		f.toMark(t)
		x := d.begin(t, "SET gtid_next = 'AUTOMATIC:nightly'")
		want := x.Insert(t, 2)
		x.end(t, "COMMIT")
		f.toMark(t)
		f.want(t, want, 0)
		if !strings.Contains(string(f.after), ":nightly:1") {
			t.Errorf("the position has no tag: %s", f.after)
		}
		f.close(t)
		f = follow(t, f.source, f.after)
		want = d.commit(t, 1)
		f.toMark(t)
		f.want(t, want, 0)
	})
}

// Domains of MariaDB are separate orders of one log.
func TestDomains(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		if !s.isMaria {
			t.Skip("MySQL has no domains")
		}
		d := s.database(t)
		f := follow(t, d.source(t), "")
		f.toMark(t)
		var want []int64
		for domain := range 3 {
			x := d.begin(t, fmt.Sprintf("SET SESSION gtid_domain_id = %d", domain))
			want = append(want, x.Insert(t, 1)...)
			run(t, x.conn, "COMMIT")
			discard(x.conn)
		}
		f.toMark(t)
		f.want(t, want, 0)
		f.close(t)
		f = follow(t, f.source, f.after)
		want = d.commit(t, 1)
		f.toMark(t)
		f.want(t, want, 0)
	})
}
