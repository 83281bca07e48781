package pgwal_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill/cdc"
	"github.com/waybillhq/waybill/cdc/pgwal"
	"github.com/waybillhq/waybill/internal/testenv"
)

// A new slot waits for whatever is open. Open says for what, and the next one
// waits on.
func TestOpenNamesTheTransactionThatItWaitsFor(t *testing.T) {
	onServers(t, func(t *testing.T, o *outbox) {
		s := o.source(t, func(c *pgwal.Config) { c.SlotWait = time.Second })
		blocker := o.begin(t)
		blocker.run(t, "SET LOCAL application_name = 'nightly report'")
		blocker.Insert(t, 1)
		for range 2 {
			_, err := tryOpen(t, s, "")
			if cdc.StateOf(err) != cdc.Blocked || !strings.Contains(err.Error(), fmt.Sprintf("pid %d", blocker.Conn().PgConn().PID())) ||
				!strings.Contains(err.Error(), "nightly report") {
				t.Errorf("got %v, want what it waits for", err)
			}
		}
		if _, err := tryOpen(t, o.source(t, nil), ""); cdc.StateOf(err) != cdc.Waiting {
			t.Errorf("another process: got %v, want that the slot is being made", err)
		}
		blocker.Commit(t)
		var r *reader
		waitFor(t, "the slot", func() (ok bool) {
			var err error
			if r, err = tryOpen(t, s, ""); err != nil && cdc.StateOf(err) != cdc.Blocked {
				t.Fatal(err)
			}
			return err == nil
		})
		want := o.insert(t, 1)
		r.toMark(t, s, "end")
		if len(r.ids) != 1 || r.ids[0] != want[0] {
			t.Errorf("got %v, want %v", r.ids, want)
		}
	})
}

// A prepared transaction is in the way too, and nobody's connection.
func TestOpenNamesAPreparedTransaction(t *testing.T) {
	onServers(t, func(t *testing.T, o *outbox) {
		s := o.source(t, func(c *pgwal.Config) { c.SlotWait = time.Second })
		tx := o.begin(t)
		tx.Insert(t, 1)
		tx.run(t, "PREPARE TRANSACTION '"+o.slot+"'")
		defer o.exec(t, "ROLLBACK PREPARED '"+o.slot+"'")
		if _, err := tryOpen(t, s, ""); cdc.StateOf(err) != cdc.Blocked || !strings.Contains(err.Error(), "prepared transaction "+o.slot) {
			t.Errorf("got %v", err)
		}
		// Who gives up leaves nothing half made.
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		waitFor(t, "the slot to be gone", func() (gone bool) {
			err := o.database.pool.QueryRow(t.Context(), "SELECT NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1)", o.slot).Scan(&gone)
			return err == nil && gone
		})
	})
}

