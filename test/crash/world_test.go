package crash

import (
	"bytes"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/natsjs"
	"github.com/waybillhq/waybill/internal/fault"
	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/mysql"
	"github.com/waybillhq/waybill/store/postgres"
	"github.com/waybillhq/waybill/store/sqlite"
	"github.com/waybillhq/waybill/test/lab"
)

const (
	patience   = 90 * time.Second
	maxPayload = 64 << 10 // of the broker
	tooLarge   = "poison-too-large"
)

// A world is a database, a broker, and what was appended.
type world struct {
	t        *testing.T
	kind     string
	dsn      string
	outbox   store.Outbox
	held     store.HeldReader
	db       *sql.DB
	writer   *outbox.Writer[store.SQLTx]
	nats     *natsjs.Embedded
	env      []string // of processes, beside what every one has
	versions map[string]int
	appended []waybill.Event
}

var kinds = []string{"sqlite", "postgres15", "mysql9", "mariadb10"}

// eachKind runs a test over each kind of database.
func eachKind(t *testing.T, test func(t *testing.T, w *world)) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, newWorld(t, kind))
		})
	}
}

func newWorld(t *testing.T, kind string) *world {
	t.Helper()
	ctx := t.Context()
	w := &world{t: t, kind: kind, versions: make(map[string]int)}
	migrate := func(st store.Schema) {
		t.Cleanup(func() { _ = st.Close() })
		if err := st.Migrate(ctx, store.MigrateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	serial := "INTEGER PRIMARY KEY AUTOINCREMENT"
	switch kind {
	case "sqlite":
		w.dsn = filepath.Join(t.TempDir(), "crash.db")
		st, err := sqlite.Open(ctx, w.dsn, nil)
		if err != nil {
			t.Fatal(err)
		}
		migrate(st)
		w.outbox, w.held, w.db, w.writer = st, st, st.DB(), outbox.NewWriter(st, nil)
	case "mysql9", "mariadb10":
		admin := testenv.MySQL9
		if kind == "mariadb10" {
			admin = testenv.MariaDB10
		}
		serial = "BIGINT AUTO_INCREMENT PRIMARY KEY"
		w.dsn = lab.MySQL(t, admin(t))
		st, err := mysql.Open(ctx, w.dsn, nil)
		if err != nil {
			t.Fatal(err)
		}
		migrate(st)
		w.outbox, w.held, w.db, w.writer = st, st, st.DB(), outbox.NewWriter(st, nil)
	case "postgres15":
		serial = "BIGSERIAL PRIMARY KEY"
		w.dsn = lab.Postgres15(t)
		st, err := postgres.Open(ctx, w.dsn, nil)
		if err != nil {
			t.Fatal(err)
		}
		migrate(st)
		db, err := sql.Open("pgx", w.dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		w.outbox, w.held, w.db, w.writer = st, st, db, outbox.NewWriter(st.SQL(), nil)
	}
	// No unique key on event_id: a second effect must show.
	w.exec("CREATE TABLE effect (seq " + serial + ", event_id VARCHAR(128) NOT NULL, of_key VARCHAR(255) NOT NULL, version BIGINT NOT NULL)")
	server, err := natsjs.StartEmbedded(ctx, &natsjs.EmbeddedConfig{StoreDir: t.TempDir(), MaxPayload: maxPayload})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	w.nats = server
	b, err := natsjs.Open(ctx, server.ClientURL(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.EnsureTopics(ctx, []broker.TopicSpec{{Name: topic, Partitions: 4}}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) exec(statement string) {
	w.t.Helper()
	if _, err := w.db.ExecContext(w.t.Context(), statement); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) number(query string) (n int) {
	w.t.Helper()
	if err := w.db.QueryRowContext(w.t.Context(), query).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// append commits the next version of each key, rounds times.
func (w *world) append(rounds int, keys ...string) {
	w.t.Helper()
	for range rounds {
		var events []waybill.Event
		for _, key := range keys {
			w.versions[key]++
			kind, data := "OrderChanged", []byte(`{}`)
			if key == tooLarge {
				data = bytes.Repeat([]byte("x"), maxPayload)
			}
			if strings.HasPrefix(key, "poison") {
				kind = "Poison"
			}
			events = append(events, waybill.Event{
				ID: fmt.Sprintf("%s-%d", key, w.versions[key]), Type: kind, Topic: topic,
				AggregateType: "order", AggregateID: key, AggregateVersion: int64(w.versions[key]), Data: data,
			})
		}
		tx, err := w.db.BeginTx(w.t.Context(), nil)
		if err != nil {
			w.t.Fatal(err)
		}
		if err := w.writer.Append(w.t.Context(), tx, events...); err != nil {
			w.t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			w.t.Fatal(err)
		}
		w.appended = append(w.appended, events...)
	}
}

func keys(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("k%02d", i))
	}
	return all
}

// A process is this binary in one of its roles.
type process struct {
	*lab.Process
	t    *testing.T
	role string
	flag string
}

// start runs a role; with a point, "name:n", it stops there.
func (w *world) start(role, point string) *process {
	w.t.Helper()
	p := &process{t: w.t, role: role, flag: filepath.Join(w.t.TempDir(), "stopped")}
	environment := append([]string{envRole + "=" + role, envStore + "=" + w.kind, envDSN + "=" + w.dsn, envNATS + "=" + w.nats.ClientURL()}, w.env...)
	if point != "" {
		environment = append(environment, fault.EnvPoint+"="+point, fault.EnvFile+"="+p.flag)
	}
	var err error
	if p.Process, err = lab.Start(w.t, environment...); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		<-p.Done()
		if w.t.Failed() {
			w.t.Logf("%s:\n%s", role, p.Output)
		}
	})
	return p
}

// reached waits for the process to stop at its point; not to hit it fails the test.
func (p *process) reached() {
	p.t.Helper()
	until(p.t, "the point of "+p.role, func() bool {
		select {
		case <-p.Done():
			p.t.Fatalf("%s ended before its point: %v\n%s", p.role, p.Err(), p.Output)
		default:
		}
		_, err := os.Stat(p.flag)
		return err == nil
	})
}

// kill ends the process as a power cut would.
func (p *process) kill() {
	p.t.Helper()
	if err := p.Kill(); err != nil {
		p.t.Fatalf("%s: %v", p.role, err)
	}
}

// stop asks the process to drain, and demands that it does.
func (p *process) stop() {
	p.t.Helper()
	if err := p.Stop(); err != nil {
		p.t.Errorf("%s after SIGTERM: %v, want exit 0", p.role, err)
	}
}

func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	lab.Until(t, patience, what, condition)
}

// drained waits until nothing moves any more: the queue holds dead events only,
// and every event of a healthy key is consumed.
func (w *world) drained() {
	w.t.Helper()
	healthy := 0
	for i := range w.appended {
		if !strings.HasPrefix(w.appended[i].AggregateID, "poison") {
			healthy++
		}
	}
	until(w.t, fmt.Sprintf("%d effects", healthy), func() bool {
		return w.number("SELECT count(*) FROM outbox_pending WHERE status = 'PENDING'") == 0 &&
			w.number("SELECT count(DISTINCT event_id) FROM effect") >= healthy
	})
}

// check compares the effects with what was appended: each once, each key in order.
func (w *world) check() {
	w.t.Helper()
	rows, err := w.db.QueryContext(w.t.Context(), "SELECT event_id, of_key FROM effect ORDER BY seq")
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	got := make(map[string][]string)
	for rows.Next() {
		var id, key string
		if err := rows.Scan(&id, &key); err != nil {
			w.t.Fatal(err)
		}
		got[key] = append(got[key], id)
	}
	if err := rows.Err(); err != nil {
		w.t.Fatal(err)
	}
	want := make(map[string][]string)
	for i := range w.appended {
		if key := w.appended[i].AggregateID; !strings.HasPrefix(key, "poison") {
			want[key] = append(want[key], w.appended[i].ID)
		}
	}
	for key := range got {
		if want[key] == nil {
			w.t.Errorf("key %s has effects %v, want none", key, got[key])
		}
	}
	for key, ids := range want {
		if !slices.Equal(got[key], ids) {
			w.t.Errorf("key %s: effects %v, want %v", key, got[key], ids)
		}
	}
}
