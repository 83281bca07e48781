package trial

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/kafka"
	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/reconcile"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/mysql"
	"github.com/waybillhq/waybill/store/postgres"
	"github.com/waybillhq/waybill/test/lab"
)

const (
	changed = "PurchaseChanged"
	removed = "PurchaseRemoved"

	createPurchase = `
CREATE TABLE purchase (
  tenant TEXT COLLATE "C" NOT NULL, id TEXT COLLATE "C" NOT NULL, status TEXT NOT NULL, total NUMERIC(12, 2) NOT NULL,
  version BIGINT NOT NULL, updated_at TIMESTAMPTZ NOT NULL, PRIMARY KEY (tenant, id))`
	createView = `
CREATE TABLE purchase_view (
  tenant VARCHAR(64) COLLATE utf8mb4_bin NOT NULL, id VARCHAR(64) COLLATE utf8mb4_bin NOT NULL, status VARCHAR(16) NOT NULL, total DECIMAL(12, 2) NOT NULL,
  version BIGINT NOT NULL, event_id VARCHAR(128), updated_at DATETIME(6) NOT NULL, PRIMARY KEY (tenant, id))`
)

// town is a shop with its relays, and a search page with its consumers.
type town struct {
	t         *testing.T
	random    *dice
	write     *sql.DB
	read      *sql.DB
	writer    *outbox.Writer[store.SQLTx]
	ledger    *reconcile.Ledger
	topic     string
	parts     []*part
	purchases []*purchase
	truth     *truth
	changes   int64
	changesMu sync.Mutex
}

// dice are random numbers that goroutines share. A seed gives the same choice of
// faults, not the same moments.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (d *dice) n(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}

// purchase is a row as the shop has it. Who holds mu may change it; one that is
// set apart is changed by nobody any more.
type purchase struct {
	mu         sync.Mutex
	tenant, id string
	version    int64
	there      bool
	apart      bool
}

func (p *purchase) name() string { return p.tenant + "/" + p.id }

