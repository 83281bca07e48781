//go:build unix

package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/kafka"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/mysql"
	"github.com/waybillhq/waybill/store/postgres"
)

// Debezium takes over from a relay and gives back, with orders written all the
// time: each event is in its topic once, in the order of its key, and the
// consumer, trace, doctor and reconciliation do not notice but for the receipt.
func TestDebeziumDelivers(t *testing.T) {
	for _, server := range demoServers[:2] {
		t.Run(server.scheme, func(t *testing.T) {
			t.Parallel()
			connect := testenv.Connect4(t)
			h := newHandOver(t, server.scheme, server.find(t), connect)
			h.write(t, 1)
			h.relay(t)
			h.consume(t)
			h.settled(t, 1)

			h.write(t, 2)
			var switched struct{ Cut, Queued int }
			h.json(t, exitOK, &switched, "delivery", "switch", "external", "--reason", "to try")
			if switched.Cut < 2*orders || switched.Queued != 0 {
				t.Fatalf("the switch: %+v, want the cut after %d events, all of them sent", switched, 2*orders)
			}
			h.write(t, 3) // for the connector to begin with
			h.connector(t)
			h.write(t, 4)
			h.settled(t, 4)
			h.confirmed(t)

			h.says(t, exitOK, "by external", "trace", h.event(0, 4))
			h.says(t, exitOK, "by external", "trace", h.event(0, 3))
			h.says(t, exitOK, "by poll", "trace", h.event(0, 2))
			h.says(t, exitOK, "applied by view", "trace", h.event(0, 4))
			h.says(t, exitOK, "another program sends what is above", "doctor", "--no-broker")
			h.says(t, exitOK, "", "status", "--check")
			h.reconciled(t, exitOK, ": 0 0")
			h.exec(t, "UPDATE order_view SET status = 'edited' WHERE id = 'O-1'", "DELETE FROM order_view WHERE id = 'O-2'",
				"UPDATE orders SET status = 'changed' WHERE id = 'O-3'", "UPDATE orders SET version = 9 WHERE id = 'O-4'")
			h.reconciled(t, exitFindings, "MISSING_EVENT O-4, MISMATCH_WRITE O-3, MISMATCH_READ O-1, MISMATCH_READ O-2: 4 0")
			h.exec(t, "UPDATE orders SET version = 4 WHERE id = 'O-4'")

			h.call(t, http.MethodPut, "/stop", nil)
			h.await(t, "the connector to stop", func() bool { return strings.Contains(h.call(t, http.MethodGet, "/status", nil), `"STOPPED"`) })
			h.write(t, 5) // which nobody sends
			h.says(t, exitOK, "handed over to another program", "trace", h.event(0, 5))
			h.says(t, exitOK, fmt.Sprintf("%d of them not confirmed", orders), "delivery", "show")
			h.json(t, exitOK, &switched, "delivery", "switch", "relay", "--reason", "tried", "--quiet", "2s")
			if switched.Queued != orders {
				t.Errorf("the switch back queued %d events, want the %d that nobody has sent", switched.Queued, orders)
			}
			h.write(t, 6)
			h.settled(t, 6)
			h.says(t, exitOK, "by poll", "trace", h.event(0, 5))
			h.once(t, 6)
		})
	}
}

const orders = 12 // each of which changes in each round

// handOver is an outbox on a server, with a shop before and a consumer behind it.
type handOver struct {
	scheme, where string // the latter: of the database made for it
	topic, kafka  string
	connect, name string // of the connector
	dir           string
	log           lockedBuffer

	mu    sync.Mutex
	seen  map[string][]int64 // versions that the handler saw, by key
	wrong []string
}

