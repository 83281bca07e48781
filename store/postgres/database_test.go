package postgres_test

import (
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/postgres"
	"github.com/waybillhq/waybill/store/storetest"
)

func hotIDs(t *testing.T, st *postgres.Store) (ids []string) {
	t.Helper()
	var lanes []store.LaneCursor
	for lane := range store.Lanes {
		lanes = append(lanes, store.LaneCursor{Lane: lane})
	}
	rows, err := storetest.Hot(t.Context(), st, store.WalkRequest{Lanes: lanes})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		ids = append(ids, row.Event.ID)
	}
	return ids
}

func TestPsqlInsertsAnEvent(t *testing.T) {
	program, err := exec.LookPath("psql")
	if err != nil {
		t.Skip("psql is not installed, so the shell's INSERT cannot be tried")
	}
	dsn := usedSchema(t)
	st := openStore(t, dsn, storetest.Options{})
	// libpq has no parameter search_path of its own.
	base, _, _ := strings.Cut(dsn, "?")
	command := exec.CommandContext(t.Context(), program, "-X", "-q", "-v", "ON_ERROR_STOP=1",
		"-c", "SET search_path = "+schemaOf(dsn), "-c", plainInsert("from-psql"), base+"?sslmode=disable")
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("psql: %v\n%s", err, output)
	}
	if got := hotIDs(t, st); len(got) != 1 || got[0] != "from-psql" {
		t.Errorf("hot rows: got %q", got)
	}
}

func TestScriptOfMigrateSQLRunsInPsql(t *testing.T) {
	program, err := exec.LookPath("psql")
	if err != nil {
		t.Skip("psql is not installed, so the script cannot be tried in it")
	}
	names := store.Names{Schema: `Sales-EU "x"`, Event: "Order's", Pending: "select"}
	for _, noTrigger := range []bool{false, true} {
		dsn := freshDatabase(t)
		st := openStore(t, dsn, storetest.Options{Bare: true, NoTrigger: noTrigger, Names: names})
		command := exec.CommandContext(t.Context(), program, "-X", "-q", "-v", "ON_ERROR_STOP=1", dsn)
		command.Stdin = strings.NewReader(st.MigrateSQL(store.MigrateOptions{NoTrigger: noTrigger}))
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("psql: %v\n%s", err, output)
		}
		meta, err := st.ReadMeta(t.Context())
		if want := (store.Meta{Version: store.SchemaVersion, Trigger: !noTrigger, Outbox: true, Inbox: true}); err != nil || meta != want {
			t.Errorf("meta: got %+v, %v, want %+v", meta, err, want)
		}
		tx := begin(t, st)
		appendTo(t, st, tx, "a")
		commit(t, tx)
		if got := hotIDs(t, st); len(got) != 1 {
			t.Errorf("hot rows: got %q", got)
		}
	}
}

