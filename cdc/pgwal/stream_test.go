package pgwal_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill/cdc"
	"github.com/waybillhq/waybill/cdc/pgwal"
)

// Another table is written to while the outbox is idle: the slot follows, so that
// the server keeps nothing for it.
func TestIdleOutboxKeepsNoLog(t *testing.T) {
	onServers(t, func(t *testing.T, o *outbox) {
		s := o.source(t, nil)
		r := open(t, s, "")
		r.toMark(t, s, "begin")
		r.Ack(r.after)
		before := status(t, s)
		const written = 200 << 20
		o.exec(t, `ALTER TABLE `+o.schema+`.other ALTER COLUMN text SET STORAGE PLAIN`)
		o.exec(t, `INSERT INTO `+o.schema+`.other SELECT g, repeat('x', 8000) FROM generate_series(1, $1) AS g`, written/8000)
		o.exec(t, "CHECKPOINT") // only what is noted at times tells how far back transactions reach
		if grown := log(t, status(t, s).End) - log(t, before.End); grown < written {
			t.Fatalf("the log grew by %d bytes only", grown)
		}
		waitFor(t, "the slot to follow", func() bool {
			got := status(t, s)
			if got.RetainedBytes > written/10 && got.LagBytes < written/10 {
				o.exec(t, "CHECKPOINT")
			}
			return got.LagBytes < written/10 && got.RetainedBytes < written/10
		})
		// And it has passed over nothing.
		want := o.insert(t, 2)
		r.toMark(t, s, "end")
		if !slices.Equal(r.ids, want) {
			t.Errorf("got %v, want %v", r.ids, want)
		}
	})
}

// What was sent and is not acknowledged keeps its place, however much comes after.
func TestPlaceWaitsForTheAcknowledgement(t *testing.T) {
	onServers(t, func(t *testing.T, o *outbox) {
		s := o.source(t, func(c *pgwal.Config) { c.SenderTimeout = time.Second }) // four words a second
		r := open(t, s, "")
		r.toMark(t, s, "begin")
		r.Ack(r.after)
		want := o.insert(t, 3)
		r.toMark(t, s, "unacknowledged")
		o.exec(t, "INSERT INTO "+o.schema+".other VALUES (1)")
		at := status(t, s)
		waitFor(t, "three words to the server", o.replies(t, 3))
		if got := status(t, s); log(t, got.Position) > log(t, at.Position) && log(t, got.Position) >= log(t, r.after) {
			t.Errorf("the place moved from %s to %s, beyond what was acknowledged", at.Position, got.Position)
		}
		// The process is killed: no farewell, and the next one begins where the slot is.
		o.terminate(t.Context())
		r = open(t, s, "")
		r.until(t, "unacknowledged")
		if !slices.Equal(r.ids, want) {
			t.Errorf("got %v, want %v again", r.ids, want)
		}
	})
}

// What is acknowledged just before the end is told at the end: the slot is there.
func TestLastAcknowledgementIsToldAtTheEnd(t *testing.T) {
	onServers(t, func(t *testing.T, o *outbox) {
		for n := range 3 { // the word that is due each second may come in between once
			s := o.source(t, nil)
			r := open(t, s, "")
			o.insert(t, 1)
			r.toMark(t, s, fmt.Sprint("end ", n))
			r.Ack(r.after)
			r.close(t)
			if got := status(t, s); got.State != cdc.Waiting || log(t, got.Position) < log(t, r.after) {
				t.Errorf("the slot is %s at %s, want it at %s", got.State, got.Position, r.after)
			}
		}
	})
}

// replies reports when the reader has answered the server n times more.
func (o *outbox) replies(t testing.TB, n int) func() bool {
	var last time.Time
	return func() bool {
		var at *time.Time
		err := o.database.pool.QueryRow(t.Context(), `SELECT reply_time FROM pg_stat_replication r JOIN pg_replication_slots s ON s.active_pid = r.pid WHERE s.slot_name = $1`, o.slot).Scan(&at)
		if err != nil {
			t.Fatalf("the reader is gone: %v", err)
		}
		if at != nil && at.After(last) {
			last, n = *at, n-1
		}
		return n < 0
	}
}