func newHandOver(t *testing.T, scheme, dsn, connect string) *handOver {
	t.Helper()
	id := fmt.Sprintf("waybill_dbz_%d_%d", os.Getpid(), time.Now().UnixNano())
	admin := urlOf(t, scheme, dsn)
	onServer(t, scheme, admin, func(ctx context.Context, db *sql.DB) error {
		_, err := db.ExecContext(ctx, "CREATE DATABASE "+id)
		return err
	})
	h := &handOver{scheme: scheme, topic: id, kafka: testenv.Kafka4(t), connect: connect, name: id, dir: t.TempDir(), seen: make(map[string][]int64)}
	u, err := url.Parse(admin)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + id
	h.where = u.String()
	t.Cleanup(func() {
		drop := "DROP DATABASE " + id
		if scheme == "postgres" {
			drop += " WITH (FORCE)"
		}
		onServer(t, scheme, admin, func(ctx context.Context, db *sql.DB) error {
			_, err := db.ExecContext(ctx, drop)
			return err
		})
	})
	check := fmt.Sprintf(`
databases:
  shop: {kind: %s, dsn_file: shop.dsn}
checks:
  orders:
    key: [id]
    compare: [status]
    write: {database: shop, table: orders, version: version}
    log: {database: shop, outbox: {aggregate_type: order}}
    read: {database: shop, table: order_view, version: version}
    deadline: 1s
    confirm: [100ms]
`, scheme)
	inboxes := fmt.Sprintf("inboxes:\n  view: {kind: %s, dsn_file: shop.dsn}\n", scheme)
	for name, text := range map[string]string{"check.yaml": check, "shop.dsn": h.own(t), "waybill.yaml": inboxes} {
		if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.says(t, exitOK, "tables of version", "migrate")
	h.exec(t,
		"CREATE TABLE orders (id VARCHAR(20) PRIMARY KEY, status VARCHAR(20) NOT NULL, version BIGINT NOT NULL)",
		"CREATE TABLE order_view (id VARCHAR(20) PRIMARY KEY, status VARCHAR(20) NOT NULL, version BIGINT NOT NULL)")
	return h
}

// own is the address as the driver of the database takes it.
func (h *handOver) own(t *testing.T) string {
	t.Helper()
	u, err := url.Parse(h.where)
	if err != nil || h.scheme == "postgres" {
		return h.where
	}
	return fmt.Sprintf("%s@tcp(%s)%s", u.User, u.Host, u.Path)
}

func (h *handOver) exec(t *testing.T, statements ...string) {
	t.Helper()
	onServer(t, h.scheme, h.where, func(ctx context.Context, db *sql.DB) error {
		for _, statement := range statements {
			if _, err := db.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
		return nil
	})
}

func (h *handOver) event(order int, version int64) string {
	return fmt.Sprintf("O-%d/%d/%s", order, version, h.name)
}

func payload(order int, version int64) string {
	return fmt.Sprintf(`{"status": "s%d",  "of": %d, "amount": 1.10}`, version, order)
}

// write changes each order and says so, by plain SQL as any language would.
func (h *handOver) write(t *testing.T, version int64) {
	t.Helper()
	onServer(t, h.scheme, h.where, func(ctx context.Context, db *sql.DB) error {
		for i := range orders {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			change := fmt.Sprintf("UPDATE orders SET version = %d, status = 's%d' WHERE id = 'O-%d'", version, version, i)
			if version == 1 {
				change = fmt.Sprintf("INSERT INTO orders (id, status, version) VALUES ('O-%d', 's1', 1)", i)
			}
			event := fmt.Sprintf("INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, aggregate_version, event_type, topic, payload) VALUES ('%s', 'order', 'O-%d', %d, 'OrderChanged', '%s', '%s')",
				h.event(i, version), i, version, h.topic, payload(i, version))
			for _, statement := range []string{change, event} {
				if _, err := tx.ExecContext(ctx, statement); err != nil {
					return errors.Join(err, tx.Rollback())
				}
			}
			if err := tx.Commit(); err != nil {
				return err
			}
		}
		return nil
	})
}

func (h *handOver) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "waybill", args...)
	cmd.Dir = h.dir
	cmd.Env = append(os.Environ(),
		"WAYBILL_STORE_KIND="+h.scheme, "WAYBILL_STORE_DSN="+h.where, "WAYBILL_BROKER_KIND=kafka", "WAYBILL_BROKER_URL=kafka://"+h.kafka,
		"WAYBILL_RELAY_DEFAULT_FORMAT=raw")
	return cmd
}