// A table that somebody holds is waited for a short time, so that those who come
// after do not wait behind us.
func TestSetupNamesWhoHoldsTheTable(t *testing.T) {
	onServers(t, func(t *testing.T, o *outbox) {
		s := o.source(t, nil)
		holder := o.begin(t)
		holder.run(t, "LOCK TABLE "+o.table()+" IN SHARE UPDATE EXCLUSIVE MODE")
		err := s.Setup(t.Context())
		if cdc.StateOf(err) != cdc.Blocked || !strings.Contains(err.Error(), fmt.Sprintf("pid %d", holder.Conn().PgConn().PID())) {
			t.Errorf("got %v", err)
		}
		holder.Rollback(t)
		for range 2 {
			if err := s.Setup(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestSetupSaysWhatIsWrongWithAPublication(t *testing.T) {
	onServers(t, func(t *testing.T, o *outbox) {
		o.exec(t, "CREATE TABLE "+o.schema+".parts (id bigint) PARTITION BY HASH (id)")
		o.exec(t, "CREATE TABLE "+o.schema+".part PARTITION OF "+o.schema+".parts FOR VALUES WITH (MODULUS 1, REMAINDER 0)")
		for _, test := range []struct{ name, publication, event, want, hint string }{
			{"another table", "FOR TABLE {schema}.other", "", "does not publish", "ADD TABLE"},
			{"no inserts", "FOR TABLE {event} WITH (publish = 'truncate')", "", "inserts", "publish = 'insert, truncate'"},
			{"no id", "FOR TABLE {event} (event_id) WITH (publish = 'insert')", "", "column id", "SET TABLE"},
			{"a filter", "FOR TABLE {event} WHERE (id > 5) WITH (publish = 'insert')", "", "leaves rows out", "SET TABLE"},
			{"partitions", "FOR TABLE {schema}.parts WITH (publish = 'insert')", "parts", "partitions", "publish_via_partition_root"},
			{"all tables", "FOR ALL TABLES WITH (publish = 'insert')", "", "", ""},
			{"all columns", "FOR TABLE {event} WITH (publish = 'insert')", "", "", ""},
		} {
			o.exec(t, strings.NewReplacer("{event}", o.table(), "{schema}", o.schema).Replace("CREATE PUBLICATION "+o.slot+" "+test.publication))
			s := o.source(t, func(c *pgwal.Config) {
				if test.event != "" {
					c.Event = test.event
				}
			})
			err := s.Setup(t.Context())
			var refused *cdc.Error
			switch {
			case test.want == "" && err != nil:
				t.Errorf("%s: got %v", test.name, err)
			case test.want == "":
			case !errors.As(err, &refused) || refused.State != cdc.Misconfigured || !strings.Contains(err.Error(), test.want) || !strings.Contains(refused.Hint, test.hint):
				t.Errorf("%s: got %v", test.name, err)
			}
			if test.want != "" && bad(s.Check(t.Context())) != "publication" {
				t.Errorf("%s: the doctor says %+v", test.name, s.Check(t.Context()))
			}
			o.exec(t, "DROP PUBLICATION "+o.slot)
		}
	})
}

// bad are the names of the checks that failed.
func bad(checks []cdc.Check) string {
	var names []string
	for _, check := range checks {
		if !check.OK {
			names = append(names, check.Name)
		}
	}
	return strings.Join(names, " ")
}

func TestSetupWantsTheTable(t *testing.T) {
	onServers(t, func(t *testing.T, o *outbox) {
		o.exec(t, "CREATE UNLOGGED TABLE "+o.schema+".unlogged (id bigint)")
		o.exec(t, "CREATE TABLE "+o.schema+".other_id (event_id text)")
		for event, want := range map[string]string{"nowhere": "no table", "unlogged": "not written to the log", "other_id": "no column id"} {
			err := o.source(t, func(c *pgwal.Config) { c.Event = event }).Setup(t.Context())
			if cdc.StateOf(err) != cdc.Misconfigured || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", event, err, want)
			}
		}
	})
}

// A slot of the name that is another's is left alone.
func TestSlotOfAnotherIsLeftAlone(t *testing.T) {
	onServers(t, func(t *testing.T, o *outbox) {
		o.exec(t, "SELECT pg_create_physical_replication_slot($1)", o.slot)
		s := o.source(t, nil)
		for _, from := range []cdc.Position{"", "0/1"} {
			if _, err := tryOpen(t, s, from); cdc.StateOf(err) != cdc.Misconfigured || !strings.Contains(err.Error(), "pgoutput") {
				t.Errorf("got %v", err)
			}
		}
		if err := s.Drop(t.Context()); cdc.StateOf(err) != cdc.Misconfigured {
			t.Errorf("drop: got %v", err)
		}
		if got := bad(s.Check(t.Context())); got != "slot" {
			t.Errorf("the doctor says %q", got)
		}
	})
}

// Failover needs PostgreSQL 17; a slot that was made without learns it when it is
// opened.
func TestFailoverSlot(t *testing.T) {
	onServers(t, func(t *testing.T, o *outbox) {
		plain := o.source(t, nil)
		open(t, plain, "").close(t)
		s := o.source(t, func(c *pgwal.Config) { c.Failover = true })
		r, err := tryOpen(t, s, "")
		if strings.Contains(t.Name(), "postgres15") {
			if cdc.StateOf(err) != cdc.Misconfigured || !strings.Contains(err.Error(), "PostgreSQL 17") {
				t.Errorf("got %v", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := status(t, s); !strings.Contains(got.Detail, "standbys keep the slot") {
			t.Errorf("changed: got %+v", got)
		}
		r.close(t)
		if err := s.Drop(t.Context()); err != nil {
			t.Fatal(err)
		}
		open(t, s, "")
		if got := status(t, s); !strings.Contains(got.Detail, "standbys keep the slot") {
			t.Errorf("made: got %+v", got)
		}
	})
}

// The account that the script makes can read the log, and nothing makes it wait
// for a right that it lacks.
func TestGrantsSuffice(t *testing.T) {
	onServers(t, func(t *testing.T, o *outbox) {
		role := o.slot + "_role"
		owner := o.source(t, func(c *pgwal.Config) { c.Schema = o.schema })
		account := accountOf(t, o, role)
		s := account(func(c *pgwal.Config) { c.Schema = o.schema })
		if err := s.Setup(t.Context()); cdc.StateOf(err) != cdc.Misconfigured {
			t.Errorf("before: got %v", err)
		}
		if got := bad(s.Check(t.Context())); !strings.Contains(got, "privileges") {
			t.Errorf("before: the doctor says %q", got)
		}
		o.exec(t, "GRANT USAGE ON SCHEMA "+o.schema+" TO "+role)
		var refused *cdc.Error
		if err := s.Setup(t.Context()); !errors.As(err, &refused) || refused.State != cdc.Misconfigured || !strings.Contains(refused.Hint, "CREATE PUBLICATION") {
			t.Errorf("without ownership: got %v", err)
		}
		o.exec(t, owner.Grants(role))
		r := open(t, s, "")
		want := o.insert(t, 1)
		r.toMark(t, s, "end")
		if len(r.ids) != 1 || r.ids[0] != want[0] {
			t.Errorf("got %v, want %v", r.ids, want)
		}
		if got := status(t, s); got.State != cdc.Streaming || !strings.Contains(got.Holder, "pid ") {
			t.Errorf("got %+v", got)
		}
		if got := bad(s.Check(t.Context())); got != "" {
			t.Errorf("the doctor says %q", got)
		}
		r.close(t)
	})
}

// accountOf makes a role that may log in, and returns how to read as it.
func accountOf(t testing.TB, o *outbox, role string) func(func(*pgwal.Config)) *pgwal.Source {
	t.Helper()
	o.exec(t, "CREATE ROLE "+role+" LOGIN PASSWORD 'p'")
	t.Cleanup(func() {
		if _, err := o.database.pool.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(o.dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "p")
	return func(adjust func(*pgwal.Config)) *pgwal.Source {
		mine := outbox{database: o.database, schema: o.schema, name: o.name, slot: o.slot, dsn: u.String()}
		return mine.source(t, adjust)
	}
}

func TestNoPasswordInErrors(t *testing.T) {
	const secret = "hunter2hunter2"
	for _, dsn := range []string{
		"postgres://waybill:" + secret + "@127.0.0.1:port/db",
		"postgres://waybill:" + secret + "%zz@127.0.0.1/db",
		"host=127.0.0.1 port=x password=" + secret,
	} {
		_, err := pgwal.New(dsn, nil)
		if err == nil || strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), secret) {
			t.Errorf("got %v", err)
		}
	}
	s, err := pgwal.New("postgres://waybill:"+secret+"@127.0.0.1:1/db", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Setup(t.Context()); cdc.StateOf(err) != cdc.Unreachable || strings.Contains(fmt.Sprintf("%v %+v", err, err), secret) {
		t.Errorf("got %v", err)
	}
}

// A pooler that passes no replication is named as what is in the way.
func TestPoolerIsNamed(t *testing.T) {
	door, err := url.Parse(testenv.PgBouncer1(t))
	if err != nil {
		t.Fatal(err)
	}
	server := servers[0]
	o := newOutbox(t, server.shared.open(t, server.dsn(t)), "outbox_event")
	u, err := url.Parse(o.database.dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = door.Host
	o.dsn = u.String() + "&default_query_exec_mode=exec"
	s := o.source(t, func(c *pgwal.Config) { c.Schema = o.schema })
	var refused *cdc.Error
	if _, err := tryOpen(t, s, ""); !errors.As(err, &refused) || refused.State != cdc.Misconfigured || !strings.Contains(refused.Hint, "pooler") {
		t.Errorf("got %v", err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for name, config := range map[string]pgwal.Config{
		"slot":      {Slot: "With-Dash"},
		"long slot": {Slot: strings.Repeat("x", 64)},
		"schema":    {Schema: "a\x00b"},
		"time-out":  {SenderTimeout: time.Millisecond},
		"slot wait": {SlotWait: -1},
	} {
		if _, err := pgwal.New("postgres://127.0.0.1/db", &config); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	s, err := pgwal.New("postgres://127.0.0.1/Sales-EU", &pgwal.Config{Schema: "Order \"x\""})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got, want := s.Name(), "postgres:waybill_sales_eu_order__x_"; got != want {
		t.Errorf("got name %s, want %s", got, want)
	}
}
