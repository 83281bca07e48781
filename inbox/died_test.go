package inbox

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
)

var errDeadlock = errors.New("deadlock found: the whole transaction was rolled back")

// fragile is a store whose transactions can die as a whole inside of a
// savepoint, as some databases have it.
type fragile struct {
	*memstore.Store
	kill atomic.Bool // the handler sets it, the next transaction control finds it
}

type fragileTx struct {
	store.InboxTx[*memstore.Tx]
	of *fragile
}

func (f *fragile) BeginInbox(ctx context.Context) (store.InboxTx[*memstore.Tx], error) {
	tx, err := f.Store.BeginInbox(ctx)
	if err != nil {
		return nil, err
	}
	return &fragileTx{tx, f}, nil
}

func (tx *fragileTx) die(ctx context.Context) error {
	if !tx.of.kill.CompareAndSwap(true, false) {
		return nil
	}
	_ = tx.Rollback(ctx)
	return errDeadlock
}

func (tx *fragileTx) RollbackTo(ctx context.Context) error {
	if err := tx.die(ctx); err != nil {
		return err
	}
	return tx.InboxTx.RollbackTo(ctx)
}

func (tx *fragileTx) Release(ctx context.Context) error {
	if err := tx.die(ctx); err != nil {
		return err
	}
	return tx.InboxTx.Release(ctx)
}

func TestFailedEventOfABatchIsUndoneAlone(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.publish(ev("k1", 1), ev("k2", 1), ev("k3", 1), ev("k4", 1), ev("k5", 1))
		r.start(failing(map[string]int{"k3/1": forever}), nil)
		r.until("lag 0", func() bool { return r.b.Lag("g", topic) == 0 })
		r.wantHistory(map[string]string{"k1": "1", "k2": "1", "k4": "1", "k5": "1"})
		if rows, _ := r.st.FindConsumed(t.Context(), "k3/1"); len(rows) != 0 {
			t.Errorf("the failed event is marked consumed: %+v", rows)
		}
		if r.said("conflict") != 0 {
			t.Error("the batch was done again")
		}
	})
}

func TestTransactionThatDiesUnderASavepointIsDoneAgainOneByOne(t *testing.T) {
	for _, swallowed := range []bool{true, false} {
		for _, times := range []int{1, 2, forever} {
			name := map[bool]string{true: "swallowed", false: "returned"}[swallowed]
			t.Run(name, func(t *testing.T) {
				bubble(t, func(t *testing.T, r *rig) {
					r.publish(ev("k", 1), ev("k", 2), ev("x", 3), ev("k", 4), ev("k", 5))
					st := &fragile{Store: r.st}
					var left atomic.Int64
					left.Store(int64(times))
					config := r.config()
					config.Gate = GateNone // x begins with version 3
					config.Workers = 1     // one transaction is to have all of them first
					r.startOn(st, r.b.Connect(), func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
						if err := apply(ctx, tx, event); err != nil {
							return err
						}
						if event.Key == "x" && left.Add(-1) >= 0 {
							st.kill.Store(true)
							if !swallowed {
								return errDeadlock
							}
						}
						return nil
					}, config)
					r.until("lag 0", func() bool { return r.b.Lag("g", topic) == 0 })
					if times == forever {
						r.wantHistory(map[string]string{"k": "1 2 4 5"})
						if rows, _ := r.st.FindConsumed(t.Context(), "x/3"); len(rows) != 0 {
							t.Errorf("the event is marked consumed: %+v", rows)
						}
						r.after(time.Hour)
						r.wantHeld("x/3 DEAD 5")
					} else {
						r.wantHistory(map[string]string{"k": "1 2 4 5", "x": "3"})
						r.wantHeld()
					}
				})
			})
		}
	}
}

func TestCommitThatFailsForOneEventIsBlamedOnIt(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		// As a deferred constraint does: the commit of any transaction that has
		// the event fails.
		var poisoned atomic.Bool
		r.st.SetError(func(op string) error {
			switch op {
			case "begin inbox":
				poisoned.Store(false)
			case "commit":
				if poisoned.Load() {
					return errors.New("constraint violated")
				}
			}
			return nil
		})
		r.publish(ev("a", 1), ev("p", 1), ev("b", 1))
		config := r.config()
		config.Workers = 1 // the transactions share what is said of them
		run := r.start(func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
			if event.Key == "p" {
				poisoned.Store(true)
			}
			return apply(ctx, tx, event)
		}, config)
		r.until("lag 0", func() bool { return r.b.Lag("g", topic) == 0 })
		run.mustStop()
		r.wantHistory(map[string]string{"a": "1", "b": "1"})
		r.wantHeld("p/1 RETRY 1")
	})
}

// enders is a store that commits beneath a handler, as a procedure can.
type enders struct {
	*memstore.Store
	end atomic.Bool
}

type enderTx struct {
	store.InboxTx[*memstore.Tx]
	of *enders
}

func (e *enders) BeginInbox(ctx context.Context) (store.InboxTx[*memstore.Tx], error) {
	tx, err := e.Store.BeginInbox(ctx)
	if err != nil {
		return nil, err
	}
	return &enderTx{tx, e}, nil
}

func (tx *enderTx) Sound() error {
	if !tx.of.end.CompareAndSwap(true, false) {
		return tx.InboxTx.Sound()
	}
	return errors.Join(store.ErrEnded, tx.Commit(context.Background()))
}

// What was marked for events that have not run must not stay marked, and nobody
// knows what became of the event whose handler did it.
func TestHandlerThatEndsTheTransactionLosesNoEvent(t *testing.T) {
	for name, answer := range map[string]error{"content": nil, "failed": errBoom} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.publish(ev("k1", 1), ev("k2", 1), ev("k3", 1), ev("k4", 1), ev("k4", 2), ev("k5", 1))
				st := &enders{Store: r.st}
				config := r.config()
				config.Workers = 1
				r.startOn(st, r.b.Connect(), func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
					if event.Key == "k3" {
						st.end.Store(true)
						return answer
					}
					return apply(ctx, tx, event)
				}, config)
				r.until("lag 0", func() bool { return r.b.Lag("g", topic) == 0 })
				r.wantHistory(map[string]string{"k1": "1", "k2": "1", "k4": "1 2", "k5": "1"})
				held := r.heldRows()
				if len(held) != 1 || held[0].Event.ID != "k3/1" || held[0].State != store.HeldDead {
					t.Errorf("held: %+v, want k3/1 parked", held)
				}
			})
		})
	}
}
