package inbox

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
)

// killer is a handler that ends the process at some events: it says so and
// never comes back by itself.
func killer(deadly func(waybill.Event) bool, dying chan string) Handler[*memstore.Tx] {
	return func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
		if deadly(event) {
			dying <- event.ID
			<-ctx.Done()
			return ctx.Err()
		}
		return apply(ctx, tx, event)
	}
}

func TestEventThatKillsTheProcessEndsDead(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.publish(ev("k", 1), ev("k", 2), ev("deadly", 1), ev("k", 3), ev("deadly", 2))
		dying := make(chan string, 1)
		handler := killer(func(e waybill.Event) bool { return e.ID == "deadly/1" }, dying)
		config := r.config()
		config.Grace, config.HandlerTimeout = time.Second, time.Hour
		crashes := 0
		for ; crashes < 10; crashes++ {
			run := r.start(handler, config)
			died := false
			for range 100 {
				select {
				case <-dying:
					died = true
				default:
					r.after(100 * time.Millisecond)
					continue
				}
				break
			}
			if !died {
				break
			}
			r.crash(run)
		}
		// The first was in the middle of a batch and left no mark.
		if want := 1 + 3; crashes != want {
			t.Errorf("crashes: got %d, want %d", crashes, want)
		}
		r.until("lag 0", func() bool { return r.b.Lag("g", topic) == 0 })
		r.wantHistory(map[string]string{"k": "1 2 3"})
		r.wantHeld("deadly/1 DEAD 1", "deadly/2 BLOCKED 0")
		if row := r.heldRows()[0]; !strings.Contains(row.LastErr, ErrHandlerCrash.Error()) {
			t.Errorf("error of the dead event: %q", row.LastErr)
		}
	})
}

// The event is held, and kills the process in its retry; so does one that only
// waited behind another.
func TestHeldEventThatKillsTheProcessEndsDead(t *testing.T) {
	for _, deadly := range []string{"k/1", "k/2"} {
		t.Run(deadly, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.publish(ev("k", 1), ev("k", 2), ev("x", 1))
				dying := make(chan string, 1)
				var failed atomic.Bool
				handler := killer(func(e waybill.Event) bool { return failed.Load() && e.ID == deadly }, dying)
				first := func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
					if event.ID == "k/1" && failed.CompareAndSwap(false, true) {
						return errBoom
					}
					return handler(ctx, tx, event)
				}
				config := r.config()
				config.Grace, config.HandlerTimeout = time.Second, time.Hour
				crashes := 0
				for ; crashes < 10; crashes++ {
					run := r.start(first, config)
					died := false
					for range 6000 {
						select {
						case <-dying:
							died = true
						default:
							r.after(100 * time.Millisecond)
							continue
						}
						break
					}
					if !died {
						break
					}
					r.crash(run)
				}
				if crashes > 6 || crashes < 3 {
					t.Errorf("crashes: got %d", crashes)
				}
				row := r.heldRows()[0]
				if row.Event.ID != deadly || row.State != store.HeldDead || !strings.Contains(row.LastErr, ErrHandlerCrash.Error()) {
					t.Errorf("held: %+v", row)
				}
				want := map[string]string{"x": "1"}
				if deadly == "k/2" {
					want["k"] = "1"
				}
				r.wantHistory(want)
			})
		})
	}
}

func TestCrashMarkIsNotHiddenByEventsThatAreDone(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		// The broker is never told of progress, so all comes again each time.
		r.publish(ev("k", 1), ev("k", 2), ev("deadly", 1))
		dying := make(chan string, 1)
		handler := killer(func(e waybill.Event) bool { return e.Key == "deadly" }, dying)
		config := r.config()
		config.Grace, config.HandlerTimeout = time.Second, time.Hour
		for range 4 {
			run := r.startOn(r.st, uncommitted{r.b.Connect()}, handler, config)
			<-dying
			r.crash(run)
		}
		r.startOn(r.st, uncommitted{r.b.Connect()}, handler, config)
		r.until("dead", func() bool { return len(r.held()) == 1 })
		r.wantHeld("deadly/1 DEAD 1")
		r.wantHistory(map[string]string{"k": "1 2"})
	})
}

func TestCarefulWindowEnds(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		config := r.config()
		config.BatchSize = 3
		began := make(chan string, 1)
		r.publish(ev("k", 1))
		run := r.start(killer(func(waybill.Event) bool { return true }, began), config)
		<-began
		r.crash(run)
		var batches []int
		config.Events.Batch = func(i BatchInfo) { batches = append(batches, i.Events) }
		for version := int64(2); version <= 9; version++ {
			r.publish(ev("k", version))
		}
		r.start(apply, config)
		r.until("lag 0", func() bool { return r.b.Lag("g", topic) == 0 })
		if len(batches) != 5 || batches[2] != 1 || batches[3] != 3 {
			t.Errorf("batches: got %v, want 1 1 1 3 3", batches)
		}
		states, _ := r.st.ListReaders(t.Context(), "g")
		for _, s := range states {
			if s.EventID != "" {
				t.Errorf("a mark is left: %+v", s)
			}
		}
	})
}

// The mark counts processes, not attempts: a database that fails in the careful
// window ends no process.
func TestFailuresOfTheDatabaseAreNotTakenForCrashes(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.publish(ev("k", 1))
		dying := make(chan string, 1)
		config := r.config()
		config.Grace, config.HandlerTimeout = time.Second, time.Hour
		run := r.start(killer(func(waybill.Event) bool { return true }, dying), config)
		<-dying
		r.crash(run)
		r.st.SetError(func(op string) error {
			if op == "savepoint" {
				return errBoom
			}
			return nil
		})
		for range 5 {
			run = r.start(apply, config)
			r.after(10 * time.Second)
			run.mustStop()
		}
		r.st.SetError(nil)
		r.start(apply, config)
		r.until("lag 0", func() bool { return r.b.Lag("g", topic) == 0 })
		r.wantHistory(map[string]string{"k": "1"})
		r.wantHeld()
	})
}

// uncommitted is a subscriber that never gets a position through.
type uncommitted struct{ broker.Subscriber }

type uncommittedSubscription struct{ broker.Subscription }

func (u uncommitted) Subscribe(ctx context.Context, request broker.SubscribeRequest) (broker.Subscription, error) {
	s, err := u.Subscriber.Subscribe(ctx, request)
	return uncommittedSubscription{s}, err
}

func (uncommittedSubscription) Commit(context.Context, []broker.Position) error { return errBoom }
