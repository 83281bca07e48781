package strategy

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/inbox/guard"
)

var (
	payments = guard.Unique{Table: "payment", Key: []string{"payment_no"}, Same: []string{"amount", "note"}}
	orders   = guard.Machine{
		Table: "orders", Key: "id", Status: "status", Version: "version",
		Moves: map[string][]string{"CREATED": {"PAYING", "CANCELLED"}, "PAYING": {"PAID", "CANCELLED"}, "PAID": {"SHIPPED"}},
	}
	work     = guard.Fulfilment("orders", "id", "status", "version")
	accounts = guard.Versioned{Table: "account", Key: "id", Version: "version"}
)

func TestGuards(t *testing.T) {
	eachDatabase(t, map[string]func(t *testing.T, d *database){
		"a business key is taken once":     businessKeyIsTakenOnce,
		"a status moves once":              statusMovesOnce,
		"an optimistic lock lets one win":  optimisticLockLetsOneWriterWin,
		"the newest state wins":            newestStateWins,
		"a consumed event is handled once": consumedEventIsHandledOnce,
	})
}

// together runs do in several transactions at once, and counts those that
// report true; some may lose to the others with an error.
func together(t *testing.T, d *database, do func(ctx context.Context, tx guard.Tx) (bool, error)) (yes, failed int64) {
	t.Helper()
	var trues, errs atomic.Int64
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			did := false
			err := d.within(t.Context(), func(tx guard.Tx) (err error) {
				did, err = do(t.Context(), tx)
				return err
			})
			switch {
			case err != nil:
				errs.Add(1)
				t.Logf("one of them: %v", err)
			case did:
				trues.Add(1)
			}
		})
	}
	wg.Wait()
	return trues.Load(), errs.Load()
}

func businessKeyIsTakenOnce(t *testing.T, d *database) {
	ctx := t.Context()
	d.execute(`INSERT INTO account (id, points, version) VALUES ('a', 0, 1)`)
	pay := func(number string, amount int64) (first bool, err error) {
		err = d.within(ctx, func(tx guard.Tx) error {
			first, err = payments.Insert(ctx, tx, guard.Row{"payment_no": number, "order_id": "O-1", "amount": amount, "note": nil})
			if err != nil || !first {
				return err
			}
			return addPoints(ctx, tx, "a", amount)
		})
		return first, err
	}
	// The provider calls three times, each time as another event.
	for i, want := range []bool{true, false, false} {
		if first, err := pay("P-1", 10); err != nil || first != want {
			t.Errorf("call %d: first %v, %v; want %v", i+1, first, err, want)
		}
	}
	if n := d.number(`SELECT points FROM account`); n != 10 {
		t.Errorf("%d points, want 10", n)
	}
	if _, err := pay("P-1", 11); !errors.Is(err, guard.ErrConflict) {
		t.Errorf("the same number with another amount: %v, want a conflict", err)
	}
	yes, failed := together(t, d, func(ctx context.Context, tx guard.Tx) (bool, error) {
		return payments.Insert(ctx, tx, guard.Row{"payment_no": "P-2", "order_id": "O-1", "amount": 5})
	})
	if yes != 1 || failed != 0 {
		t.Errorf("of six at once %d were first and %d failed, want 1 and 0", yes, failed)
	}

	// Not protected: an effect that does not ask whether the key was new.
	for range 2 {
		d.must(func(tx guard.Tx) error {
			_, err := payments.Insert(ctx, tx, guard.Row{"payment_no": "P-3", "order_id": "O-1", "amount": 100})
			return errors.Join(err, addPoints(ctx, tx, "a", 100))
		})
	}
	if n := d.number(`SELECT points FROM account`); n != 210 {
		t.Errorf("%d points, want 210: the key guards its own row and what asks for it", n)
	}
}

