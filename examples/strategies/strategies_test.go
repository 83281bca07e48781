package strategies

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/inbox/guard"
	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/sqlite"
)

func open(t *testing.T, statements ...string) *sqlite.Store {
	t.Helper()
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "shop.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	if err := st.Migrate(t.Context(), store.MigrateOptions{SkipOutbox: true}); err != nil {
		t.Fatal(err)
	}
	for _, statement := range statements {
		if _, err := st.DB().ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	return st
}

// handle runs a handler in a transaction of its own, as if the inbox had never
// heard of the event.
func handle(t *testing.T, st *sqlite.Store, handler inbox.Handler[*sql.Tx], e waybill.Event) error {
	t.Helper()
	tx, err := st.DB().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := handler(t.Context(), tx, e); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func want(t *testing.T, st *sqlite.Store, query string, want int) {
	t.Helper()
	var got int
	if err := st.DB().QueryRowContext(t.Context(), query).Scan(&got); err != nil || got != want {
		t.Errorf("%s: %d, %v; want %d", query, got, err, want)
	}
}

func TestCreditPayment(t *testing.T) {
	st := open(t, `CREATE TABLE payment (payment_no TEXT PRIMARY KEY, customer TEXT, amount INTEGER)`,
		`CREATE TABLE account (customer TEXT PRIMARY KEY, points INTEGER)`, `INSERT INTO account VALUES ('anna', 0)`)
	for _, id := range []string{"e-1", "e-1", "e-2"} { // the third is another report of the same payment
		if err := handle(t, st, CreditPayment, waybill.Event{ID: id, Data: []byte(`{"paymentNo":"P-1","customer":"anna","amount":5}`)}); err != nil {
			t.Fatal(err)
		}
	}
	want(t, st, `SELECT points FROM account`, 5)
	if err := handle(t, st, CreditPayment, waybill.Event{ID: "e-3", Data: []byte(`{"paymentNo":"P-1","customer":"anna","amount":6}`)}); !errors.Is(err, guard.ErrConflict) {
		t.Errorf("another amount: %v, want a conflict", err)
	}
}

func TestMarkPaid(t *testing.T) {
	st := open(t, `CREATE TABLE orders (id TEXT PRIMARY KEY, status TEXT, version INTEGER)`, `CREATE TABLE shipment (order_id TEXT)`,
		`INSERT INTO orders VALUES ('O-1', 'CREATED', 1), ('O-2', 'CANCELLED', 2)`)
	for range 3 {
		if err := handle(t, st, MarkPaid, waybill.Event{AggregateID: "O-1"}); err != nil {
			t.Fatal(err)
		}
	}
	want(t, st, `SELECT count(*) FROM shipment`, 1)
	if err := handle(t, st, MarkPaid, waybill.Event{AggregateID: "O-2"}); !errors.Is(err, guard.ErrState) {
		t.Errorf("a cancelled order: %v, want it refused", err)
	}
}

func TestTakeOne(t *testing.T) {
	st := open(t, `CREATE TABLE stock (sku TEXT PRIMARY KEY, pieces INTEGER, version INTEGER)`, `INSERT INTO stock VALUES ('S-1', 1, 7)`)
	if err := handle(t, st, TakeOne, waybill.Event{AggregateID: "S-1"}); err != nil {
		t.Fatal(err)
	}
	want(t, st, `SELECT pieces + version FROM stock`, 8)
	if err := handle(t, st, TakeOne, waybill.Event{AggregateID: "S-1"}); !errors.Is(err, errSoldOut) {
		t.Errorf("%v, want it sold out", err)
	}
}

func TestKeepNewest(t *testing.T) {
	st := open(t, `CREATE TABLE profile (customer TEXT PRIMARY KEY, version INTEGER, name TEXT, city TEXT)`)
	for _, version := range []int64{1, 3, 2, 3, 1} {
		e := waybill.Event{AggregateID: "anna", AggregateVersion: version, Data: []byte(`{"name":"Anna","city":"` + string(rune('A'+version)) + `"}`)}
		if err := handle(t, st, KeepNewest, e); err != nil {
			t.Fatal(err)
		}
	}
	want(t, st, `SELECT count(*) FROM profile WHERE version = 3 AND city = 'D'`, 1)
}

func TestListen(t *testing.T) {
	st := open(t, `CREATE TABLE effect (n INTEGER)`)
	effect := func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), `INSERT INTO effect VALUES (1)`)
		return err
	}
	for range 3 {
		if err := Listen(t.Context(), st.DB(), &waybill.Event{ID: "e-1"}, effect); err != nil {
			t.Fatal(err)
		}
	}
	want(t, st, `SELECT count(*) FROM effect`, 1)
	want(t, st, `SELECT duplicates FROM consumed_event`, 2)
}

func TestVersions(t *testing.T) {
	data, err := Versions()["PaymentReceived"].Upcasts[1]([]byte(`{"paymentNo":"P-1","euros":12}`))
	if err != nil || string(data) != `{"amount":1200,"paymentNo":"P-1"}` {
		t.Errorf("%s, %v", data, err)
	}
}

func TestWithRedis(t *testing.T) {
	config := &inbox.Config{}
	closeClient, err := WithRedis(config, testenv.Redis7(t))
	if err != nil {
		t.Fatal(err)
	}
	defer closeClient()
	id := waybill.NewID()
	if err := config.Prefilter.Remember(t.Context(), "g", []string{id}); err != nil {
		t.Fatal(err)
	}
	if seen, err := config.Prefilter.Seen(t.Context(), "g", []string{id}); err != nil || !seen[0] {
		t.Errorf("seen %v, %v", seen, err)
	}
}

func TestScreen(t *testing.T) {
	b := membroker.New("orders")
	record, err := waybill.Encode(waybill.FormatEnvelope, &waybill.Event{ID: "e-1", Type: "OrderPaid", Topic: "orders", AggregateID: "O-1"})
	if err != nil {
		t.Fatal(err)
	}
	b.Publish(t.Context(), []waybill.Record{record})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var shown []string
	screen, err := Screen(b.Connect(), func(e waybill.Event) { shown = append(shown, e.ID); cancel() })
	if err != nil {
		t.Fatal(err)
	}
	if err := screen.Run(ctx); err != nil || len(shown) != 1 {
		t.Errorf("shown %v, %v", shown, err)
	}
}
