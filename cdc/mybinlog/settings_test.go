package mybinlog_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	driver "github.com/go-sql-driver/mysql"

	"github.com/waybillhq/waybill/cdc"
	"github.com/waybillhq/waybill/cdc/mybinlog"
)

// Whatever a server leaves out of the rows that it logs, the ids of inserts and
// the texts of marks are there.
func TestShortImages(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		for _, image := range []string{"MINIMAL", "NOBLOB"} {
			t.Run(image, func(t *testing.T) {
				d := s.database(t)
				d.set(t, "binlog_row_image", image)
				if !s.isMaria {
					d.set(t, "binlog_row_value_options", "PARTIAL_JSON")
				}
				d = d.again(t)
				f := follow(t, d.source(t), "")
				f.toMark(t)
				want := d.commit(t, 3)
				run(t, d.db, `UPDATE outbox_event SET headers = JSON_OBJECT('a', REPEAT('x', 100), 'b', 1)`,
					`UPDATE outbox_event SET headers = JSON_SET(headers, '$.b', 2)`)
				want = append(want, d.commit(t, 1)...)
				f.toMark(t)
				f.toMark(t)
				f.want(t, want, 0)
			})
		}
	})
}

// Without the names of columns in the log a reader that keeps up loses nothing,
// and one that was away tells no wrong id: what it does not know it counts.
func TestNoNamesInTheLog(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		d := s.database(t)
		metadata := "MINIMAL"
		if s.isMaria {
			metadata = "NO_LOG"
		}
		d.set(t, "binlog_row_metadata", metadata)
		d = d.again(t)
		f := follow(t, d.source(t), "")
		f.toMark(t)
		begin := f.after
		want := d.commit(t, 2)
		for _, change := range d.changes() {
			f.toMark(t)
			change.Make(t)
			want = append(want, d.commit(t, 2)...)
		}
		f.toMark(t)
		f.want(t, want, 0)
		f.close(t)

		f = follow(t, f.source, begin)
		known := make(map[int64]bool)
		for _, id := range want {
			known[id] = true
		}
		f.toMark(t)
		for _, id := range f.told.IDs {
			if !known[id] {
				t.Errorf("id %d was told and never committed", id)
			}
		}
		if f.told.Undecodable == 0 || len(f.told.IDs) < 2 {
			t.Errorf("got %d ids and %d undecodable of %d", len(f.told.IDs), f.told.Undecodable, len(want))
		}
	})
}

// The rights of the script are enough, whatever the account logs in with.
func TestGrants(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		d := s.database(t)
		account := "'cdc reader'@'127.0.0.1'"
		plugins := map[string]string{"caching_sha2": "IDENTIFIED WITH caching_sha2_password BY 'se,cret'"}
		if s.isMaria {
			plugins = map[string]string{"native": "IDENTIFIED BY 'se,cret'"}
		}
		for name, identified := range plugins {
			t.Run(name, func(t *testing.T) {
				run(t, d.db, "CREATE USER "+account+" "+identified)
				t.Cleanup(func() { run(t, d.db, "DROP USER "+account) })
				settings, _ := driver.ParseDSN(d.dsn)
				settings.User, settings.Passwd = "cdc reader", "se,cret"
				source := d.sourceWith(t, settings.FormatDSN(), nil)
				var refused *cdc.Error
				if err := source.Setup(t.Context()); !errors.As(err, &refused) || refused.State != cdc.Misconfigured || refused.Hint == "" {
					t.Errorf("without rights: got %v, want %s with a hint", err, cdc.Misconfigured)
				}
				// As the relay has it, without what the log needs.
				run(t, d.db, "GRANT SELECT, INSERT, UPDATE ON "+quote(d.schema)+".* TO "+account)
				_, err := source.Open(t.Context(), "")
				if !errors.As(err, &refused) || refused.State != cdc.Misconfigured || !strings.Contains(refused.Hint, "REPLICATION SLAVE") {
					t.Errorf("without REPLICATION SLAVE: got %v, want %s with a hint", err, cdc.Misconfigured)
				}
				if bad := failing(source.Check(t.Context())); !strings.Contains(bad, "privileges") {
					t.Errorf("checks: got %q, want privileges among them", bad)
				}
				run(t, d.db, "REVOKE SELECT, INSERT, UPDATE ON "+quote(d.schema)+".* FROM "+account)
				for line := range strings.SplitSeq(source.Grants(account), "\n") {
					if line, _, _ = strings.Cut(line, "-- "); line != "" {
						run(t, d.db, line)
					}
				}
				source = d.sourceWith(t, settings.FormatDSN(), nil)
				if bad := failing(source.Check(t.Context())); bad != "" {
					t.Errorf("checks with the rights: %s", bad)
				}
				f := follow(t, source, "")
				want := d.commit(t, 1)
				f.toMark(t)
				f.want(t, want, 0)
				if status, err := source.Status(t.Context()); err != nil || status.LagBytes < 0 || status.State != cdc.Streaming {
					t.Errorf("status: got %+v, %v", status, err)
				}
			})
		}
	})
}

