package promwaybill_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/inbox"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
	"github.com/waybillhq/waybill/telemetry/promwaybill"
)

func scrape(t *testing.T, registry *prometheus.Registry) string {
	t.Helper()
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	return answer.Body.String()
}

// await scrapes until all lines are there, each a pattern.
func await(t *testing.T, registry *prometheus.Registry, lines ...string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		text := scrape(t, registry)
		missing := ""
		for _, line := range lines {
			if !regexp.MustCompile("(?m)^" + line + "$").MatchString(text) {
				missing = line
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no line %s in:\n%s", missing, text)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func appendEvents(t *testing.T, st *memstore.Store, events ...waybill.Event) {
	t.Helper()
	tx, err := st.Begin(t.Context())
	if err == nil {
		err = outbox.NewWriter(st, nil).Append(t.Context(), tx, events...)
	}
	if err == nil {
		err = tx.Commit(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func order(id, key string, version int64) waybill.Event {
	return waybill.Event{ID: id, Type: "OrderPaid", Topic: "orders", AggregateType: "order", AggregateID: key, AggregateVersion: version, Data: []byte("{}")}
}

func TestEventsAreCountedFromTheQueueToTheHandler(t *testing.T) {
	st, b := memstore.New(nil), membroker.New("orders")
	quiet := slog.New(slog.DiscardHandler)
	registry := prometheus.NewRegistry()
	relayed, consumed := promwaybill.NewRelay(nil), promwaybill.NewConsumer("inventory", nil)

	told := make(chan relay.PublishedInfo, 10)
	r, err := relay.New(st, b, &relay.Config{
		Logger: quiet, MaxAttempts: 2, BackoffMin: time.Millisecond, BackoffMax: time.Millisecond,
		Events: relayed.Events(relay.Events{Published: func(i relay.PublishedInfo) { told <- i }}),
	})
	if err != nil {
		t.Fatal(err)
	}
	handler := func(_ context.Context, _ *memstore.Tx, e waybill.Event) error {
		switch e.ID {
		case "poison":
			return inbox.Dead(errors.New("no such article"))
		case "panics":
			panic("nil map")
		}
		return nil
	}
	p, err := inbox.New(st, b, handler, &inbox.Config{
		Group: "inventory", Topics: []string{"orders"}, Logger: quiet, Schedule: []time.Duration{time.Hour}, CountEvery: 20 * time.Millisecond,
		BatchSize: 1, // no event is handled again because a neighbour failed
		Events:    consumed.Events(inbox.Events{}),
	})
	if err != nil {
		t.Fatal(err)
	}
	consumed.WatchHealth(p.Health)
	registry.MustRegister(relayed, consumed, promwaybill.NewOutbox(st, 0))

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- r.Run(ctx) }()
	go func() { ended <- p.Run(ctx) }()
	defer func() {
		stop()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}()

	b.Refuse("flaky", 1, errors.New("not now"))
	b.Refuse("dead", 2, errors.New("never"))
	appendEvents(t, st, order("good", "k1", 1), order("flaky", "k2", 1), order("dead", "k3", 1), order("poison", "k4", 1), order("panics", "k5", 1))
	await(
		t, registry,
		`waybill_relay_published_total\{topic="orders"\} 4`,
		`waybill_relay_failed_attempts_total\{class=".*",topic="orders"\} 3`,
		`waybill_relay_retries_total\{topic="orders"\} 2`,
		`waybill_relay_dead_total\{topic="orders"\} 1`,
		`waybill_relay_delivery_seconds_count\{topic="orders"\} 4`,
		`waybill_relay_publish_seconds_count\{topic="orders"\} 4`,
		`waybill_relay_lanes_owned 64`,
		`waybill_relay_relays 1`,
		`waybill_relay_in_flight 0`,
		`waybill_relay_leases_lost_total 0`,
		`waybill_relay_stale_writes_total 0`,
		`waybill_outbox_up 1`,
		`waybill_outbox_events\{state="dead"\} 1`,
		`waybill_outbox_events\{state="pending"\} 0`,
		`waybill_outbox_oldest_pending_seconds 0`,
		`waybill_outbox_lanes\{state="owned"\} 64`,
		`waybill_outbox_relays 1`,
		`waybill_consumer_handled_total\{group="inventory",result="ok",topic="orders"\} 2`,
		`waybill_consumer_handled_total\{group="inventory",result="error",topic="orders"\} 1`,
		`waybill_consumer_handled_total\{group="inventory",result="panic",topic="orders"\} 1`,
		`waybill_consumer_handler_seconds_count\{group="inventory",topic="orders"\} 4`,
		`waybill_consumer_settled_total\{group="inventory",outcome="APPLIED",topic="orders"\} 2`,
		`waybill_consumer_dead_letters_total\{group="inventory",topic="orders"\} 1`,
		`waybill_consumer_held\{group="inventory",state="DEAD"\} 1`,
		`waybill_consumer_held\{group="inventory",state="RETRY"\} 1`,
		`waybill_consumer_oldest_unconsumed_seconds\{group="inventory"\} 0`,
		`waybill_consumer_paused\{group="inventory"\} 0`,
		`waybill_consumer_conflicts_total\{group="inventory"\} 0`,
	)
	if len(told) != 4 {
		t.Errorf("the next hooks were told %d times, want 4", len(told))
	}

	// A replay of what is applied is absorbed, and counted.
	if _, err := st.Requeue(t.Context(), store.Action{Actor: "anna", Reason: "test"}, []string{"good"}); err != nil {
		t.Fatal(err)
	}
	await(t, registry, `waybill_consumer_duplicates_total\{group="inventory",topic="orders"\} 1`)
}

// Whoever writes events chooses their topics and keys: neither may fill the
// memory of those who count them.
func TestLabelsStayBounded(t *testing.T) {
	registry := prometheus.NewRegistry()
	config := &promwaybill.Config{Topics: []string{"orders"}, MaxTopics: 3}
	relayed, consumed := promwaybill.NewRelay(config), promwaybill.NewConsumer("g", config)
	registry.MustRegister(relayed, consumed)
	count, handle := relayed.Events(relay.Events{}), consumed.Events(inbox.Events{})
	for i := range 10_000 {
		info := relay.EventInfo{EventID: fmt.Sprint("event-", i), Topic: fmt.Sprint("topic-", i), Key: fmt.Sprint("key-", i)}
		count.Published(relay.PublishedInfo{EventInfo: info})
		count.Failed(relay.FailedInfo{EventInfo: info, Class: "permanent", Err: errors.New(fmt.Sprint("error-", i)), Dead: true})
		handle.Handled(inbox.HandledInfo{Event: waybill.Event{ID: info.EventID, Topic: info.Topic, Key: info.Key}})
	}
	text := scrape(t, registry)
	if n := strings.Count(text, "\n"); n > 400 {
		t.Errorf("%d lines", n)
	}
	for _, want := range []string{`published_total{topic="topic-1"} 1`, `published_total{topic="other"} 9998`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in:\n%s", want, text)
		}
	}
	for _, leak := range []string{"key-", "event-", "error-"} {
		if strings.Contains(text, leak) {
			t.Errorf("%s is in the metrics", leak)
		}
	}
}

func TestADatabaseThatIsAwayIsToldAndNotGuessed(t *testing.T) {
	st := memstore.New(nil)
	st.SetError(func(string) error { return errors.New("connection refused") })
	registry := prometheus.NewRegistry()
	registry.MustRegister(promwaybill.NewOutbox(st, time.Second))
	text := scrape(t, registry)
	if !strings.Contains(text, "waybill_outbox_up 0") || strings.Contains(text, "waybill_outbox_events") {
		t.Errorf("got:\n%s", text)
	}
}