func (h *handOver) output(t *testing.T, code int, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := h.command(t.Context(), args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == code || err == nil && code == exitOK {
		return stdout.String()
	}
	t.Fatalf("waybill %s: %v, want exit code %d\n%s%s\nthe relay:\n%s", strings.Join(args, " "), err, code, &stdout, &stderr, h.log.String())
	return ""
}

func (h *handOver) says(t *testing.T, code int, want string, args ...string) {
	t.Helper()
	if out := h.output(t, code, args...); !strings.Contains(out, want) {
		t.Errorf("waybill %s does not say %q:\n%s", strings.Join(args, " "), want, out)
	}
}

func (h *handOver) json(t *testing.T, code int, into any, args ...string) {
	t.Helper()
	out := h.output(t, code, append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// relay runs one until the test ends.
func (h *handOver) relay(t *testing.T) {
	t.Helper()
	admin, err := kafka.Open(t.Context(), &kafka.Config{Brokers: []string{h.kafka}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close() }()
	if err := admin.EnsureTopics(t.Context(), []broker.TopicSpec{{Name: h.topic, Partitions: 3}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.removeTopics(t) })
	cmd := h.command(context.WithoutCancel(t.Context()), "relay") // it is told to stop
	cmd.Stderr = &h.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the relay stopped badly: %v\n%s", err, h.log.String())
		}
	})
}

func (h *handOver) client(t *testing.T) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(h.kafka))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (h *handOver) removeTopics(t *testing.T) {
	client := h.client(t)
	defer client.Close()
	_, _ = kadm.NewClient(client).DeleteTopics(context.Background(), h.topic, h.name+".schema-history", "__debezium-heartbeat."+h.name)
}

// consume runs a consumer that keeps the view, until the test ends.
func (h *handOver) consume(t *testing.T) {
	t.Helper()
	subscriber, err := kafka.Open(t.Context(), &kafka.Config{Brokers: []string{h.kafka}})
	if err != nil {
		t.Fatal(err)
	}
	config := &inbox.Config{Group: "view", Topics: []string{h.topic}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var run func(context.Context) error
	var closeStore func() error
	if h.scheme == "postgres" {
		st, err := postgres.Open(t.Context(), h.where, nil)
		if err != nil {
			t.Fatal(err)
		}
		p, err := inbox.New(st, subscriber, func(ctx context.Context, tx pgx.Tx, e waybill.Event) error {
			return h.apply(e, func(statement string) (int64, error) {
				tag, err := tx.Exec(ctx, statement)
				return tag.RowsAffected(), err
			})
		}, config)
		if err != nil {
			t.Fatal(err)
		}
		run, closeStore = p.Run, st.Close
	} else {
		st, err := mysql.Open(t.Context(), h.where, nil)
		if err != nil {
			t.Fatal(err)
		}
		p, err := inbox.New(st, subscriber, func(ctx context.Context, tx *sql.Tx, e waybill.Event) error {
			return h.apply(e, func(statement string) (int64, error) {
				result, err := tx.ExecContext(ctx, statement)
				if err != nil {
					return 0, err
				}
				return result.RowsAffected()
			})
		}, config)
		if err != nil {
			t.Fatal(err)
		}
		run, closeStore = p.Run, st.Close
	}
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, closeStore(), subscriber.Close()); err != nil {
			t.Error(err)
		}
	})
}

// apply notes what came, and changes the view.
func (h *handOver) apply(e waybill.Event, exec func(statement string) (int64, error)) error {
	var order int
	_, _ = fmt.Sscanf(e.AggregateID, "O-%d", &order)
	h.mu.Lock()
	h.seen[e.EffectiveKey()] = append(h.seen[e.EffectiveKey()], e.AggregateVersion)
	if want := payload(order, e.AggregateVersion); string(e.Data) != want || e.Type != "OrderChanged" || e.AggregateType != "order" || e.EffectiveKey() != e.AggregateID || time.Since(e.OccurredAt) > time.Hour {
		h.wrong = append(h.wrong, fmt.Sprintf("%+v with %s, want %s", e, e.Data, want))
	}
	h.mu.Unlock()
	n, err := exec(fmt.Sprintf("UPDATE order_view SET status = 's%d', version = %d WHERE id = 'O-%d'", e.AggregateVersion, e.AggregateVersion, order))
	if err != nil || n > 0 {
		return err
	}
	_, err = exec(fmt.Sprintf("INSERT INTO order_view (id, status, version) VALUES ('O-%d', 's%d', %d)", order, e.AggregateVersion, e.AggregateVersion))
	return err
}

