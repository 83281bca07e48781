package postgres_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/postgres"
	"github.com/waybillhq/waybill/store/storetest"
)

// A process is frozen after it has locked its leases and before it goes on; its
// connection stays open. Once its lease is over, another may take the lanes.
func TestFrozenProcessDoesNotKeepItsLanes(t *testing.T) {
	dsn := freshSchema(t)
	st := openStore(t, dsn, storetest.Options{})
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // one write for each step
	var frozen atomic.Bool
	thaw := make(chan struct{})
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return &freezer{Conn: conn, frozen: &frozen, thaw: thaw}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	victim, err := postgres.New(pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	const ttl = time.Second
	leases, err := victim.Claim(t.Context(), "victim", ttl, store.Lanes)
	if err != nil || len(leases) != store.Lanes {
		t.Fatalf("claimed %d lanes: %v", len(leases), err)
	}
	frozen.Store(true)
	done := make(chan error, 1)
	go func() {
		row := store.SettledChange{Change: store.Change{ID: 1, EventID: "x"}, Outcome: store.StatusSent}
		done <- victim.Apply(t.Context(), store.Guard{Owner: "victim", Lanes: leases}, store.Changes{Settled: []store.SettledChange{row}})
	}()
	taken := 0
	for deadline := time.Now().Add(2 * time.Minute); taken < store.Lanes && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		got, err := st.Claim(t.Context(), "heir", time.Minute, store.Lanes)
		if err != nil {
			t.Fatal(err)
		}
		taken += len(got)
	}
	if taken != store.Lanes {
		t.Errorf("took %d lanes over, want all %d", taken, store.Lanes)
	}
	close(thaw)
	if err := <-done; err == nil {
		t.Error("the frozen process settled after its lanes were taken")
	}
}

// A freezer is a connection that, while frozen, sends what opens a transaction
// and locks the leases, and holds back what follows.
type freezer struct {
	net.Conn
	frozen *atomic.Bool
	thaw   chan struct{}
	writes atomic.Int64
}

func (f *freezer) Write(p []byte) (int, error) {
	if f.frozen.Load() && f.writes.Add(1) > 2 {
		<-f.thaw
	}
	return f.Conn.Write(p)
}