// A caller that takes nothing for several times the server's time-out still has its
// connection, with a full backlog too, and then gets everything.
func TestSlowCallerKeepsItsConnection(t *testing.T) {
	onServers(t, func(t *testing.T, o *outbox) {
		defer pgwal.LowerRoom(1)()
		s := o.source(t, func(c *pgwal.Config) { c.SenderTimeout = time.Second })
		r := open(t, s, "")
		r.toMark(t, s, "begin")
		for name, n := range map[string]int{"little": 10, "more than there is room for": 4 * cdc.MaxIDs} {
			r.ids = nil
			want := o.insert(t, n)
			if err := s.Mark(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			waitFor(t, "more than the time-out to pass", o.replies(t, 6))
			r.until(t, name)
			if !slices.Equal(r.ids, want) {
				t.Errorf("%s: got %d ids, want %d", name, len(r.ids), len(want))
			}
			r.Ack(r.after)
		}
	})
}

// Of a large transaction with many savepoints, which the server puts aside on its
// disk, what was taken back is left out.
func TestLargeTransactionWithSavepoints(t *testing.T) {
	onServers(t, func(t *testing.T, o *outbox) {
		o.dsn += "&logical_decoding_work_mem=64kB"
		s := o.source(t, nil)
		r := open(t, s, "")
		r.toMark(t, s, "begin")
		tx := o.begin(t)
		var want []int64
		for i := range 60 {
			tx.Savepoint(t)
			ids := tx.Insert(t, 300)
			if i%3 == 1 {
				tx.RollbackTo(t)
				continue
			}
			want = append(want, ids...)
			tx.run(t, "RELEASE one")
		}
		beside := o.insert(t, 1)
		tx.Commit(t)
		abandoned := o.begin(t)
		abandoned.Insert(t, 5000)
		abandoned.Rollback(t)
		r.toMark(t, s, "end")
		if want = append(beside, want...); !slices.Equal(r.ids, want) {
			t.Errorf("got %d ids, want %d", len(r.ids), len(want))
		}
		var spilled int64
		r.close(t)
		waitFor(t, "the server to say that it put transactions aside", func() bool {
			err := o.database.pool.QueryRow(t.Context(), "SELECT spill_txns FROM pg_stat_replication_slots WHERE slot_name = $1", o.slot).Scan(&spilled)
			return err == nil && spilled > 0
		})
	})
}

// A prepared transaction is told when it is committed, and never when it is rolled
// back.
func TestPreparedTransactions(t *testing.T) {
	onServers(t, func(t *testing.T, o *outbox) {
		s := o.source(t, nil)
		r := open(t, s, "")
		r.toMark(t, s, "begin")
		kept, gone := o.begin(t), o.begin(t)
		want := kept.Insert(t, 2)
		gone.Insert(t, 2)
		kept.run(t, "PREPARE TRANSACTION '"+o.slot+"_kept'")
		gone.run(t, "PREPARE TRANSACTION '"+o.slot+"_gone'")
		between := o.insert(t, 1)
		r.toMark(t, s, "prepared")
		if !slices.Equal(r.ids, between) {
			t.Errorf("got %v before the commit, want %v", r.ids, between)
		}
		o.exec(t, "ROLLBACK PREPARED '"+o.slot+"_gone'")
		o.exec(t, "COMMIT PREPARED '"+o.slot+"_kept'")
		r.toMark(t, s, "end")
		if want = append(between, want...); !slices.Equal(r.ids, want) {
			t.Errorf("got %v, want %v", r.ids, want)
		}
	})
}

// Ids that begin anew after a TRUNCATE are told like others.
func TestTruncateWithAndWithoutResetOfIDs(t *testing.T) {
	onServers(t, func(t *testing.T, o *outbox) {
		s := o.source(t, nil)
		r := open(t, s, "")
		r.toMark(t, s, "begin")
		want := o.insert(t, 2)
		o.exec(t, "TRUNCATE "+o.table())
		want = append(want, o.insert(t, 1)...)
		o.exec(t, "TRUNCATE "+o.table()+" RESTART IDENTITY")
		want = append(want, o.insert(t, 1)...)
		r.toMark(t, s, "end")
		if !slices.Equal(r.ids, want) || want[3] != 1 || r.told.Truncates != 2 || r.told.Undecodable != 0 {
			t.Errorf("got %v with %+v, want %v and 2 truncates", r.ids, r.told, want)
		}
	})
}

// Names are quoted wherever they go, and partitions are told as their table.
func TestOddNamesAndPartitions(t *testing.T) {
	for _, server := range servers {
		t.Run(server.name, func(t *testing.T) {
			d := server.shared.open(t, server.dsn(t))
			o := newOutbox(t, d, `Order's "x\y`)
			o.exec(t, "DROP TABLE "+o.table())
			for _, statement := range []string{
				"CREATE SEQUENCE " + o.schema + ".ids",
				"CREATE TABLE " + o.table() + " (id bigint NOT NULL DEFAULT nextval('" + o.schema + ".ids'), event_id text NOT NULL) PARTITION BY HASH (event_id)",
				"CREATE TABLE " + o.schema + ".part_0 PARTITION OF " + o.table() + " FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
				"CREATE TABLE " + o.schema + ".part_1 (event_id text NOT NULL, dropped text, id bigint NOT NULL DEFAULT nextval('" + o.schema + ".ids'))",
				"ALTER TABLE " + o.schema + ".part_1 DROP COLUMN dropped", // another order of columns than its parent
				"ALTER TABLE " + o.table() + " ATTACH PARTITION " + o.schema + ".part_1 FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
			} {
				o.exec(t, statement)
			}
			const publication = `Ev'ents, \of "us"`
			t.Cleanup(func() {
				if _, err := d.pool.Exec(context.Background(), `DROP PUBLICATION IF EXISTS "Ev'ents, \of ""us"""`); err != nil {
					t.Error(err)
				}
			})
			s := o.source(t, func(c *pgwal.Config) { c.Publication, c.Schema = publication, o.schema })
			r := open(t, s, "")
			r.toMark(t, s, "begin")
			want := o.insert(t, 20)
			o.exec(t, "CREATE TABLE "+o.schema+".aside (event_id text NOT NULL, id bigint NOT NULL)")
			o.exec(t, "INSERT INTO "+o.schema+".aside VALUES ('x', 77)")
			o.exec(t, "TRUNCATE "+o.table())
			r.toMark(t, s, "end")
			slices.Sort(r.ids) // by partition
			if !slices.Equal(r.ids, want) || r.told.Truncates != 1 {
				t.Errorf("got %v and %d truncates, want %v", r.ids, r.told.Truncates, want)
			}
			if got := status(t, s); got.Detail != "" {
				t.Errorf("got detail %q", got.Detail)
			}
		})
	}
}

// A position beyond the log's end is of another server.
func TestPositionOfAnotherServer(t *testing.T) {
	onServers(t, func(t *testing.T, o *outbox) {
		s := o.source(t, nil)
		open(t, s, "").close(t)
		for _, from := range []cdc.Position{"FFFFFFF/0", "no position", "0/1x"} {
			if _, err := tryOpen(t, s, from); cdc.StateOf(err) != cdc.PositionUnknown {
				t.Errorf("%s: got %v", from, err)
			}
		}
	})
}

// A publication that was made anew is not known at the place of the slot, where
// the server looks for it. The reader begins anew.
func TestPublicationMadeAnew(t *testing.T) {
	onServers(t, func(t *testing.T, o *outbox) {
		s := o.source(t, nil)
		r := open(t, s, "")
		r.toMark(t, s, "begin")
		r.Ack(r.after)
		r.close(t)
		o.exec(t, "DROP PUBLICATION "+o.slot)
		o.insert(t, 2)
		var err error
		waitFor(t, "the loss to be told", func() bool {
			var again *reader
			if again, err = tryOpen(t, s, r.after); err == nil {
				err = s.Mark(t.Context(), "seen")
				for err == nil && !slices.Contains(again.told.Marks, "seen") {
					err = again.next(t)
				}
				again.close(t)
			}
			return err == nil || cdc.StateOf(err).Lost()
		})
		if strings.HasSuffix(t.Name(), "postgres18") {
			if err != nil {
				t.Errorf("got %v; this server passes over the time without a publication", err)
			}
			return
		}
		if _, err := tryOpen(t, s, r.after); cdc.StateOf(err) != cdc.PositionUnknown {
			t.Errorf("got %v, want the loss again", err)
		}
		fresh := open(t, s, "")
		want := o.insert(t, 2)
		fresh.toMark(t, s, "end")
		if !slices.Equal(fresh.ids, want) {
			t.Errorf("got %v, want %v", fresh.ids, want)
		}
	})
}

// The name of what is lost stays told until the reader begins anew, and a slot
// that somebody drops under an open stream is told too.
func TestSlotDroppedUnderAStream(t *testing.T) {
	onServers(t, func(t *testing.T, o *outbox) {
		s := o.source(t, nil)
		r := open(t, s, "")
		r.toMark(t, s, "begin")
		o.terminate(t.Context())
		o.exec(t, "SELECT pg_drop_replication_slot($1)", o.slot)
		var err error
		for err == nil {
			err = r.next(t)
		}
		if state := cdc.StateOf(err); state != cdc.Unreachable {
			t.Errorf("got %v, want the end of the connection", err)
		}
		if _, err := tryOpen(t, s, r.after); cdc.StateOf(err) != cdc.LostSlot || !strings.Contains(err.Error(), o.slot) {
			t.Errorf("got %v", err)
		}
		if got := status(t, s); got.State != cdc.LostSlot || got.Position != "" {
			t.Errorf("got %+v", got)
		}
		var classified *cdc.Error
		if _, err := tryOpen(t, s, "no position"); !errors.As(err, &classified) || classified.Hint == "" {
			t.Errorf("got %v, want a hint", err)
		}
	})
}

// log reads a position.
func log(t testing.TB, p cdc.Position) uint64 {
	t.Helper()
	high, low, ok := strings.Cut(string(p), "/")
	if !ok {
		t.Fatalf("position %q", p)
	}
	return hex(t, high)<<32 | hex(t, low)
}

func hex(t testing.TB, text string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(text, 16, 32)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
