package postgres_test

import (
	"context"
	"net/url"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill/internal/testenv"
	"github.com/waybillhq/waybill/relay/relaytest"
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
		var dsn string
		if options.Bare || options.Head || options.Names != (store.Names{}) {
			dsn = freshDatabase(t)
		} else {
			dsn = used(t)
		}
		return subject(openStore(t, through(t, dsn), options), options)
	}, Exceptions: storetest.Exceptions{Plans: "plans are the server's, and looked at without the pooler"}}
}

// A relay has no session to itself, and keeps its promises nevertheless.
func TestRelayBehindAPooler(t *testing.T) {
	relaytest.RunShort(t, relayOver(pooled(t, "exec")))
}