func (h *handOver) await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !condition(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			h.mu.Lock()
			defer h.mu.Unlock()
			t.Fatalf("never came: %s\nseen: %v\nthe relay:\n%s", what, h.seen, h.log.String())
		}
	}
}

// settled waits until the consumer has all orders at a version, and demands that
// it has seen each version once, in order, as it was written.
func (h *handOver) settled(t *testing.T, version int64) {
	t.Helper()
	all := func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		n := 0
		for _, versions := range h.seen {
			if slices.Contains(versions, version) {
				n++
			}
		}
		return n == orders
	}
	h.await(t, fmt.Sprintf("version %d of all orders", version), all)
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, versions := range h.seen {
		for i, v := range versions {
			if v != int64(i+1) {
				t.Errorf("order %s: the handler saw versions %v", key, versions)
				break
			}
		}
	}
	if len(h.wrong) > 0 {
		t.Errorf("not as written: %s", h.wrong[0])
	}
}

func (h *handOver) confirmed(t *testing.T) {
	t.Helper()
	h.await(t, "receipts of all events", func() bool {
		var d struct {
			Mode        string
			Unconfirmed int
		}
		h.json(t, exitOK, &d, "delivery", "show")
		return d.Mode == store.ViaExternal && d.Unconfirmed == 0
	})
}

// reconciled runs the check and demands its findings.
func (h *handOver) reconciled(t *testing.T, code int, want string) {
	t.Helper()
	var found struct {
		Runs []reportedRun `json:"runs"`
	}
	h.json(t, code, &found, "reconcile", "run", "--config", "check.yaml")
	if len(found.Runs) != 1 || found.Runs[0].String() != want {
		t.Errorf("reconciliation found %v, want %s", found.Runs, want)
	}
}

// connector creates what waybill prints, with the password put in as Kafka
// Connect would.
func (h *handOver) connector(t *testing.T) {
	t.Helper()
	u, err := url.Parse(h.where)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	text := h.output(t, exitOK, "debezium-config", "--name", h.name)
	config := make(map[string]string)
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if config["database.password"] != "${env:WAYBILL_DATABASE_PASSWORD}" {
		t.Errorf("the password: %q", config["database.password"])
	}
	config["database.password"] = password
	body, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.call(t, http.MethodDelete, "", nil)
		if h.scheme == "postgres" {
			h.dropSlot(t)
		}
	})
	h.call(t, http.MethodPut, "/config", body)
}

// dropSlot waits until the connector has let go of it.
func (h *handOver) dropSlot(t *testing.T) {
	onServer(t, h.scheme, h.where, func(ctx context.Context, db *sql.DB) error {
		var err error
		for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			if _, err = db.ExecContext(ctx, "SELECT pg_drop_replication_slot($1)", h.name); err == nil {
				return nil
			}
		}
		return err
	})
}

func (h *handOver) call(t *testing.T, method, path string, body []byte) string {
	t.Helper()
	request, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, h.connect+"/connectors/"+h.name+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= 300 {
		t.Fatalf("%s %s: %s: %v\n%s", method, path, response.Status, err, answer)
	}
	return string(answer)
}

// once demands that the topic has each event of the rounds once, and nothing else.
func (h *handOver) once(t *testing.T, rounds int64) {
	t.Helper()
	client := h.client(t)
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(t.Context(), h.topic)
	if err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	ends.Each(func(o kadm.ListedOffset) { total += o.Offset })
	if want := orders * rounds; total != want {
		t.Errorf("the topic has %d records, want %d: each event once", total, want)
	}
}