func failing(checks []cdc.Check) string {
	var bad []string
	for _, check := range checks {
		if !check.OK {
			bad = append(bad, check.Name+": "+check.Detail+" ("+check.Hint+")")
		}
	}
	return strings.Join(bad, "; ")
}

// The log comes over an encrypted connection when the DSN asks for one, and as
// the other connections do when it leaves the choice.
func TestEncryption(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		d := s.database(t)
		with := func(mode string) *mybinlog.Source {
			settings, _ := driver.ParseDSN(d.dsn)
			settings.TLSConfig = mode
			return d.sourceWith(t, settings.FormatDSN(), nil)
		}
		if s.isMaria {
			// This one has no certificates.
			if err := with("skip-verify").Setup(t.Context()); err == nil {
				t.Error("tls=skip-verify connected without encryption")
			}
		} else {
			account := "'encrypted'@'127.0.0.1'"
			run(t, d.db, "CREATE USER "+account+" IDENTIFIED BY 'secret' REQUIRE SSL", "GRANT ALL PRIVILEGES ON *.* TO "+account)
			t.Cleanup(func() { run(t, d.db, "DROP USER "+account) })
			d.dsn = strings.Replace(d.dsn, "waybill:waybill@", "encrypted:secret@", 1)
			if err := with("false").Setup(t.Context()); err == nil {
				t.Error("the account came in without encryption")
			}
			d.follows(t, with("skip-verify"))
		}
		d.follows(t, with("preferred"))
	})
}

// follows reads one event.
func (d *database) follows(t testing.TB, source cdc.Source) {
	t.Helper()
	f := follow(t, source, "")
	want := d.commit(t, 1)
	f.toMark(t)
	f.want(t, want, 0)
	f.close(t)
}

// Another reader with the same number is seen before it is ended, and named when
// it ends ours.
func TestServerIDConflict(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		d := s.database(t)
		const number = 4711
		ours := d.sourceWith(t, d.dsn, &mybinlog.Config{ServerID: number})
		other := d.replica(t, number)
		waitFor(t, "the other reader to be seen", func() bool {
			stream, err := ours.Open(t.Context(), "")
			if err == nil {
				_ = stream.Close(t.Context())
				return false
			}
			if cdc.StateOf(err) != cdc.ServerIDConflict {
				t.Fatalf("got %v, want %s", err, cdc.ServerIDConflict)
			}
			return true
		})
		other.Close()
		var f *follower
		waitFor(t, "the number to be free", func() bool {
			stream, err := ours.Open(t.Context(), "")
			if err != nil {
				return false
			}
			f = &follower{source: ours, stream: stream}
			return true
		})
		t.Cleanup(func() { f.close(t) })
		f.toMark(t)
		if !s.isMaria {
			return // MySQL tells its readers apart by other names
		}
		d.replica(t, number)
		var err error
		waitFor(t, "our reader to be ended", func() bool { err = f.next(t); return err != nil })
		if cdc.StateOf(err) != cdc.ServerIDConflict {
			t.Errorf("got %v, want %s", err, cdc.ServerIDConflict)
		}
	})
}