func statusMovesOnce(t *testing.T, d *database) {
	ctx := t.Context()
	d.execute(`INSERT INTO orders (id, status, version) VALUES ('O-1', 'PAYING', 2), ('O-2', 'CANCELLED', 3), ('O-3', 'PAYING', 1), ('W-1', 'INIT', 1)`)
	move := func(m guard.Machine, id, from, to string) (step guard.Step, err error) {
		err = d.within(ctx, func(tx guard.Tx) error {
			step, err = m.Move(ctx, tx, id, from, to, guard.Row{"paid_by": "P-1"})
			return err
		})
		return step, err
	}
	for i := range 3 {
		step, err := move(orders, "O-1", "PAYING", "PAID")
		if want := (guard.Step{Moved: i == 0, Status: "PAID", Version: 3}); err != nil || step != want {
			t.Errorf("payment %d: %+v, %v; want %+v", i+1, step, err, want)
		}
	}
	if n := d.number(`SELECT COUNT(*) FROM orders WHERE id = 'O-1' AND paid_by = 'P-1' AND version = 3`); n != 1 {
		t.Error("the row was not changed exactly once, with its further column")
	}
	if _, err := move(orders, "O-1", "PAID", "SHIPPED"); err != nil {
		t.Fatal(err)
	}
	if step, err := move(orders, "O-1", "PAYING", "PAID"); err != nil || step.Moved || step.Status != "SHIPPED" {
		t.Errorf("a payment again after the shipment: %+v, %v; want it passed over", step, err)
	}
	if step, err := move(orders, "O-2", "PAYING", "PAID"); !errors.Is(err, guard.ErrState) || step.Moved {
		t.Errorf("the payment of a cancelled order: %+v, %v; want it refused", step, err)
	}
	if _, err := move(orders, "O-9", "PAYING", "PAID"); !errors.Is(err, guard.ErrMissing) {
		t.Errorf("the payment of no order: %v, want it missing", err)
	}
	if _, err := move(orders, "O-3", "PAYING", "SHIPPED"); !errors.Is(err, guard.ErrState) {
		t.Errorf("a move that there is not: %v, want it refused", err)
	}
	yes, failed := together(t, d, func(ctx context.Context, tx guard.Tx) (bool, error) {
		step, err := orders.Move(ctx, tx, "O-3", "PAYING", "PAID", nil)
		return step.Moved, err
	})
	if yes != 1 || failed != 0 {
		t.Errorf("of six at once %d moved and %d failed, want 1 and 0", yes, failed)
	}

	for _, way := range [][2]string{{"INIT", "DOING"}, {"DOING", "FAILED"}, {"FAILED", "DOING"}, {"DOING", "DONE"}} {
		if step, err := move(work, "W-1", way[0], way[1]); err != nil || !step.Moved {
			t.Errorf("fulfilment from %s to %s: %+v, %v", way[0], way[1], step, err)
		}
	}
	// Not protected: a status that is left and reached again.
	d.execute(`UPDATE orders SET status = 'FAILED' WHERE id = 'W-1'`)
	if step, err := move(work, "W-1", "FAILED", "DOING"); err != nil || !step.Moved {
		t.Errorf("a second failure looks to a repetition like the first: %+v, %v", step, err)
	}
}

func optimisticLockLetsOneWriterWin(t *testing.T, d *database) {
	ctx := t.Context()
	d.execute(`INSERT INTO account (id, points, version) VALUES ('a', 10, 1)`)
	spend := func(seen, left int64) error {
		return d.within(ctx, func(tx guard.Tx) error {
			return accounts.Update(ctx, tx, "a", seen, guard.Row{"points": left})
		})
	}
	if err := spend(1, 4); err != nil {
		t.Fatal(err)
	}
	if err := spend(1, 7); !errors.Is(err, guard.ErrConflict) {
		t.Errorf("a second writer that had read the same version: %v, want a conflict", err)
	}
	if n := d.number(`SELECT points * 100 + version FROM account`); n != 402 {
		t.Errorf("points and version %d, want 402", n)
	}

	// Not protected: the same event, handled again from the beginning.
	for range 2 {
		d.must(func(tx guard.Tx) error {
			var points, version int64
			if err := tx.Scan(ctx, `SELECT points, version FROM account WHERE id = ?`, []any{"a"}, []any{&points, &version}); err != nil {
				return err
			}
			return accounts.Update(ctx, tx, "a", version, guard.Row{"points": points + 5})
		})
	}
	if n := d.number(`SELECT points FROM account`); n != 14 {
		t.Errorf("%d points, want 14: the lock knows writers, and no events", n)
	}
}

