package waybilltest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
	"github.com/waybillhq/waybill/waybilltest"
)

// recorder is a testing.TB whose failure is what the test is about.
type recorder struct {
	testing.TB
	failure string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failure = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// failure runs assert and returns how it failed, or "".
func failure(t *testing.T, assert func(t testing.TB)) string {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		assert(r)
	}()
	<-done
	return r.failure
}

func expect(t *testing.T, got string, parts ...string) {
	t.Helper()
	if len(parts) == 0 && got != "" {
		t.Errorf("failed: %s", got)
	}
	for _, part := range parts {
		if !strings.Contains(got, part) {
			t.Errorf("failed with %q, want it to say %q", got, part)
		}
	}
}

func appendEvents(t *testing.T, st *memstore.Store, events ...waybill.Event) {
	t.Helper()
	tx, err := st.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := outbox.NewWriter(st, nil).Append(t.Context(), tx, events...); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func paid(id string, version int64, data string) waybill.Event {
	return waybill.Event{
		ID: id, Type: "OrderPaid", Topic: "orders", AggregateType: "order", AggregateID: "O-1", AggregateVersion: version, Data: []byte(data),
		Headers: map[string]string{"region": "eu"},
	}
}

func TestRequireAppended(t *testing.T) {
	st := memstore.New(nil)
	appendEvents(t, st, paid("e1", 1, `{"total": 1.10, "n": 9007199254740993}`), paid("e2", 2, `{}`), paid("e3", 3, `x`))
	for _, c := range []struct {
		name   string
		wanted []waybill.Event
		says   []string
	}{
		{"by type", []waybill.Event{{Type: "OrderPaid"}}, nil},
		{"by all", []waybill.Event{paid("e2", 2, `{}`)}, nil},
		{"data by value", []waybill.Event{{Data: []byte(`{"n":9007199254740993,"total":1.10}`)}}, nil},
		{"data not by float64", []waybill.Event{{Data: []byte(`{"n":9007199254740992,"total":1.10}`)}}, []string{"not appended"}},
		{"data that is not JSON", []waybill.Event{{Data: []byte("x")}}, nil},
		{"other data", []waybill.Event{{Data: []byte("y")}}, []string{`data="y"`, "id=e1", "id=e3"}},
		{"in order, with gaps", []waybill.Event{{ID: "e1"}, {ID: "e3"}}, nil},
		{"out of order", []waybill.Event{{ID: "e3"}, {ID: "e1"}}, []string{"event 2 of 2", "nothing"}},
		{"each is used once", []waybill.Event{{AggregateVersion: 1}, {ID: "e1"}}, []string{"event 2 of 2", "id=e2"}},
		{"key by default", []waybill.Event{{Key: "O-1"}}, nil},
		{"header", []waybill.Event{{Headers: map[string]string{"region": "eu"}}}, nil},
		{"other header", []waybill.Event{{Headers: map[string]string{"region": "us"}}}, []string{"region:us"}},
		{"empty header that is not there", []waybill.Event{{Headers: map[string]string{"x": ""}}}, []string{"not appended"}},
		{"other time", []waybill.Event{{OccurredAt: time.Unix(0, 0)}}, []string{"not appended"}},
		{"other tenant", []waybill.Event{{TenantID: "acme"}}, []string{"tenant=acme"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var found []waybill.Event
			expect(t, failure(t, func(t testing.TB) { found = waybilltest.RequireAppended(t, st, c.wanted...) }), c.says...)
			if c.says == nil && len(found) != len(c.wanted) {
				t.Errorf("returned %d events", len(found))
			}
		})
	}
}

func TestEventsReadsAllPages(t *testing.T) {
	st := memstore.New(nil)
	for i := range 25 {
		tx, err := st.Begin(t.Context()) // a rollback burns an id
		if err != nil {
			t.Fatal(err)
		}
		if err := st.InsertPlain(t.Context(), tx, 0, paid("gone", 1, "{}")); err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		appendEvents(t, st, paid(fmt.Sprint("e", i), int64(i+1), "{}"))
	}
	events := waybilltest.Events(t, st, store.Filter{Limit: 10, Newest: true})
	if len(events) != 25 || events[0].ID != "e0" || events[24].ID != "e24" {
		t.Errorf("%d events", len(events))
	}
}

func TestRequireNothing(t *testing.T) {
	st := memstore.New(nil)
	expect(t, failure(t, func(t testing.TB) { waybilltest.RequireNothing(t, st, store.Filter{}) }))
	appendEvents(t, st, paid("e1", 1, "{}"))
	expect(t, failure(t, func(t testing.TB) { waybilltest.RequireNothing(t, st, store.Filter{}) }), "1 events", "id=e1")
	expect(t, failure(t, func(t testing.TB) { waybilltest.RequireNothing(t, st, store.Filter{Topic: "other"}) }))
	st.SetError(func(op string) error { return errors.New("away") })
	expect(t, failure(t, func(t testing.TB) { waybilltest.RequireNothing(t, st, store.Filter{}) }), "away")
}

// settle makes one change to the queue as a relay would.
func settle(t *testing.T, st *memstore.Store, change func(store.Row) store.Changes, id string) {
	t.Helper()
	tracked, err := st.Find(t.Context(), store.Filter{EventIDs: []string{id}})
	if err != nil || len(tracked) != 1 || tracked[0].Row == nil {
		t.Fatalf("find %s: %v %v", id, tracked, err)
	}
	owner := waybill.NewID()
	leases, err := st.Claim(t.Context(), owner, time.Hour, store.Lanes)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Apply(t.Context(), store.Guard{Owner: owner, Lanes: leases}, change(*tracked[0].Row)); err != nil {
		t.Fatal(err)
	}
	if err := st.Leave(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
}

func sent(row store.Row) store.Changes {
	return store.Changes{Settled: []store.SettledChange{{Change: store.Change{ID: row.ID, EventID: row.Event.ID}, Outcome: store.StatusSent, Via: "poll"}}}
}

func failed(dead bool) func(row store.Row) store.Changes {
	return func(row store.Row) store.Changes {
		return store.Changes{Failed: []store.FailedChange{{Change: store.Change{ID: row.ID, EventID: row.Event.ID}, Dead: dead, Retries: 12, RetryIn: time.Hour, Error: "too large"}}}
	}
}

func TestAwaitSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New(nil)
		appendEvents(t, st, paid("e1", 1, "{}"), paid("e2", 2, "{}"))
		settle(t, st, sent, "e1")
		expect(t, failure(t, func(t testing.TB) { waybilltest.AwaitSettled(t, st, 0, "e1") }))
		expect(t, failure(t, func(t testing.TB) { waybilltest.AwaitSettled(t, st, time.Second, "e1", "e2", "e3") }),
			"2 of 3", "e2: PENDING, 0 retries", "e3: not in the outbox")

		settle(t, st, failed(false), "e2")
		expect(t, failure(t, func(t testing.TB) { waybilltest.AwaitSettled(t, st, time.Second, "e2") }), "12 retries", "too large")

		go func() {
			time.Sleep(time.Second)
			settle(t, st, sent, "e2")
		}()
		start := time.Now()
		expect(t, failure(t, func(t testing.TB) { waybilltest.AwaitSettled(t, st, 0, "e1", "e2") }))
		if waited := time.Since(start); waited < time.Second || waited > 2*time.Second {
			t.Errorf("waited %v", waited)
		}

		appendEvents(t, st, paid("e4", 4, "{}"))
		settle(t, st, failed(true), "e4")
		start = time.Now()
		expect(t, failure(t, func(t testing.TB) { waybilltest.AwaitSettled(t, st, 0, "e4") }), "e4 is DEAD after 12 attempts: too large")
		if time.Since(start) > 0 {
			t.Error("waited for a DEAD event")
		}
	})
}

func TestAwaitSettledOfAForgetfulRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New(nil)
		appendEvents(t, st, paid("e1", 1, "{}"))
		go func() {
			time.Sleep(time.Second)
			settle(t, st, func(row store.Row) store.Changes { c := sent(row); c.Forget = true; return c }, "e1")
		}()
		expect(t, failure(t, func(t testing.TB) { waybilltest.AwaitSettled(t, st, 0, "e1") }))
	})
}

func TestAwaitSettledOfAnUnqueuedEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New(nil)
		if err := st.Migrate(t.Context(), store.MigrateOptions{NoTrigger: true}); err != nil {
			t.Fatal(err)
		}
		tx, err := st.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := st.InsertPlain(t.Context(), tx, 0, paid("e1", 1, "{}")); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect(t, failure(t, func(t testing.TB) { waybilltest.AwaitSettled(t, st, time.Second, "e1") }), "never queued")
	})
}

func TestAwaitApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New(nil)
		inTx := func(do func(ctx context.Context, tx store.InboxTx[*memstore.Tx]) error) {
			t.Helper()
			tx, err := st.BeginInbox(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(do(t.Context(), tx), tx.Commit(t.Context())); err != nil {
				t.Fatal(err)
			}
		}
		consume := func(group, id string) {
			inTx(func(ctx context.Context, tx store.InboxTx[*memstore.Tx]) error {
				_, err := tx.MarkConsumed(ctx, store.Consumed{Group: group, Event: paid(id, 1, ""), Outcome: store.Applied, Topic: "orders"})
				return err
			})
		}
		hold := func(id string, state store.HeldState) {
			inTx(func(ctx context.Context, tx store.InboxTx[*memstore.Tx]) error {
				_, err := tx.Hold(ctx, store.Held{
					Group: "stock", Topic: "orders", Key: "O-1", Event: paid(id, 1, ""), State: state, Attempts: 5, RetryIn: time.Hour, LastErr: "no stock",
					Record: waybill.Record{EventID: id, Topic: "orders", Key: "O-1"},
				})
				return err
			})
		}
		consume("stock", "e1")
		consume("points", "e2")
		expect(t, failure(t, func(t testing.TB) { waybilltest.AwaitApplied(t, st, "stock", 0, "e1") }))
		expect(t, failure(t, func(t testing.TB) { waybilltest.AwaitApplied(t, st, "stock", time.Second, "e1", "e2") }), "group stock", "1 of 2", "e2: not received")
		hold("e3", store.HeldRetry)
		expect(t, failure(t, func(t testing.TB) { waybilltest.AwaitApplied(t, st, "stock", time.Second, "e3") }), "e3: RETRY, 5 attempts", "no stock")
		hold("e4", store.HeldDead)
		expect(t, failure(t, func(t testing.TB) { waybilltest.AwaitApplied(t, st, "stock", 0, "e4") }), "e4 is DEAD at group stock after 5 attempts: no stock")
		go func() {
			time.Sleep(time.Second)
			consume("stock", "e5")
		}()
		expect(t, failure(t, func(t testing.TB) { waybilltest.AwaitApplied(t, st, "stock", 0, "e5") }))
	})
}

