package mybinlog_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/waybillhq/waybill/cdc"
	"github.com/waybillhq/waybill/cdc/cdctest"
)

func TestConformance(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) { cdctest.Run(t, s.harness(true)) })
}

func (s *server) harness(withChanges bool) cdctest.Harness {
	return cdctest.Harness{Open: func(t testing.TB) cdctest.Database {
		d := s.database(t)
		opened := cdctest.Database{
			Source:    func(t testing.TB) cdc.Source { return d.source(t) },
			Begin:     func(t testing.TB) cdctest.Tx { return d.begin(t) },
			Truncate:  func(t testing.TB) { d.truncate(t) },
			Unrelated: func(t testing.TB) { run(t, d.db, "INSERT INTO orders (note) VALUES ('unrelated')") },
			Break:     d.kill,
			Lose:      d.purge,
			LostState: cdc.BinlogPurged,
		}
		if withChanges {
			opened.Changes = d.changes()
		}
		return opened
	}}
}

// truncate keeps the ids growing.
func (d *database) truncate(t testing.TB) {
	t.Helper()
	var next int64
	if err := d.db.QueryRowContext(t.Context(), "SELECT COALESCE(MAX(id), 0) + 1 FROM outbox_event").Scan(&next); err != nil {
		t.Fatal(err)
	}
	run(t, d.db, "TRUNCATE TABLE outbox_event", fmt.Sprintf("ALTER TABLE outbox_event AUTO_INCREMENT = %d", next))
}

func (d *database) changes() []cdctest.Change {
	change := func(name string, statements ...string) cdctest.Change {
		return cdctest.Change{Name: name, Make: func(t testing.TB) { run(t, d.db, statements...) }}
	}
	return []cdctest.Change{
		change("a column before the id", "ALTER TABLE outbox_event ADD COLUMN early bigint NOT NULL DEFAULT 4711 FIRST"),
		change("another number before the id", "ALTER TABLE outbox_event ADD COLUMN number bigint unsigned NOT NULL DEFAULT 4712 AFTER early"),
		change("a column at the end", "ALTER TABLE outbox_event ADD COLUMN late json NULL"),
		change("the id in another place", "ALTER TABLE outbox_event MODIFY COLUMN id bigint NOT NULL AUTO_INCREMENT AFTER event_id"),
		change("columns dropped", "ALTER TABLE outbox_event DROP COLUMN early, DROP COLUMN number"),
		change("the id without a sign", "ALTER TABLE outbox_event MODIFY COLUMN id bigint unsigned NOT NULL AUTO_INCREMENT FIRST"),
		change("other tables", "ALTER TABLE orders ADD COLUMN more int NULL FIRST", "CREATE TABLE other LIKE outbox_event", "DROP TABLE orders", "CREATE TABLE orders (note text NULL)"),
		change("a copy made with its rows", "CREATE TABLE copied AS SELECT * FROM outbox_event", "DROP TABLE copied"),
		change("the table of marks", "ALTER TABLE waybill_meta ADD COLUMN changed_at datetime(6) NULL FIRST"),
		change("the table recreated", "RENAME TABLE outbox_event TO outbox_before", "CREATE TABLE outbox_event LIKE outbox_before",
			"ALTER TABLE outbox_event AUTO_INCREMENT = 100000"),
	}
}

// tx is a transaction of an application.
type tx struct{ conn *sql.Conn }

func (d *database) begin(t testing.TB, first ...string) *tx {
	t.Helper()
	conn, err := d.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	run(t, conn, append(first, "START TRANSACTION")...)
	return &tx{conn: conn}
}

func (x *tx) Insert(t testing.TB, n int) []int64 {
	t.Helper()
	statement := taken.Add(1)
	values := make([]string, n)
	for i := range values {
		values[i] = fmt.Sprintf("('%d-%d')", statement, i)
	}
	result, err := x.conn.ExecContext(t.Context(), "INSERT INTO outbox_event (event_id) VALUES "+strings.Join(values, ", "))
	if err != nil {
		t.Fatal(err)
	}
	first, err := result.LastInsertId()
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = first + int64(i)
	}
	return ids
}

func (x *tx) Savepoint(t testing.TB)  { run(t, x.conn, "SAVEPOINT here") }
func (x *tx) RollbackTo(t testing.TB) { run(t, x.conn, "ROLLBACK TO SAVEPOINT here") }
func (x *tx) Commit(t testing.TB)     { x.end(t, "COMMIT") }
func (x *tx) Rollback(t testing.TB)   { x.end(t, "ROLLBACK") }

func (x *tx) end(t testing.TB, how string) {
	t.Helper()
	run(t, x.conn, how)
	_ = x.conn.Close()
}

// commit inserts n events in a transaction of their own.
func (d *database) commit(t testing.TB, n int) []int64 {
	t.Helper()
	x := d.begin(t)
	ids := x.Insert(t, n)
	x.Commit(t)
	return ids
}

// follower reads a stream, as the relay does.
type follower struct {
	source cdc.Source
	stream cdc.Stream
	told   cdc.Batch
	after  cdc.Position
}

func follow(t testing.TB, source cdc.Source, from cdc.Position) *follower {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := source.Setup(ctx); err != nil {
		t.Fatal(err)
	}
	stream, err := source.Open(ctx, from)
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{source: source, stream: stream, after: from}
	t.Cleanup(func() { f.close(t) })
	return f
}

func (f *follower) close(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	if err := f.stream.Close(ctx); err != nil {
		t.Error(err)
	}
}

func (f *follower) next(t testing.TB) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	batch, err := f.stream.Next(ctx)
	if err != nil {
		return err
	}
	f.told.IDs = append(f.told.IDs, batch.IDs...)
	f.told.Marks = append(f.told.Marks, batch.Marks...)
	f.told.Truncates += batch.Truncates
	f.told.Undecodable += batch.Undecodable
	f.told.Committed = batch.Committed
	if batch.Position != "" {
		f.after = batch.Position
	}
	return nil
}

// toMark reads all that was committed until now.
func (f *follower) toMark(t testing.TB) {
	t.Helper()
	text := fmt.Sprint("mark ", taken.Add(1))
	if err := f.source.Mark(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	for len(f.told.Marks) == 0 || f.told.Marks[len(f.told.Marks)-1] != text {
		if err := f.next(t); err != nil {
			t.Fatalf("after %d ids: %v", len(f.told.IDs), err)
		}
	}
}

func (f *follower) want(t testing.TB, ids []int64, undecodable int) {
	t.Helper()
	if fmt.Sprint(f.told.IDs) != fmt.Sprint(ids) || f.told.Undecodable != undecodable {
		t.Errorf("got ids %v and %d undecodable, want %v and %d", f.told.IDs, f.told.Undecodable, ids, undecodable)
	}
}