// A producer's account has INSERT on the events and nothing else.
func TestProducerNeedsNoRightOnTheQueue(t *testing.T) {
	dsn := freshDatabase(t)
	st := openStore(t, dsn, storetest.Options{})
	role := fmt.Sprintf("%s_producer", shared)
	for _, statement := range []string{
		"CREATE ROLE " + role + " LOGIN PASSWORD 'p'",
		"GRANT INSERT ON outbox_event TO " + role,
		"GRANT SELECT (event_id) ON outbox_event TO " + role,
	} {
		if _, err := st.Pool().Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := execute(t.Context(), dsn, "DROP OWNED BY "+role+"; DROP ROLE "+role); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	account, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	account.User = url.UserPassword(role, "p")
	producer := openStore(t, account.String(), storetest.Options{Bare: true})
	tx := begin(t, producer)
	// A table of the same name in front of the real one catches nothing.
	run(t, tx, "CREATE TEMPORARY TABLE outbox_pending (id bigint PRIMARY KEY, lane smallint, key_hash bigint, topic_hash bigint)")
	run(t, tx, plainInsert("plain"))
	appendTo(t, producer, tx, "appended")
	commit(t, tx)
	if got := hotIDs(t, st); len(got) != 2 {
		t.Errorf("hot rows: got %q, want both", got)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	if err := producer.Close(); err != nil {
		t.Fatal(err)
	}
	if err := execute(t.Context(), dsn, "DROP OWNED BY "+role+"; DROP ROLE "+role); err != nil {
		t.Fatal(err)
	}
}

func TestPartitionsQueueWhatIsInsertedIntoThem(t *testing.T) {
	st := openStore(t, freshSchema(t), storetest.Options{Bare: true})
	for _, statement := range []string{
		`CREATE SEQUENCE event_ids`, // an identity does not reach into partitions
		`CREATE TABLE outbox_event (
			id bigint NOT NULL DEFAULT nextval('event_ids'), event_id text NOT NULL, tenant_id text NOT NULL DEFAULT '',
			aggregate_type text NOT NULL DEFAULT '', aggregate_id text NOT NULL DEFAULT '', aggregate_version bigint,
			event_type text NOT NULL, event_version integer NOT NULL DEFAULT 1, topic text NOT NULL, event_key text NOT NULL DEFAULT '',
			payload bytea NOT NULL, content_type text NOT NULL DEFAULT 'application/json', headers json,
			occurred_at timestamptz NOT NULL DEFAULT now(), created_at timestamptz NOT NULL DEFAULT now(),
			UNIQUE (event_id), PRIMARY KEY (event_id)
		) PARTITION BY HASH (event_id)`,
		`CREATE TABLE part_0 PARTITION OF outbox_event FOR VALUES WITH (MODULUS 1, REMAINDER 0)`,
	} {
		if _, err := st.Pool().Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // again changes nothing
		if err := st.Migrate(t.Context(), store.MigrateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	tx := begin(t, st)
	run(t, tx, plainInsert("through the parent"))
	run(t, tx, strings.Replace(plainInsert("directly"), "outbox_event", "part_0", 1))
	appendTo(t, st, tx, "appended")
	commit(t, tx)
	if got := hotIDs(t, st); len(got) != 3 {
		t.Errorf("hot rows: got %q, want three", got)
	}
	if err := st.Migrate(t.Context(), store.MigrateOptions{NoTrigger: true}); err != nil {
		t.Fatal(err)
	}
	tx = begin(t, st)
	run(t, tx, strings.Replace(plainInsert("untriggered"), "outbox_event", "part_0", 1))
	commit(t, tx)
	if got := hotIDs(t, st); len(got) != 3 {
		t.Errorf("hot rows after the triggers were removed: got %q, want three", got)
	}
}

func TestReadOnlyDatabaseIsNamedWithAHint(t *testing.T) {
	dsn := usedSchema(t)
	openStore(t, dsn, storetest.Options{})
	st := openStore(t, dsn+"&default_transaction_read_only=on", storetest.Options{Bare: true})
	for name, call := range map[string]func() error{
		"ping":  func() error { return st.Ping(t.Context()) },
		"apply": func() error { return st.Apply(t.Context(), store.Guard{}, store.Changes{}) },
		"claim": func() error { _, err := st.Claim(t.Context(), "o", time.Minute, 1); return err },
		"append": func() error {
			_, err := st.Append(t.Context(), begin(t, st), []waybill.Event{orderPaid("a")})
			return err
		},
	} {
		var named *waybill.Error
		if err := call(); !errors.As(err, &named) || !strings.Contains(named.Hint, "accepts no writes") {
			t.Errorf("%s: got %v, want a hint", name, err)
		}
	}
}

func TestNoPasswordInErrorsOfOpen(t *testing.T) {
	good, err := url.Parse(testenv.Postgres15(t))
	if err != nil {
		t.Fatal(err)
	}
	const secret = "hunter2hunter2"
	wrong := *good
	wrong.User = url.UserPassword("waybill", secret)
	nowhere := wrong
	nowhere.Host = "127.0.0.1:1"
	for name, dsn := range map[string]string{
		"wrong password": wrong.String(),
		"nobody there":   nowhere.String(),
		"no database":    strings.Replace(strings.Replace(good.String(), "/postgres?", "/nosuch?", 1), "x", "x", 1),
		"port":           "postgres://waybill:" + secret + "@127.0.0.1:port/db",
		"escape":         "postgres://waybill:" + secret + "%zz@127.0.0.1/db",
		"key value":      "host=127.0.0.1 port=x password=" + secret,
		"not a DSN":      secret,
	} {
		_, err := postgres.Open(t.Context(), dsn, nil)
		var named *waybill.Error
		switch {
		case err == nil:
			t.Errorf("%s: opened", name)
		case strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), secret):
			t.Errorf("%s: the error shows the password: %v", name, err)
		case !errors.As(err, &named) || named.Hint == "":
			t.Errorf("%s: no hint: %v", name, err)
		}
	}
}

func TestSequenceWithACacheIsRefused(t *testing.T) {
	st := openStore(t, freshSchema(t), storetest.Options{})
	if _, err := st.Pool().Exec(t.Context(), "ALTER TABLE outbox_event ALTER COLUMN id SET CACHE 32"); err != nil {
		t.Fatal(err)
	}
	if _, err := st.ReadMeta(t.Context()); err == nil || !strings.Contains(err.Error(), "cache of 32") {
		t.Errorf("got %v, want a refusal", err)
	}
}

// A settling transaction is open: its lane cannot be claimed, although the
// lease has expired, and its owner can renew nevertheless.
func TestSettlingShutsOutAClaimAndNotARenewal(t *testing.T) {
	st := openStore(t, usedSchema(t), storetest.Options{})
	leases, err := st.Claim(t.Context(), "first", time.Hour, store.Lanes)
	if err != nil || len(leases) != store.Lanes {
		t.Fatalf("claim: %d lanes, %v", len(leases), err)
	}
	settling := begin(t, st)
	run(t, settling, "SELECT lane FROM outbox_lease WHERE lane < 10 FOR KEY SHARE")
	held, _, err := st.Renew(t.Context(), store.Heartbeat{Owner: "first", Mode: "poll", TTL: time.Millisecond, Held: leases})
	if err != nil || len(held) != store.Lanes {
		t.Fatalf("renewal: %d lanes, %v", len(held), err)
	}
	until(t, "the leases expire", func() bool {
		states, err := st.ListLeases(t.Context())
		return err == nil && states[0].ExpiresIn < 0
	})
	claimed, err := st.Claim(t.Context(), "second", time.Hour, store.Lanes)
	if err != nil || len(claimed) != store.Lanes-10 {
		t.Errorf("claim beside the settling: got %d lanes, %v, want %d", len(claimed), err, store.Lanes-10)
	}
	commit(t, settling)
	if claimed, err = st.Claim(t.Context(), "second", time.Hour, store.Lanes); err != nil || len(claimed) != 10 {
		t.Errorf("claim afterwards: got %d lanes, %v, want 10", len(claimed), err)
	}
}

// Queue rows whose events are gone are found and not loaded.
func TestOrphansAreNotLoaded(t *testing.T) {
	st := openStore(t, usedSchema(t), storetest.Options{})
	tx := begin(t, st)
	for i := range 50 {
		run(t, tx, plainInsert(fmt.Sprintf("lost-%d", i)))
	}
	run(t, tx, "DELETE FROM outbox_event")
	appendTo(t, st, tx, "kept")
	commit(t, tx)
	if ids := hotIDs(t, st); len(ids) != 1 || ids[0] != "kept" {
		t.Errorf("got %v, want the one that is there", ids)
	}
}
