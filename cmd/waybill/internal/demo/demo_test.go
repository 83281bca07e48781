package demo

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/sqlite"
)

func TestScriptHasEverythingThatIsPromised(t *testing.T) {
	for _, events := range []int{MinEvents, 100, 1000} {
		steps := script(events, 1)
		written, refused, poison := 0, 0, 0
		versions := make(map[string]int64)
		for _, s := range steps {
			switch {
			case s.refused:
				refused++
				if versions[s.orderID] != 0 {
					t.Errorf("%s is refused after it existed", s.orderID)
				}
				continue
			case s.product == poisonProduct:
				poison++
			}
			written++
			if versions[s.orderID]++; versions[s.orderID] != s.version || (s.version == 1) != s.newOrder {
				t.Errorf("%s: version %d, want %d", s.orderID, s.version, versions[s.orderID])
			}
		}
		if written != events || refused < 1 || poison != 1 || versions[poisonOrder] != 1 || len(versions) == written {
			t.Errorf("%d events: %d written, %d refused, %d poison, %d orders", events, written, refused, poison, len(versions))
		}
	}
	if !reflect.DeepEqual(script(50, 3), script(50, 3)) || reflect.DeepEqual(script(50, 3), script(50, 4)) {
		t.Error("the seed does not decide")
	}
}

func TestTransactionKeepsRefusedStepsApart(t *testing.T) {
	ok, no := step{}, step{refused: true}
	for _, c := range []struct {
		steps []step
		want  int
	}{
		{[]step{ok, ok, ok}, 3}, {[]step{ok, no, ok}, 1}, {[]step{no, ok}, 1}, {[]step{no, no}, 1}, {[]step{ok, ok, no}, 2},
	} {
		if got := len(transaction(c.steps)); got != c.want {
			t.Errorf("%v: %d, want %d", c.steps, got, c.want)
		}
	}
}

