package inbox

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
)

// v2 arrives while v1 is held. First interleaving: the stream has seen v1 held
// and is stopped before it locks the key; v1's retry succeeds; the stream goes on.
func TestRetrySucceedsBetweenTheLookAndTheLock(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start(failing(map[string]int{"k/1": 1}), nil)
		r.publish(ev("k", 1))
		r.until("v1 held", func() bool { return r.b.Lag("g", topic) == 0 })
		var looked, stopped atomic.Bool
		goOn := make(chan struct{})
		r.st.SetError(func(op string) error {
			switch {
			case op == "keys held":
				looked.Store(true)
			case op == "lock key" && looked.Load() && stopped.CompareAndSwap(false, true):
				<-goOn
			}
			return nil
		})
		r.publish(ev("k", 2))
		r.after(100 * time.Millisecond)
		if !stopped.Load() {
			t.Fatal("the stream did not come to the lock")
		}
		r.after(3 * time.Second)
		r.wantHistory(map[string]string{"k": "1"})
		r.wantHeld()
		close(goOn)
		r.after(time.Second)
		r.wantHistory(map[string]string{"k": "1 2"})
		r.wantHeld()
		r.wantSettled()
	})
}

// Second interleaving: v1's retry is in its handler, under the key's lock, when
// the stream looks; the stream waits for the lock.
func TestRetrySucceedsWhileTheStreamWaitsForTheLock(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		entered, goOn := make(chan struct{}, 1), make(chan struct{})
		runs := 0
		r.start(func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
			if event.ID == "k/1" {
				if runs++; runs == 1 {
					return errBoom
				}
				entered <- struct{}{}
				<-goOn
			}
			return apply(ctx, tx, event)
		}, nil)
		r.publish(ev("k", 1))
		<-entered
		r.publish(ev("k", 2))
		r.after(2 * time.Second)
		r.wantHistory(map[string]string{})
		close(goOn)
		r.after(time.Second)
		r.wantHistory(map[string]string{"k": "1 2"})
		r.wantHeld()
		r.wantSettled()
	})
}

// Third interleaving: the stream has the lock and is about to hold v2 when v1's
// retry becomes due and waits for the lock.
func TestRetryBecomesDueWhileTheStreamHoldsTheNext(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start(failing(map[string]int{"k/1": 1}), nil)
		r.publish(ev("k", 1))
		r.until("v1 held", func() bool { return r.b.Lag("g", topic) == 0 })
		goOn := make(chan struct{})
		stopped := false
		r.st.SetError(func(op string) error {
			if op == "hold" && !stopped {
				stopped = true
				<-goOn
			}
			return nil
		})
		r.publish(ev("k", 2))
		r.after(3 * time.Second)
		if !stopped {
			t.Fatal("the stream did not come to the hold")
		}
		r.wantHistory(map[string]string{})
		close(goOn)
		r.after(time.Second)
		r.wantHistory(map[string]string{"k": "1 2"})
		r.wantHeld()
		r.wantSettled()
	})
}

// Two readers have the same events of one key: the first fails v1 and has
// rolled back to its savepoint, which lets go of v1's id, before it holds it.
func TestSecondReaderOfAKeyHoldsNothingTwice(t *testing.T) {
	for _, zombieFails := range []bool{true, false} {
		for _, otherFails := range []bool{true, false} {
			t.Run(fmt.Sprintf("first fails %v, second fails %v", zombieFails, otherFails), func(t *testing.T) {
				bubble(t, func(t *testing.T, r *rig) {
					entered, goOn := make(chan struct{}, 1), make(chan struct{})
					r.publish(ev("k", 1), ev("k", 2))
					zombieRuns := 0
					zombie := r.start(func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
						if event.ID == "k/1" {
							if zombieRuns++; zombieRuns == 1 {
								entered <- struct{}{}
								<-goOn
								if zombieFails {
									return errBoom
								}
							}
						}
						return apply(ctx, tx, event)
					}, nil)
					<-entered
					r.b.ExpireSessions("g")
					otherRuns := 0
					r.start(func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
						if event.ID == "k/1" && otherFails {
							if otherRuns++; otherRuns == 1 {
								return errBoom
							}
						}
						return apply(ctx, tx, event)
					}, nil)
					r.after(2 * time.Second) // the second waits for v1's id
					close(goOn)
					r.until("applied", func() bool { return r.history()["k"] == "1 2" })
					r.until("lag 0", func() bool { return r.b.Lag("g", topic) == 0 })
					r.after(10 * time.Second)
					r.wantHistory(map[string]string{"k": "1 2"})
					r.wantHeld()
					if n := r.said("RETRY k/1"); n > 1 && !(zombieFails && otherFails && n == 2) {
						t.Errorf("v1 was held %d times: %v", n, r.lines())
					}
					zombie.mustStop()
				})
			})
		}
	}
}

// The first reader fails v1 and is stopped before it locks the key; the second
// applies v1 meanwhile. Nothing is left to hold.
func TestFailureOfAnEventThatAnotherReaderAppliedHoldsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		entered, goOn, lock := make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
		r.publish(ev("k", 1))
		r.start(func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
			entered <- struct{}{}
			<-goOn
			return errBoom
		}, nil)
		<-entered
		r.b.ExpireSessions("g")
		var once atomic.Bool
		r.st.SetError(func(op string) error {
			if op == "lock key" && once.CompareAndSwap(false, true) {
				<-lock
			}
			return nil
		})
		r.start(apply, nil)
		close(goOn)
		r.until("applied", func() bool { return r.history()["k"] == "1" })
		close(lock)
		r.after(10 * time.Second)
		r.wantHeld()
		if n := r.said("RETRY"); n != 0 || r.said("duplicate k/1") == 0 {
			t.Errorf("told: %v", r.lines())
		}
	})
}

// The new reader gives v1 up for dead in the moment in which the old one, which
// has lost its partition, applies it.
func TestDeadEventThatAnotherReaderAppliedIsNoLongerHeld(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		tx, err := r.st.BeginInbox(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		e := ev("k", 1)
		record, _ := waybill.Encode(waybill.FormatEnvelope, &e)
		held := store.Held{Group: "g", Topic: topic, Key: "k", Event: e, State: store.HeldDead, Attempts: 1, LastErr: "boom", Record: record}
		if _, err := tx.Hold(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.MarkConsumed(t.Context(), store.Consumed{Group: "g", Event: e, Outcome: store.Applied, Topic: topic}); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.publish(ev("k", 2))
		r.start(apply, nil)
		r.until("applied", func() bool { return r.history()["k"] == "2" })
		r.wantHeld()
	})
}
