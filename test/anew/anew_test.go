package anew

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/postgres"
	"github.com/waybillhq/waybill/store/sqlite"
	"github.com/waybillhq/waybill/test/lab"
)

const (
	topic    = "orders"
	patience = 90 * time.Second
)

func TestOverSQLite(t *testing.T) {
	t.Run("settled", func(t *testing.T) { overSQLite(t, false) })
	t.Run("settled late", func(t *testing.T) { overSQLite(t, true) })
}

func overSQLite(t *testing.T, late bool) {
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "anew.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	sendAnew(t, late, st, st.DB(), st, "DELETE FROM outbox_event; DELETE FROM sqlite_sequence WHERE name = 'outbox_event'")
}

func TestOverPostgres(t *testing.T) {
	t.Run("settled", func(t *testing.T) { overPostgres(t, false) })
	t.Run("settled late", func(t *testing.T) { overPostgres(t, true) })
}

func overPostgres(t *testing.T, late bool) {
	dsn := lab.Postgres15(t)
	st, err := postgres.Open(t.Context(), dsn, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	sendAnew(t, late, st, db, st.SQL(), "TRUNCATE outbox_event RESTART IDENTITY")
}

// watched counts how often the relay has asked which ids are closed, and settles
// nothing before it may.
type watched struct {
	relay.Store
	frontiers atomic.Int64
	settles   chan struct{}
}

func (w *watched) Apply(ctx context.Context, guard store.Guard, changes store.Changes) error {
	if len(changes.Settled) > 0 {
		select {
		case <-w.settles:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return w.Store.Apply(ctx, guard, changes)
}

func (w *watched) Frontier(ctx context.Context) (store.Frontier, error) {
	f, err := w.Store.Frontier(ctx)
	w.frontiers.Add(1)
	return f, err
}

// sendAnew sends what has the ids of others that were sent before. Where these are
// settled late, that is after it was found.
func sendAnew(t *testing.T, late bool, st relay.Store, db *sql.DB, appender store.Appender[store.SQLTx], empty string) {
	if err := st.Migrate(t.Context(), store.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	writer := outbox.NewWriter(appender, nil)
	add := func(ids ...string) {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if err := writer.Append(t.Context(), tx, waybill.Event{ID: id, Type: "OrderChanged", Topic: topic, AggregateType: "order", AggregateID: id}); err != nil {
				t.Fatal(err)
			}
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	events := membroker.New(topic)
	w := &watched{Store: st, settles: make(chan struct{})}
	if !late {
		close(w.settles)
	}
	r, err := relay.New(w, events, &relay.Config{SweepEvery: time.Hour}) // the sweep would find them in any case
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	sent := func(n int) {
		t.Helper()
		lab.Until(t, patience, fmt.Sprintf("%d records", n), func() bool { return len(events.EventIDs(topic)) >= n })
	}

	someWalks := func() {
		t.Helper()
		seen := w.frontiers.Load()
		lab.Until(t, patience, "the ids closed", func() bool { return w.frontiers.Load() >= seen+4 })
	}
	add("e1", "e2", "e3", "e4")
	sent(4)
	if !late {
		lab.Until(t, patience, "what was sent to be settled", func() bool {
			var left int
			err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM outbox_pending").Scan(&left)
			return err == nil && left == 0
		})
	}
	someWalks()
	if _, err := db.ExecContext(t.Context(), empty); err != nil {
		t.Fatal(err)
	}
	add("f1", "f2")
	if late {
		someWalks()
		close(w.settles)
	}
	sent(6)
}