// Each fault that the demo could have is seen in the databases.
func TestVerifySeesFaults(t *testing.T) {
	for _, c := range []struct {
		name string
		do   string // on orders.db, with inventory.db attached
		want string // the only violations, by a part of each; parts joined by '|'
	}{
		{"none", "", ""},
		{"an event vanished on the way", "DELETE FROM inventory.consumed_event WHERE event_id = 'e2'", "1 events are lost|3 events, but 1 applied"},
		{"an effect twice", "INSERT INTO inventory.inventory_effect (event_id, order_id, version, qty) VALUES ('e2', 'O-1', 2, 1)", "1 events had more than one effect"},
		{"a later version first", "UPDATE inventory.inventory_effect SET id = 10 WHERE event_id = 'e1'", "1 effects are out of order"},
		{"an order without its event", "INSERT INTO orders VALUES ('O-3', 'dates', 1, 'placed', 1, '')", "1 traces of something|1 orders differ"},
		{"an event without its order", "DELETE FROM orders WHERE order_id = 'O-poison'", "1 traces of something"},
		{"an effect without an event", "INSERT INTO inventory.inventory_effect (event_id, order_id, version, qty) VALUES ('e9', 'O-9', 1, 1)", "1 traces of something"},
		{"the read model differs", "UPDATE inventory.inventory_order SET qty = 9", "1 orders differ"},
		{"still in the queue", "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, aggregate_version, event_type, topic, payload) VALUES ('e4', 'order', 'O-1', 3, 'X', 'orders', '{}'); UPDATE orders SET version = 3 WHERE order_id = 'O-1'; UPDATE inventory.inventory_order SET version = 3", "1 events are lost|1 events are still in the queue|4 events, but 2 applied"},
		{"nothing is dead", "DELETE FROM inventory.held_event", "1 events are lost|0 events are dead|3 events, but 2 applied|1 orders differ"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			plant(t, dir, c.do)
			r, err := Verify(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			if c.want != "" {
				want = strings.Split(c.want, "|")
			}
			got := slices.Clone(r.Violations)
			if !sameParts(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			if c.name == "none" && (r.Orders != 2 || r.Events != 3 || r.Applied != 2 || r.Dead != 1 || r.DuplicatesAbsorbed != 5 || r.RolledBack != 1 || r.RelayKills != 1 || r.BrokerOutages != 1) {
				t.Errorf("figures: %+v", r)
			}
		})
	}
}

func sameParts(got, want []string) bool {
	for _, w := range want {
		if !slices.ContainsFunc(got, func(g string) bool { return strings.Contains(g, w) }) {
			return false
		}
	}
	return len(got) == len(want)
}

// plant makes the databases of a demo of three events that went well, and then
// does something to them.
func plant(t *testing.T, dir, do string) {
	t.Helper()
	ctx := t.Context()
	orders, err := openOrders(ctx, fileSite(dir), "orders")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = orders.close() }()
	inv, err := sqlite.Open(ctx, filepath.Join(dir, inventoryFile), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = inv.Close() }()
	if err := inv.Migrate(ctx, store.MigrateOptions{SkipOutbox: true}); err != nil {
		t.Fatal(err)
	}
	run(ctx, t, inv.DB(), dialects[kindSQLite].sql(inventoryTables))
	const event = `INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, aggregate_version, event_type, topic, payload) VALUES ('%s', 'order', '%s', %d, 'OrderPlaced', 'orders', '{}')`
	run(ctx, t, orders.db, fmt.Sprintf(event, "e1", "O-1", 1))
	run(ctx, t, orders.db, fmt.Sprintf(event, "e2", "O-1", 2))
	run(ctx, t, orders.db, fmt.Sprintf(event, "e3", poisonOrder, 1))
	run(ctx, t, orders.db, `DELETE FROM outbox_pending;
INSERT INTO orders VALUES ('O-1', 'dates', 2, 'paid', 2, ''), ('O-poison', 'unobtainium', 1, 'placed', 1, '');
INSERT INTO refused_order VALUES ('O-2', '');
INSERT INTO demo_incident (at, kind, note) VALUES ('', 'relay kill', ''), ('', 'broker outage', '')`)
	tx, err := inv.BeginInbox(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	for i, step := range []step{{orderID: "O-1", version: 1, status: "placed"}, {orderID: "O-1", version: 2, status: "paid"}, {orderID: poisonOrder, version: 1, status: "placed"}} {
		e := eventOf(&step, "orders")
		e.ID = fmt.Sprintf("e%d", i+1)
		if step.orderID == poisonOrder {
			_, err = tx.Hold(ctx, store.Held{Group: "inventory", Topic: "orders", Key: e.EffectiveKey(), Event: e, State: store.HeldDead, Attempts: 4, LastErr: "no"})
		} else {
			_, err = tx.MarkConsumed(ctx, store.Consumed{Group: "inventory", Event: e, Outcome: store.Applied, Topic: "orders"})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	run(ctx, t, inv.DB(), `UPDATE consumed_event SET duplicates = 5 WHERE event_id = 'e1';
INSERT INTO inventory_effect (event_id, order_id, version, qty) VALUES ('e1', 'O-1', 1, 2), ('e2', 'O-1', 2, 2);
INSERT INTO inventory_order VALUES ('O-1', 'dates', 2, 'paid', 2, 'e2')`)
	if err := inv.Close(); err != nil {
		t.Fatal(err)
	}
	if do == "" {
		return
	}
	db := orders.db
	run(ctx, t, db, fmt.Sprintf("ATTACH '%s' AS inventory", filepath.Join(dir, inventoryFile)))
	run(ctx, t, db, do)
}

func run(ctx context.Context, t *testing.T, db *sql.DB, query string) {
	t.Helper()
	if _, err := db.ExecContext(ctx, query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func TestShellQuote(t *testing.T) {
	for text, want := range map[string]string{"/tmp/a-b.c": "/tmp/a-b.c", "/tmp/a b": "'/tmp/a b'", "it's": `'it'\''s'`} {
		if got := shellQuote(text); got != want {
			t.Errorf("shellQuote(%q) = %s, want %s", text, got, want)
		}
	}
}