func newTown(t *testing.T, seed uint64, purchases int) *town {
	t.Helper()
	w := &town{t: t, random: &dice{r: rand.New(rand.NewPCG(seed, seed))}, topic: strings.ToLower("trial-" + waybill.NewID()), truth: newTruth()}
	address := testenv.Kafka4(t)

	writeDSN := lab.Postgres15(t)
	st, err := postgres.Open(t.Context(), writeDSN, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	if w.write, err = sql.Open("pgx", writeDSN+zone(writeDSN)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.write.Close() })
	w.write.SetMaxOpenConns(16)
	w.writer = outbox.NewWriter(st.SQL(), nil)

	settings, err := driver.ParseDSN(lab.MySQL(t, testenv.MySQL9(t)))
	if err != nil {
		t.Fatal(err)
	}
	back, err := mysql.Open(t.Context(), settings.FormatDSN(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = back.Close() })
	readDSN := settings.FormatDSN()
	settings.ParseTime, settings.Params = true, map[string]string{"time_zone": "'+00:00'"}
	if w.read, err = sql.Open("mysql", settings.FormatDSN()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.read.Close() })
	w.read.SetMaxOpenConns(16)

	for _, schema := range []store.Schema{st, back} {
		if err := schema.Migrate(t.Context(), store.MigrateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	execute(t, w.write, createPurchase)
	execute(t, w.read, createView)
	if w.ledger, err = reconcile.NewLedger(reconcile.Database{DB: w.write, Dialect: reconcile.Postgres}, nil); err != nil {
		t.Fatal(err)
	}
	if err := w.ledger.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	b, err := kafka.Open(t.Context(), &kafka.Config{Brokers: []string{address}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	if err := b.EnsureTopics(t.Context(), []broker.TopicSpec{{Name: w.topic, Partitions: 4}}); err != nil {
		t.Fatal(err)
	}
	for i := range purchases {
		w.purchases = append(w.purchases, &purchase{tenant: fmt.Sprintf("t%d", i%3), id: fmt.Sprintf("p%05d", i)})
	}
	w.seed()
	for _, name := range []string{"relay", "relay", "consumer", "consumer"} {
		dsn := writeDSN
		if name == "consumer" {
			dsn = readDSN
		}
		p := &part{t: t, environment: []string{envPart + "=" + name, envDSN + "=" + dsn, envKafka + "=" + address, envTopic + "=" + w.topic}}
		p.start()
		w.parts = append(w.parts, p)
	}
	return w
}

// zone keeps the connections in UTC.
func zone(dsn string) string {
	if strings.Contains(dsn, "?") {
		return "&timezone=UTC"
	}
	return "?timezone=UTC"
}

func execute(t *testing.T, db *sql.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// seed makes the first version of each purchase, many in a transaction.
func (w *town) seed() {
	w.t.Helper()
	for i := 0; i < len(w.purchases); i += 100 {
		some := w.purchases[i:min(i+100, len(w.purchases))]
		err := w.within(w.t.Context(), func(tx *sql.Tx) error {
			for _, p := range some {
				if err := w.advance(w.t.Context(), tx, p, changed); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *town) within(ctx context.Context, do func(tx *sql.Tx) error) error {
	tx, err := w.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

const putSQL = `
INSERT INTO purchase (tenant, id, status, total, version, updated_at)
VALUES ($1, $2, $3, CAST($4 AS NUMERIC), $5, clock_timestamp())
ON CONFLICT (tenant, id) DO UPDATE SET status = excluded.status, total = excluded.total, version = excluded.version, updated_at = excluded.updated_at`

// advance makes the next version of a purchase, with its event.
func (w *town) advance(ctx context.Context, tx *sql.Tx, p *purchase, kind string) error {
	p.version++
	p.there = kind != removed
	e, status, total := w.event(p, kind)
	var err error
	if p.there {
		_, err = tx.ExecContext(ctx, putSQL, p.tenant, p.id, status, total, p.version)
	} else {
		_, err = tx.ExecContext(ctx, "DELETE FROM purchase WHERE tenant = $1 AND id = $2", p.tenant, p.id)
	}
	if err != nil {
		return err
	}
	return w.writer.Append(ctx, tx, e)
}

// event tells of the version that a purchase has now.
func (w *town) event(p *purchase, kind string) (e waybill.Event, status, total string) {
	status, total = []string{"NEW", "PAID", "SENT"}[w.random.n(3)], fmt.Sprintf("%d.%02d", w.random.n(1000), w.random.n(100))
	return waybill.Event{
		ID: eventID(p, p.version), Type: kind, Topic: w.topic, TenantID: p.tenant, AggregateType: "purchase", AggregateID: p.id, AggregateVersion: p.version,
		Key: p.name(), Data: []byte(fmt.Sprintf(`{"status":%q,"total":%s}`, status, total)),
	}, status, total
}

func eventID(p *purchase, version int64) string { return fmt.Sprintf("%s/%d", p.name(), version) }

// load changes purchases until the context ends, each worker its own.
func (w *town) load(ctx context.Context, workers int) (wait func()) {
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			tick := time.NewTicker(25 * time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				<-tick.C
				p := w.purchases[w.random.n(len(w.purchases))]
				if !p.mu.TryLock() {
					continue
				}
				if !p.apart {
					kind := changed
					if p.there && w.random.n(12) == 0 {
						kind = removed
					}
					before, there := p.version, p.there
					err := w.within(ctx, func(tx *sql.Tx) error { return w.advance(ctx, tx, p, kind) })
					if err != nil {
						p.version, p.there = before, there
						if ctx.Err() == nil {
							w.t.Errorf("%s: %v", p.name(), err)
						}
						p.apart = true // nobody knows what became of it
					}
					w.changesMu.Lock()
					w.changes++
					w.changesMu.Unlock()
				}
				p.mu.Unlock()
			}
		})
	}
	return all.Wait
}

// part is a process of this binary.
type part struct {
	t           *testing.T
	environment []string
	cmd         *exec.Cmd
	output      *lab.Output
	done        chan struct{}
	kills       int
}

func (p *part) start() {
	p.output, p.done = &lab.Output{}, make(chan struct{})
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), p.environment...)
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	tether, err := p.cmd.StdinPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		p.t.Error(err)
		close(p.done)
		return
	}
	cmd, done, output := p.cmd, p.done, p.output
	go func() {
		defer close(done)
		_ = cmd.Wait()
	}()
	p.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		_ = tether.Close()
		if text := output.String(); p.t.Failed() && text != "" {
			p.t.Logf("%s:\n%.2000s", p.environment[0], text)
		}
	})
}

// chaos kills one part after the other, and starts it again. The next one dies
// when what was there at the last death has come through: on a slow machine parts
// that die faster than they begin to work would do nothing at all, and what is
// late by then is late in truth.
func (w *town) chaos(ctx context.Context, every time.Duration) (wait func()) {
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			p := w.parts[[]int{0, 2, 1, 3}[n%4]]
			select {
			case <-p.done:
				w.t.Errorf("%s had ended by itself: %s", p.environment[0], p.output)
			default:
			}
			_ = p.cmd.Process.Signal(syscall.SIGKILL)
			<-p.done
			p.kills++
			last := w.number(w.write, "SELECT COALESCE(MAX(id), 0) FROM outbox_event")
			p.start()
			for ctx.Err() == nil && !w.through(last) {
				select {
				case <-ctx.Done():
				case <-tick.C:
				}
			}
		}
	})
	return running.Wait
}

// through reports whether all events up to one have reached the consumer.
func (w *town) through(last int64) bool {
	if w.number(w.write, "SELECT COUNT(*) FROM outbox_pending WHERE status = 'PENDING' AND id <= $1", last) > 0 {
		return false
	}
	known := w.names(w.read, "SELECT event_id FROM consumed_event UNION SELECT event_id FROM held_event")
	for id := range w.names(w.write, "SELECT event_id FROM outbox_receipt WHERE outcome = 'SENT' AND id <= $1", last) {
		if !known[id] {
			return false
		}
	}
	return true
}

func (w *town) kills() (n int) {
	for _, p := range w.parts {
		n += p.kills
	}
	return n
}

// drained waits until all that can be sent and applied is.
func (w *town) drained(patience time.Duration) {
	w.t.Helper()
	lab.Until(w.t, patience, "a consumer that knows all that was sent", func() bool { return w.through(1 << 62) })
}

func (w *town) names(db *sql.DB, query string, args ...any) map[string]bool {
	w.t.Helper()
	rows, err := db.QueryContext(w.t.Context(), query, args...)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	names := make(map[string]bool)
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			w.t.Fatal(err)
		}
		names[name] = true
	}
	if err := rows.Err(); err != nil {
		w.t.Fatal(err)
	}
	return names
}

func (w *town) number(db *sql.DB, query string, args ...any) (n int64) {
	w.t.Helper()
	if err := db.QueryRowContext(w.t.Context(), query, args...).Scan(&n); err != nil {
		w.t.Fatalf("%s: %v", query, err)
	}
	return n
}
