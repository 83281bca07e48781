package postgres_test

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/storetest"
)

// pooled opens stores by way of a pooler. It takes no search_path from clients, so
// each case has a database, not a schema.
func pooled(t *testing.T, mode string) storetest.Harness[pgx.Tx] {
	door, err := url.Parse(testenv.PgBouncer1(t))
	if err != nil {
		t.Fatal(err)
	}
	through := func(t testing.TB, dsn string) string {
		u, err := url.Parse(dsn)
		if err != nil {
			t.Fatal(err)
		}
		u.Host = door.Host
		return u.String() + "&default_query_exec_mode=" + mode
	}
	var mu sync.Mutex
	var free []string
	take := func(t testing.TB) string {
		mu.Lock()
		defer mu.Unlock()
		var dsn string
		if n := len(free); n > 0 {
			dsn, free = free[n-1], free[:n-1]
		}
		return dsn
	}
	t.Cleanup(func() {
		for _, dsn := range free {
			dropDatabase(t, dsn)
		}
	})
	used := func(t testing.TB) string {
		dsn := take(t)
		if dsn == "" {
			dsn = newDatabase(t)
		}
		t.Cleanup(func() {
			if err := execute(context.WithoutCancel(t.Context()), dsn, emptySQL); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			free = append(free, dsn)
		})
		return dsn
	}
	return storetest.Harness[pgx.Tx]{Open: func(t testing.TB, options storetest.Options) *storetest.Subject[pgx.Tx] {
		dsn := ""
		if options.Bare || options.Names != (store.Names{}) {
			dsn = freshDatabase(t)
		} else {
			dsn = used(t)
		}
		return subject(openStore(t, through(t, dsn), options), options)
	}, Exceptions: storetest.Exceptions{Plans: "plans are the server's, and looked at without the pooler"}}
}

// A relay has no session to itself, and keeps its lanes nevertheless.
func TestRelayBehindAPooler(t *testing.T) {
	s := pooled(t, "exec").Open(t, storetest.Options{})
	var want []string
	for n := range 40 {
		tx, err := s.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var events []waybill.Event
		for k := range 5 {
			e := orderPaid(fmt.Sprintf("%02d-%d", n, k))
			e.AggregateID, e.Key = fmt.Sprint(k), fmt.Sprint(k)
			events = append(events, e)
		}
		results, err := s.Appender.Append(t.Context(), tx, events)
		if err != nil || slices.ContainsFunc(results, func(err error) bool { return err != nil }) {
			t.Fatalf("append: %v, %v", results, err)
		}
		if n%10 == 9 {
			if err := s.Rollback(t.Context(), tx); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := s.Commit(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			want = append(want, e.ID)
		}
	}
	b := membroker.New("orders")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 2)
	for range 2 {
		r, err := relay.New(s.Outbox, b.Connect(), nil)
		if err != nil {
			t.Fatal(err)
		}
		go func() { done <- r.Run(ctx) }()
	}
	until(t, "an empty queue", func() bool {
		counts, err := s.Outbox.Counts(t.Context())
		return err == nil && counts == (store.Counts{})
	})
	stop()
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	got := make(map[string][]string)
	for _, r := range b.Records("orders") {
		got[r.Key] = append(got[r.Key], r.EventID)
	}
	for k := range 5 {
		var of []string
		for _, id := range want {
			if id[len(id)-1:] == fmt.Sprint(k) {
				of = append(of, id)
			}
		}
		if key := fmt.Sprint(k); !slices.Equal(got[key], of) {
			t.Errorf("key %s: sent %v, want %v", key, got[key], of)
		}
	}
}