// replica reads the log as another program would.
func (d *database) replica(t testing.TB, number uint32) *replication.BinlogSyncer {
	t.Helper()
	settings, _ := driver.ParseDSN(d.dsn)
	flavor, end := mysql.MySQLFlavor, "SELECT @@GLOBAL.gtid_executed"
	if d.isMaria {
		flavor, end = mysql.MariaDBFlavor, "SELECT @@GLOBAL.gtid_binlog_pos"
	}
	syncer := replication.NewBinlogSyncer(replication.BinlogSyncerConfig{
		ServerID: number, Flavor: flavor, Host: settings.Addr, User: settings.User, Password: settings.Passwd,
		Localhost: "replica-of-somebody", RawModeEnabled: true, DisableRetrySync: true, Logger: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(syncer.Close)
	var at string
	if err := d.db.QueryRowContext(t.Context(), end).Scan(&at); err != nil {
		t.Fatal(err)
	}
	set, err := mysql.ParseGTIDSet(flavor, withoutTags(at))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := syncer.StartSyncGTID(set); err != nil {
		t.Fatal(err)
	}
	return syncer
}

// withoutTags leaves out what that library cannot read.
func withoutTags(set string) string {
	var kept []string
	for part := range strings.SplitSeq(strings.ReplaceAll(set, "\n", ""), ",") {
		fields := strings.Split(part, ":")
		for i, field := range fields {
			if i > 0 && (field[0] < '0' || field[0] > '9') {
				fields = fields[:i]
				break
			}
		}
		kept = append(kept, strings.Join(fields, ":"))
	}
	return strings.Join(kept, ",")
}

// What a stream cannot work with is named before it is opened.
func TestSettings(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		d := s.database(t)
		source := d.source(t)
		if bad := failing(source.Check(t.Context())); bad != "" {
			t.Errorf("a good server: %s", bad)
		}
		d.set(t, "binlog_format", "MIXED")
		err := source.Setup(t.Context())
		var refused *cdc.Error
		if !errors.As(err, &refused) || refused.State != cdc.Misconfigured || !strings.Contains(refused.Hint, "ROW") {
			t.Errorf("binlog_format MIXED: got %v, want %s with a hint", err, cdc.Misconfigured)
		}
		if bad := failing(source.Check(t.Context())); !strings.Contains(bad, "binlog_format") {
			t.Errorf("checks: got %q", bad)
		}
		missing := d.sourceWith(t, d.dsn, &mybinlog.Config{Event: "nothing"})
		if bad := failing(missing.Check(t.Context())); !strings.Contains(bad, "tables") {
			t.Errorf("checks without the table: got %q", bad)
		}
		own := d.sourceWith(t, d.dsn, &mybinlog.Config{ServerID: 9001})
		if err := own.Setup(t.Context()); cdc.StateOf(err) != cdc.Misconfigured {
			t.Errorf("the server's own number: got %v", err)
		}
	})
}

// A log that was begun anew does not have the position.
func TestUnknownPosition(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		d := s.database(t)
		source := d.source(t)
		position := cdc.Position("4e11fa47-71ca-11e1-9e33-c80aa9429562:1-77")
		if s.isMaria {
			position = "0-9001-999999999"
		}
		for _, from := range []cdc.Position{position, "nonsense"} {
			if _, err := source.Open(t.Context(), from); cdc.StateOf(err) != cdc.PositionUnknown {
				t.Errorf("%s: got %v, want %s", from, err, cdc.PositionUnknown)
			}
		}
	})
}

// A stream that nobody reads holds the server back, and loses nothing when it is
// read again.
func TestSlowReader(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		d := s.database(t)
		source := d.sourceWith(t, d.dsn, &mybinlog.Config{Heartbeat: 200 * time.Millisecond})
		f := follow(t, source, "")
		f.toMark(t)
		var want []int64
		for range 8 {
			want = append(want, d.commit(t, cdc.MaxIDs)...)
		}
		// Longer than the connection may be silent: only waiting counts for that.
		before, err := source.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the reader to stand still", func() bool {
			status, err := source.Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			still := status.LagBytes > 0 && status.LagBytes == before.LagBytes
			before = status
			return still
		})
		f.toMark(t)
		f.want(t, want, 0)
		status, err := source.Status(t.Context())
		if err != nil || status.LagBytes < 0 || status.LagBytes > 4096 {
			t.Errorf("the lag at the end: got %+v, %v", status, err)
		}
	})
}

// A server that is killed comes back with its log, and the reader finds its place.
func TestServerIsKilled(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		d := s.database(t)
		f := follow(t, d.source(t), "")
		want := d.commit(t, 2)
		f.toMark(t)
		f.want(t, want, 0)
		if err := s.crash(); err != nil {
			t.Fatal(err)
		}
		var err error
		waitFor(t, "the stream to end", func() bool { err = f.next(t); return err != nil })
		if cdc.StateOf(err) != cdc.Unreachable {
			t.Errorf("the end: got %v, want %s", err, cdc.Unreachable)
		}
		f.close(t)
		if _, err := f.source.Open(t.Context(), f.after); cdc.StateOf(err) != cdc.Unreachable {
			t.Errorf("while it is down: got %v, want %s", err, cdc.Unreachable)
		}
		if err := s.env("up"); err != nil {
			t.Fatal(err)
		}
		want = d.commit(t, 2)
		f = follow(t, f.source, f.after)
		f.toMark(t)
		f.want(t, want, 0)
	})
}

// One process reads at a time, for each outbox.
func TestOneReaderPerName(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		d := s.database(t)
		first := follow(t, d.source(t), "")
		other := d.source(t)
		if _, err := other.Open(t.Context(), ""); cdc.StateOf(err) != cdc.Waiting {
			t.Errorf("got %v, want %s", err, cdc.Waiting)
		}
		// Another outbox of the same server is another log.
		second := s.database(t)
		f := follow(t, second.source(t), "")
		f.toMark(t)
		first.toMark(t)
		// Whoever has the lock and loses its session must stop: another may begin.
		d.kill(t)
		waitFor(t, "the stream to end", func() bool { return first.next(t) != nil })
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := first.stream.Close(ctx); err != nil {
			t.Error(err)
		}
	})
}
