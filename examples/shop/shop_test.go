package shop_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/examples/orders"
	"github.com/waybillhq/waybill/examples/shop"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/sqlite"
)

func TestPaidOrderIsReservedOnce(t *testing.T) {
	ctx := t.Context()
	ordersStore := open(t, "orders.db", `CREATE TABLE orders (id TEXT PRIMARY KEY, status TEXT NOT NULL, version INTEGER NOT NULL)`)
	stock := open(t, "inventory.db", `CREATE TABLE reservation (order_id TEXT NOT NULL, event_id TEXT NOT NULL)`)
	mem := membroker.New()
	if err := mem.EnsureTopics(ctx, []broker.TopicSpec{{Name: "orders"}}); err != nil {
		t.Fatal(err)
	}

	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- shop.Run(running, ordersStore, stock, mem, mem) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	}()

	writer := outbox.NewWriter[store.SQLTx](ordersStore, &outbox.Config{Source: "/orders"})
	exec(t, ordersStore.DB(), `INSERT INTO orders (id, status, version) VALUES ('O-1', 'NEW', 1)`)
	if err := orders.PayOrder(ctx, ordersStore.DB(), writer, "O-1", 2); err != nil {
		t.Fatal(err)
	}
	exec(t, ordersStore.DB(), readmeInsert(t))

	await(t, func() bool { return count(t, stock.DB(), `SELECT COUNT(*) FROM reservation`) == 2 })
	for _, order := range []string{"O-1", "O-1001"} {
		if got := count(t, stock.DB(), `SELECT COUNT(*) FROM reservation WHERE order_id = ?`, order); got != 1 {
			t.Errorf("order %s has %d reservations, want 1", order, got)
		}
	}
}

func TestRolledBackOrderSaysNothing(t *testing.T) {
	ctx := t.Context()
	// The business statement fails.
	ordersStore := open(t, "orders.db", `CREATE TABLE orders (id TEXT PRIMARY KEY, status TEXT CHECK (status <> 'PAID'), version INTEGER)`)
	exec(t, ordersStore.DB(), `INSERT INTO orders (id, status, version) VALUES ('O-1', 'NEW', 1)`)
	writer := outbox.NewWriter[store.SQLTx](ordersStore, nil)
	if err := orders.PayOrder(ctx, ordersStore.DB(), writer, "O-1", 2); err == nil {
		t.Fatal("the business statement was refused and PayOrder reports success")
	}
	if got := count(t, ordersStore.DB(), `SELECT COUNT(*) FROM outbox_event`); got != 0 {
		t.Errorf("%d events of a transaction that was rolled back", got)
	}
}

// readmeInsert returns the statement with which the README shows that any
// language can produce.
func readmeInsert(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	match := regexp.MustCompile("(?s)```sql\n(INSERT .*?)```").FindSubmatch(page)
	if match == nil {
		t.Fatal("the README shows no INSERT any more")
	}
	return string(match[1])
}

func open(t *testing.T, name, table string) *sqlite.Store {
	t.Helper()
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), name), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Errorf("close %s: %v", name, err)
		}
	})
	if err := st.Migrate(t.Context(), store.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	exec(t, st.DB(), table)
	return st
}

func exec(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func count(t *testing.T, db *sql.DB, query string, args ...any) int {
	t.Helper()
	var n int
	if err := db.QueryRowContext(t.Context(), query, args...).Scan(&n); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

func await(t *testing.T, condition func() bool) {
	t.Helper()
	deadline, tick := time.After(30*time.Second), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("not within 30 seconds")
		}
	}
}