func newestStateWins(t *testing.T, d *database) {
	ctx := t.Context()
	put := func(id string, version, points int64) (written bool) {
		d.must(func(tx guard.Tx) (err error) {
			written, err = accounts.Put(ctx, tx, id, version, guard.Row{"points": points})
			return err
		})
		return written
	}
	for _, c := range []struct {
		version int64
		want    bool
	}{{1, true}, {3, true}, {2, false}, {3, false}, {1, false}, {4, true}} {
		if got := put("a", c.version, c.version*10); got != c.want {
			t.Errorf("version %d: written %v, want %v", c.version, got, c.want)
		}
	}
	if n := d.number(`SELECT points * 100 + version FROM account`); n != 4004 {
		t.Errorf("points and version %d, want 4004", n)
	}
	var version atomic.Int64
	_, failed := together(t, d, func(ctx context.Context, tx guard.Tx) (bool, error) {
		v := version.Add(1)
		return accounts.Put(ctx, tx, "b", v, guard.Row{"points": v})
	})
	if n := d.number(`SELECT points * 100 + version FROM account WHERE id = 'b'`); failed != 0 || n != 606 {
		t.Errorf("six versions at once: %d failed, points and version %d, want 0 and 606", failed, n)
	}
	// Not protected: what version 2 alone said. Its points of 20 were never there.
}

func consumedEventIsHandledOnce(t *testing.T, d *database) {
	ctx := t.Context()
	d.execute(`INSERT INTO account (id, points, version) VALUES ('a', 0, 1)`)
	errBoom := errors.New("boom")
	handle := func(group, id string, fail error) error {
		return d.within(ctx, func(tx guard.Tx) error {
			e := waybill.Event{ID: id, Type: "OrderPaid", AggregateType: "order", AggregateID: "O-1", AggregateVersion: 2, Topic: "orders"}
			first, err := guard.Consumed{Group: group}.First(ctx, tx, &e)
			if err != nil || !first {
				return err
			}
			return errors.Join(addPoints(ctx, tx, "a", 1), fail)
		})
	}
	if err := handle("points", "e-1", errBoom); !errors.Is(err, errBoom) {
		t.Fatal(err)
	}
	for range 3 { // after a failure it is new, then it is not
		if err := handle("points", "e-1", nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := d.number(`SELECT points FROM account`); n != 1 {
		t.Errorf("%d points, want 1", n)
	}
	if n := d.number(`SELECT duplicates FROM consumed_event WHERE consumer_group = 'points' AND outcome = 'APPLIED' AND last_duplicate_at IS NOT NULL`); n != 2 {
		t.Errorf("%d duplicates counted, want 2", n)
	}
	if err := handle("notification", "e-1", nil); err != nil {
		t.Fatal(err)
	}
	if n := d.number(`SELECT points FROM account`); n != 2 {
		t.Errorf("%d points, want 2: another group has its own turn", n)
	}
	yes, failed := together(t, d, func(ctx context.Context, tx guard.Tx) (bool, error) {
		return guard.Consumed{Group: "points"}.First(ctx, tx, &waybill.Event{ID: "e-2"})
	})
	if yes != 1 || failed != 0 {
		t.Errorf("of six at once %d were first and %d failed, want 1 and 0", yes, failed)
	}

	// Not protected: one fact under two ids.
	for _, id := range []string{"e-3", "e-3-again"} {
		if err := handle("points", id, nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := d.number(`SELECT points FROM account`); n != 4 {
		t.Errorf("%d points, want 4: the table knows ids, and no facts", n)
	}
}
