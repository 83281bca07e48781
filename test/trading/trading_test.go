package trading

import (
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybillhq/waybill/examples/trading/chain"
	"github.com/waybillhq/waybill/test/lab"
)

var (
	events   = flag.Int("trading.events", 20_000, "events that each pair of database and broker commits")
	kills    = flag.Int("trading.kills", 4, "consumers to kill, one every few seconds")
	delayed  = flag.Float64("trading.delayed", 0.01, "share of the records that come late")
	patience = flag.Duration("trading.patience", 8*time.Minute, "how long to wait for the last effect")
)

const (
	amendments = 7 // of an order, so that each has ten events with its fulfilment
	poisonEach = 100
	buyers     = 24
)

func TestChainOnPostgresAndKafka(t *testing.T) { t.Parallel(); trade(t, "postgres15") }
func TestChainOnMySQLAndKafka(t *testing.T)    { t.Parallel(); trade(t, "mysql9") }

func trade(t *testing.T, kind string) {
	began := time.Now()
	w := newTown(t, kind, *delayed)
	processes := []*lab.Process{w.start(), w.start()}
	// An order with poison is not fulfilled, and so has one event less.
	orders := max(*events*poisonEach/((amendments+3)*poisonEach-1)+1, poisonEach)

	var buying sync.WaitGroup
	buying.Go(func() { w.buy(orders) })
	w.torment(*kills, processes)
	buying.Wait()
	w.ofShop = w.effects()
	w.waitFor("everything sent", func() bool {
		return number(t, w.shopDB, `SELECT COUNT(*) FROM outbox_pending`) == 0 && number(t, w.back, `SELECT COUNT(*) FROM outbox_pending`) == 0 &&
			w.mischief[0].idle() && w.mischief[1].idle()
	})
	w.waitFor("everything consumed", func() bool { return w.consumed() >= w.wanted() && w.settled() })
	took := time.Since(began)
	for _, p := range processes {
		w.stop(p)
	}
	w.verify(orders)

	var all, again, held int
	for _, m := range w.mischief {
		a, b, c := m.counts()
		all, again, held = all+a, again+b, held+c
	}
	calls, grants := w.coupons.Count()
	t.Logf("%s: %d orders, %d events sent, %d of them again and %d late, %d kills; %d effects, %d duplicates absorbed; %d coupons by %d calls; %.1f s",
		w, orders, all, again, held, *kills, w.consumed(), number(t, w.back, `SELECT COALESCE(SUM(duplicates), 0) FROM consumed_event`), grants, calls, took.Seconds())
	if again == 0 || *delayed > 0 && held == 0 {
		t.Error("there was too little mischief for this to prove anything")
	}
}

func (w *town) waitFor(what string, condition func() bool) {
	w.t.Helper()
	late := time.NewTimer(*patience)
	defer late.Stop()
	again := time.NewTicker(200 * time.Millisecond)
	defer again.Stop()
	for !condition() {
		select {
		case <-late.C:
			w.t.Errorf("never came: %s; consumed %d of %d", what, w.consumed(), w.wanted())
			return
		case <-again.C:
		}
	}
}

// buy sends orders through the shop. One of poisonEach gets an amendment that no
// consumer can stand; all are paid, and the provider calls twice.
func (w *town) buy(orders int) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range buyers {
		all.Go(func() {
			for n := int(next.Add(1)); n <= orders; n = int(next.Add(1)) {
				if err := w.order(n); err != nil {
					w.t.Errorf("order %d: %v", n, err)
					return
				}
			}
		})
	}
	all.Wait()
}

func (w *town) order(n int) error {
	ctx := w.t.Context()
	o := chain.Order{ID: fmt.Sprintf("O-%06d", n), Customer: fmt.Sprintf("C-%06d", n), Amount: int64(n)}
	if err := w.shop.Place(ctx, o); err != nil {
		return err
	}
	var changes []chain.Order
	for i := range amendments {
		o.Amount += int64(i + 1)
		o.Poison = n%poisonEach == 0 && i == 3
		changes = append(changes, o)
	}
	for _, some := range [][]chain.Order{changes[:3], changes[3:]} {
		if err := w.shop.Amend(ctx, some...); err != nil {
			return err
		}
	}
	payment := chain.Payment{No: "P-" + o.ID, OrderID: o.ID, Amount: o.Amount}
	for i := range 2 {
		first, err := w.shop.Pay(ctx, payment)
		if err != nil {
			return err
		}
		if first != (i == 0) {
			return fmt.Errorf("call %d: first is %v", i+1, first)
		}
	}
	return nil
}