func TestEventLog(t *testing.T) {
	first, second := waybill.NewID(), waybill.NewID()
	events := []waybill.Event{
		{ID: first, Topic: "orders", Type: "OrderPlaced", Key: "O-1", AggregateType: "order", AggregateID: "O-1", AggregateVersion: 1, SchemaVersion: 1, ContentType: "application/json", Data: []byte(`{"total":1.10}`)},
		{ID: second, Topic: "orders", Type: "OrderPaid", Key: "customer 7", TenantID: "acme", AggregateType: "order", AggregateID: "O-1", AggregateVersion: 2, SchemaVersion: 3, Source: "/orders", CorrelationID: waybill.NewID(), CausationID: first, TraceParent: "00-x", Headers: map[string]string{"b": "2 2", "a": ""}, Data: []byte("{\n}")},
		{ID: "acme/order/O-2/1/X", Topic: "t", Type: "X", Key: "k", ContentType: "text/plain", Data: []byte("\xff\"")},
		{ID: first, Topic: "orders", Type: "OrderPlaced", Key: "O-1", AggregateType: "order", AggregateID: "O-1"},
	}
	waybilltest.RequireGolden(t, "events.log", waybilltest.EventLog(events))
}

func TestRequireGolden(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv(waybilltest.EnvUpdate, "")
	golden := func(name, got string) string {
		return failure(t, func(t testing.TB) { waybilltest.RequireGolden(t, name, got) })
	}
	expect(t, golden("a/x.log", "one\n"), "WAYBILL_UPDATE=1 writes it")
	t.Setenv(waybilltest.EnvUpdate, "1")
	expect(t, golden("a/x.log", "one\ntwo\n"))
	t.Setenv(waybilltest.EnvUpdate, "")
	expect(t, golden("a/x.log", "one\ntwo\n"))
	expect(t, golden("a/x.log", "one\n2\n"), "line 2", `got "2"`, `want "two"`)
	expect(t, golden("a/x.log", "one\ntwo"), "line 3", "the end")
	if err := os.WriteFile("testdata/a/x.log", []byte("one\r\ntwo\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	expect(t, golden("a/x.log", "one\ntwo\n"))
}
