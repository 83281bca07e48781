package mysql_test

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/mysql"
	"github.com/waybillhq/waybill/store/storetest"
)

// A process is frozen after it has locked its leases and before it goes on; its
// connection stays open. Once its lease is over, another may take the lanes.
func TestFrozenProcessDoesNotKeepItsLanes(t *testing.T) {
	onEach(t, func(t *testing.T, s server) {
		dsn := s.freshDatabase(t)
		st := openStore(t, dsn, storetest.Options{})
		thaw := make(chan struct{})
		frozen := make(chan struct{})
		var begun atomic.Bool
		network := "freezing-" + s.name
		driver.RegisterDialContext(network, func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
			return &freezer{Conn: conn, frozen: frozen, thaw: thaw, begun: &begun}, err
		})
		victim, err := mysql.Open(t.Context(), strings.Replace(dsn, "@tcp(", "@"+network+"(", 1), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = victim.Close() }() // its connections are broken
		leases, err := victim.Claim(t.Context(), "victim", time.Second, store.Lanes)
		if err != nil || len(leases) != store.Lanes {
			t.Fatalf("claimed %d lanes: %v", len(leases), err)
		}
		done := make(chan error, 1)
		go func() {
			row := store.SettledChange{Change: store.Change{ID: 1, EventID: "x"}, Outcome: store.StatusSent}
			done <- victim.Apply(t.Context(), store.Guard{Owner: "victim", Lanes: leases}, store.Changes{Settled: []store.SettledChange{row}})
		}()
		select {
		case <-frozen:
		case err := <-done:
			t.Fatalf("the process came to an end before it could be frozen: %v", err)
		}
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
	})
}

// A freezer is a connection that holds back the first statement of all which
// deletes.
type freezer struct {
	net.Conn
	frozen chan struct{} // closed when it begins
	thaw   chan struct{}
	begun  *atomic.Bool
}

func (f *freezer) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("DELETE")) && f.begun.CompareAndSwap(false, true) {
		close(f.frozen)
		<-f.thaw
	}
	return f.Conn.Write(p)
}
