package consume

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/broker/natsjs"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/postgres"
	"github.com/waybillhq/waybill/store/sqlite"
)

const (
	topic    = "orders"
	keys     = 12
	versions = 12
	patience = 2 * time.Minute
)

var errBoom = errors.New("boom")

// bench is a database with a table of effects, and how to reach it.
type bench[TX any] struct {
	st     store.Consumer[TX]
	exec   func(ctx context.Context, tx TX, query string) error
	effect func(ctx context.Context, tx TX, e *waybill.Event) error
	rows   func(ctx context.Context) (ids []string, err error) // in the order of their effects
}

func TestConsumersOverSQLite(t *testing.T) {
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "consume.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	migrate(t, st)
	if _, err := st.DB().ExecContext(t.Context(), "CREATE TABLE effect (seq INTEGER PRIMARY KEY AUTOINCREMENT, event_id TEXT NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	exec := func(ctx context.Context, tx *sql.Tx, query string) error {
		_, err := tx.ExecContext(ctx, query)
		return err
	}
	each(t, bench[*sql.Tx]{
		st: st, exec: exec,
		effect: func(ctx context.Context, tx *sql.Tx, e *waybill.Event) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO effect (event_id) VALUES (?)", e.ID)
			return err
		},
		rows: func(ctx context.Context) (ids []string, err error) {
			rows, err := st.DB().QueryContext(ctx, "SELECT event_id FROM effect ORDER BY seq")
			if err != nil {
				return nil, err
			}
			defer rows.Close()
			for rows.Next() {
				var id string
				if err := rows.Scan(&id); err != nil {
					return nil, err
				}
				ids = append(ids, id)
			}
			return ids, rows.Err()
		},
	}, func(ctx context.Context) error { _, err := st.DB().ExecContext(ctx, "DELETE FROM effect"); return err })
}

func TestConsumersOverPostgres(t *testing.T) {
	dsn := testenv.Postgres15(t)
	schema := fmt.Sprintf("consume_%d", os.Getpid())
	st, err := postgres.Open(t.Context(), dsn, &postgres.Config{Names: store.Names{Schema: schema}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	migrate(t, st)
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	table := schema + ".effect"
	t.Cleanup(func() {
		_, _ = conn.Exec(context.Background(), "DROP SCHEMA "+schema+" CASCADE")
		_ = conn.Close(context.Background())
	})
	if _, err := conn.Exec(t.Context(), "CREATE TABLE "+table+" (seq BIGSERIAL PRIMARY KEY, event_id TEXT NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	exec := func(ctx context.Context, tx pgx.Tx, query string) error {
		_, err := tx.Exec(ctx, query)
		return err
	}
	each(t, bench[pgx.Tx]{
		st: st, exec: exec,
		effect: func(ctx context.Context, tx pgx.Tx, e *waybill.Event) error {
			_, err := tx.Exec(ctx, "INSERT INTO "+table+" (event_id) VALUES ($1)", e.ID)
			return err
		},
		rows: func(ctx context.Context) ([]string, error) {
			rows, err := conn.Query(ctx, "SELECT event_id FROM "+table+" ORDER BY seq")
			if err != nil {
				return nil, err
			}
			return pgx.CollectRows(rows, pgx.RowTo[string])
		},
	}, func(ctx context.Context) error { _, err := conn.Exec(ctx, "DELETE FROM "+table); return err })
}

func migrate(t *testing.T, st store.Schema) {
	t.Helper()
	if err := st.Migrate(t.Context(), store.MigrateOptions{SkipOutbox: true}); err != nil {
		t.Fatal(err)
	}
}

func each[TX any](t *testing.T, b bench[TX], empty func(ctx context.Context) error) {
	t.Run("broker that shares partitions", func(t *testing.T) {
		m := membroker.New()
		consume(t, b, "shared", m, m, func() { m.ExpireSessions("shared") })
	})
	if err := empty(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Run("partitions by lease", func(t *testing.T) {
		server, err := natsjs.StartEmbedded(t.Context(), &natsjs.EmbeddedConfig{StoreDir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		n, err := natsjs.Open(t.Context(), server.ClientURL(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		consume(t, b, "leased", n, n, func() {})
	})
}

type server interface {
	broker.TopicAdmin
	broker.Publisher
}

// consume has two consumers work through all events, of which some fail in one
// of several ways, while a third comes and goes.
func consume[TX any](t *testing.T, b bench[TX], group string, admin server, sub broker.Subscriber, disturb func()) {
	if err := admin.EnsureTopics(t.Context(), []broker.TopicSpec{{Name: topic, Partitions: 4}}); err != nil {
		t.Fatal(err)
	}
	handler := func(ctx context.Context, tx TX, e waybill.Event) error {
		if err := b.effect(ctx, tx, &e); err != nil {
			return err
		}
		switch rand.IntN(40) {
		case 0:
			return errBoom
		case 1:
			panic(errBoom)
		case 2: // an error of the database, returned
			return b.exec(ctx, tx, "SELECT no_such_column FROM effect")
		case 3: // an error of the database, kept to itself
			_ = b.exec(ctx, tx, "SELECT no_such_column FROM effect")
		case 4:
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	config := &inbox.Config{
		Group: group, Topics: []string{topic}, BatchSize: 20, PollWait: 50 * time.Millisecond, ReaderTTL: 2 * time.Second,
		HandlerTimeout: 100 * time.Millisecond, SweepEvery: 50 * time.Millisecond, CrashTries: 1000,
		Logger: slog.New(slog.DiscardHandler),
	}
	for range 50 {
		config.Schedule = append(config.Schedule, 50*time.Millisecond)
	}
	start := func() (stop func()) {
		p, err := inbox.New(b.st, sub, handler, config)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
		}
	}
	defer start()()
	defer start()()
	for version := int64(1); version <= versions; version++ {
		third := func() {}
		if version%4 == 0 {
			third = start()
		}
		publish(t, admin, group, version)
		disturb()
		third()
	}
	check(t, b, group)
}

func publish(t *testing.T, p broker.Publisher, group string, version int64) {
	t.Helper()
	var records []waybill.Record
	for k := range keys {
		e := waybill.Event{
			ID: fmt.Sprintf("%s/k%02d/%d", group, k, version), Type: "OrderChanged", Topic: topic,
			AggregateType: "order", AggregateID: fmt.Sprintf("k%02d", k), AggregateVersion: version, Data: []byte("{}"),
		}
		record, err := waybill.Encode(waybill.FormatEnvelope, &e)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, record)
	}
	if err := errors.Join(p.Publish(t.Context(), records)...); err != nil {
		t.Fatal(err)
	}
}

// check waits until all is applied and nothing is held any more.
func check[TX any](t *testing.T, b bench[TX], group string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		ids, err := b.rows(ctx)
		if err != nil {
			t.Fatal(err)
		}
		counts, err := b.st.CountHeld(ctx, group)
		if err != nil {
			t.Fatal(err)
		}
		if len(ids) >= keys*versions && counts == (store.HeldCounts{}) {
			checkOrder(t, ids)
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%d effects of %d, held %+v", len(ids), keys*versions, counts)
		}
	}
}

func checkOrder(t *testing.T, ids []string) {
	t.Helper()
	next := map[string]int{}
	for _, id := range ids {
		key := id[:strings.LastIndex(id, "/")]
		next[key]++
		if want := fmt.Sprintf("%s/%d", key, next[key]); id != want {
			t.Errorf("effect of %s where %s was due", id, want)
		}
	}
	if len(ids) != keys*versions {
		t.Errorf("%d effects, want %d", len(ids), keys*versions)
	}
}
