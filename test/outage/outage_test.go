package outage

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/postgres"
	"github.com/waybillhq/waybill/test/lab"
)

const (
	topic    = "orders"
	patience = 2 * time.Minute
	darkness = 12 * time.Second
)

func TestRelayOutlivesAnOutageOfPostgreSQL(t *testing.T) {
	direct := lab.Postgres15(t)
	target, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	w := newWire(t, target.Host)
	through := *target
	through.Host = w.address()

	app := open(t, direct) // the application has its own way to the database
	if err := app.Migrate(t.Context(), store.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	writer := outbox.NewWriter(app, nil)
	n := 0
	appendSome := func() {
		tx, err := app.Pool().Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			n++
			if err := writer.Append(t.Context(), tx, waybill.Event{
				ID: fmt.Sprintf("e%04d", n), Type: "T", Topic: topic, AggregateType: "order",
				AggregateID: fmt.Sprintf("k%d", n%5), AggregateVersion: int64(n/5 + 1), Data: []byte("{}"),
			}); err != nil {
				t.Fatal(err)
			}
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	logs := &lab.Output{}
	b := membroker.New(topic)
	r, err := relay.New(open(t, through.String()), b, &relay.Config{
		LeaseTTL: 3 * time.Second, RenewEvery: 500 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(logs, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()

	appendSome()
	until(t, "the first events", func() bool { return len(b.EventIDs(topic)) >= n })
	w.cut(true)
	appendSome()
	until(t, "red", func() bool { return r.Health().State == relay.Red })
	sent := len(b.EventIDs(topic))
	for end := time.Now().Add(darkness); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if got := len(b.EventIDs(topic)); got != sent {
			t.Fatalf("%d records were sent without a database", got-sent)
		}
	}
	if lines := strings.Count(logs.String(), "database unavailable"); lines < 1 || lines > 3 {
		t.Errorf("%d log lines in %v, want 1 to 3:\n%s", lines, darkness, logs)
	}
	w.cut(false)
	until(t, "the rest", func() bool { return len(distinct(b.EventIDs(topic))) >= n })
	until(t, "green", func() bool { return r.Health().State == relay.Green })
	until(t, "an empty queue", func() bool {
		counts, err := app.Counts(t.Context())
		return err == nil && counts.Pending == 0
	})
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run returned %v, want nil", err)
	}
	last, seen := make(map[string]string), make(map[string]bool)
	for _, record := range b.Records(topic) {
		if seen[record.EventID] {
			continue // sent again because its answer could not be settled in time
		}
		seen[record.EventID] = true
		if record.EventID < last[record.Key] {
			t.Errorf("key %s: %s after %s", record.Key, record.EventID, last[record.Key])
		}
		last[record.Key] = record.EventID
	}
	if strings.Contains(logs.String(), target.User.String()) {
		t.Error("the log shows the password")
	}
}

func distinct(ids []string) map[string]bool {
	set := make(map[string]bool)
	for _, id := range ids {
		set[id] = true
	}
	return set
}

func open(t *testing.T, dsn string) *postgres.Store {
	t.Helper()
	st, err := postgres.Open(t.Context(), dsn, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	return st
}

func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	lab.Until(t, patience, what, condition)
}
