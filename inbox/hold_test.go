package inbox

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
)

// failing fails the events of these ids for a number of times, after it wrote
// their effect.
func failing(times map[string]int) Handler[*memstore.Tx] {
	var mu sync.Mutex // events of several keys are handled side by side
	return func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
		if err := apply(ctx, tx, event); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if times[event.ID] > 0 {
			times[event.ID]--
			return fmt.Errorf("%w %s", errBoom, event.ID)
		}
		return nil
	}
}

const forever = 1 << 30

func TestFailingEventDelaysItsKeyAlone(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		// One partition for all, so that the position has to pass the failed event.
		r.publish(ev("k1", 1), ev("k1", 2), ev("k2", 1), ev("k1", 3), ev("k2", 2), ev("k3", 1))
		r.start(failing(map[string]int{"k1/1": forever}), nil)
		r.until("lag 0", func() bool { return r.b.Lag("g", topic) == 0 })
		r.wantHistory(map[string]string{"k2": "1 2", "k3": "1"})
		r.wantHeld("k1/1 RETRY 1", "k1/2 BLOCKED 0", "k1/3 BLOCKED 0")
	})
}

func TestFollowersAreReleasedInOrderOnceTheHeadSucceeds(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.publish(ev("k", 1), ev("k", 2), ev("k", 3))
		r.start(failing(map[string]int{"k/1": 2, "k/3": 1}), nil)
		r.until("lag 0", func() bool { return r.b.Lag("g", topic) == 0 })
		r.publish(ev("k", 4), ev("k", 5))
		r.until("all applied", func() bool { return r.history()["k"] == "1 2 3 4 5" })
		r.wantHistory(map[string]string{"k": "1 2 3 4 5"})
		r.wantHeld()
		rows, _ := r.st.FindConsumed(t.Context(), "k/1")
		if len(rows) != 1 || rows[0].Topic != topic || rows[0].Outcome != store.Applied {
			t.Errorf("consumed: %+v", rows)
		}
	})
}

func TestHeldEventsOfOneAggregateAreReleasedByVersion(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		other := ev("k", 1)
		other.ID, other.AggregateID = "other/1", "other"
		first := ev("k", 9)
		first.AggregateID, first.ID = "poison", "poison/9"
		r.publish(first, ev("k", 3), other, ev("k", 1), ev("k", 2))
		var ids []string
		fail := failing(map[string]int{"poison/9": 1})
		r.start(func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
			ids = append(ids, event.ID)
			return fail(ctx, tx, event)
		}, r.ungated())
		r.until("all applied", func() bool { return len(r.st.Rows("count")) == 5 })
		want := []string{"poison/9", "poison/9", "k/1", "other/1", "k/2", "k/3"}
		if !slices.Equal(ids, want) {
			t.Errorf("handled: got %v, want %v", ids, want)
		}
	})
}

func TestScheduleEndsDead(t *testing.T) {
	for _, onDead := range []OnDead{Hold, Continue} {
		t.Run(string(onDead), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.publish(ev("k", 1), ev("k", 2))
				began := time.Now()
				var at []time.Duration
				config := r.config()
				config.OnDead = onDead
				fail := failing(map[string]int{"k/1": forever})
				run := r.start(func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
					if event.ID == "k/1" {
						at = append(at, time.Since(began).Round(100*time.Millisecond))
					}
					return fail(ctx, tx, event)
				}, config)
				r.after(5 * time.Minute)
				r.wantHeld("k/1 RETRY 4", "k/2 BLOCKED 0")
				r.after(2 * time.Hour)
				want := []time.Duration{0, 1 * time.Second, 6 * time.Second, 36 * time.Second, 336 * time.Second}
				if !slices.Equal(at, want) {
					t.Errorf("attempts at %v, want %v", at, want)
				}
				row := r.heldRows()[0]
				if row.FirstErr != "boom k/1" || row.LastErr != "boom k/1" {
					t.Errorf("errors of the dead event: %q, %q", row.FirstErr, row.LastErr)
				}
				if h := run.Health(); h.State != Yellow || h.Held.Dead != 1 || h.String() != "yellow (dead: 1 events are DEAD: retry or skip them)" {
					t.Errorf("health with a dead event: %+v", h)
				}
				r.publish(ev("k", 3))
				r.until("lag 0", func() bool { return r.b.Lag("g", topic) == 0 })
				r.after(time.Minute)
				if onDead == Hold {
					r.wantHeld("k/1 DEAD 5", "k/2 BLOCKED 0", "k/3 BLOCKED 0")
					r.wantHistory(map[string]string{})
				} else {
					r.wantHeld("k/1 DEAD 5")
					r.wantHistory(map[string]string{"k": "2 3"})
				}
			})
		})
	}
}

func TestFollowersGoOnWhenADeadEventIsRemoved(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.publish(ev("k", 1), ev("k", 2))
		r.start(func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
			if event.AggregateVersion == 1 {
				return Dead(errBoom)
			}
			return apply(ctx, tx, event)
		}, r.ungated())
		r.until("held", func() bool { return len(r.held()) == 2 })
		r.wantHeld("k/1 DEAD 1", "k/2 BLOCKED 0")
		tx, err := r.st.BeginInbox(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := tx.LockKey(t.Context(), "g", store.HeldKeyRef{Topic: topic, Key: "k"}); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.DeleteHeld(t.Context(), "g", "k/1"); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.after(2 * time.Second)
		r.wantHistory(map[string]string{"k": "2"})
		r.wantHeld()
	})
}

// What an operator's retry leaves: several due at once in one key.
func TestSeveralDueEventsOfOneKeyAreTriedOneAtATime(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		tx, err := r.st.BeginInbox(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for version := int64(1); version <= 3; version++ {
			e := ev("k", version)
			record, _ := waybill.Encode(waybill.FormatEnvelope, &e)
			if _, err := tx.Hold(t.Context(), store.Held{Group: "g", Topic: topic, Key: "k", Event: e, State: store.HeldRetry, Record: record}); err != nil {
				t.Fatal(err)
			}
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.start(failing(map[string]int{"k/1": 1}), nil)
		r.after(500 * time.Millisecond)
		r.wantHeld("k/1 RETRY 1", "k/2 BLOCKED 0", "k/3 BLOCKED 0")
		r.until("applied", func() bool { return r.history()["k"] == "1 2 3" })
	})
}

func TestHandlerSteersItsEvent(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.publish(ev("retry", 1), ev("dead", 1), ev("park", 1), ev("plain", 1))
		run := r.start(func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
			switch event.Key {
			case "retry":
				return fmt.Errorf("wrapped: %w", RetryAfter(42*time.Second, errBoom))
			case "dead":
				return Dead(errBoom)
			case "park":
				return Park(errBoom)
			}
			return apply(ctx, tx, event)
		}, nil)
		r.until("lag 0", func() bool { return r.b.Lag("g", topic) == 0 })
		run.mustStop()
		got := map[string]store.Held{}
		for _, h := range r.heldRows() {
			got[h.Key] = h
		}
		if h := got["retry"]; h.State != store.HeldRetry || h.RetryIn < 40*time.Second || h.RetryIn > 42*time.Second || h.Attempts != 1 {
			t.Errorf("RetryAfter: %+v", h)
		}
		if h := got["dead"]; h.State != store.HeldDead || h.LastErr != "boom" || h.Attempts != 1 {
			t.Errorf("Dead: %+v", h)
		}
		if h := got["park"]; h.State != store.HeldDead || h.LastErr != "parked: boom" || h.Attempts != 0 {
			t.Errorf("Park: %+v", h)
		}
	})
}

func TestSteeringErrorsUnwrapAndMayBeEmpty(t *testing.T) {
	for _, err := range []error{Dead(errBoom), Park(errBoom), RetryAfter(time.Second, errBoom)} {
		if !errors.Is(err, errBoom) {
			t.Errorf("%v does not wrap its cause", err)
		}
	}
	for _, err := range []error{Dead(nil), Park(nil), RetryAfter(time.Second, nil)} {
		if err.Error() == "" {
			t.Error("an error without text")
		}
	}
}

func TestPanicIsAFailureWithABoundedStack(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.publish(ev("a", 1), ev("b", 1), ev("c", 1))
		var deep func(n int)
		deep = func(n int) {
			if n == 0 {
				panic("too deep")
			}
			deep(n - 1)
		}
		run := r.start(func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
			switch event.Key {
			case "a":
				deep(5000)
			case "c":
				runtime.Goexit()
			}
			return apply(ctx, tx, event)
		}, nil)
		r.until("lag 0", func() bool { return r.b.Lag("g", topic) == 0 })
		run.mustStop()
		r.wantHistory(map[string]string{"b": "1"})
		for _, h := range r.heldRows() {
			switch h.Key {
			case "a":
				if !strings.Contains(h.LastErr, "too deep") || !strings.Contains(h.Stack, "TestPanicIsAFailureWithABoundedStack") || len(h.Stack) > maxStack {
					t.Errorf("panic: %q, stack of %d bytes", h.LastErr, len(h.Stack))
				}
			case "c":
				if h.State != store.HeldRetry {
					t.Errorf("goexit: %+v", h)
				}
			}
		}
	})
}

// The handler runs over its time, ignores its context, and then goes on writing.
func TestHandlerThatIgnoresItsTimeOutIsNeverAppliedLate(t *testing.T) {
	for _, fromHeld := range []bool{false, true} {
		t.Run(fmt.Sprintf("held %v", fromHeld), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.publish(ev("a", 1), ev("slow", 1), ev("slow", 2), ev("b", 1))
				free := make(chan struct{})
				late := make(chan error, 1)
				runs := 0
				config := r.config()
				config.HandlerTimeout = 3 * time.Second
				stuckAt := 1
				if fromHeld {
					stuckAt = 2
				}
				timedOut := 0
				config.Events.Handled = func(i HandledInfo) {
					if i.TimedOut {
						timedOut++
					}
				}
				r.start(func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
					if event.ID == "slow/1" {
						switch runs++; {
						case runs == stuckAt:
							_ = apply(context.WithoutCancel(ctx), tx, event)
							<-free
							late <- tx.Set(context.WithoutCancel(ctx), "late", "slow", "written")
							return nil
						case runs < stuckAt:
							return errBoom
						}
					}
					return apply(ctx, tx, event)
				}, config)
				r.until("lag 0", func() bool { return r.b.Lag("g", topic) == 0 })
				r.after(10 * time.Second)
				close(free)
				if err := <-late; err == nil {
					t.Error("the late write was accepted")
				}
				r.until("applied", func() bool { return r.history()["slow"] == "1 2" })
				r.wantHistory(map[string]string{"a": "1", "b": "1", "slow": "1 2"})
				if rows := r.st.Rows("late"); len(rows) != 0 {
					t.Errorf("written late: %v", rows)
				}
				if timedOut != 1 {
					t.Errorf("time-outs told: got %d, want 1", timedOut)
				}
			})
		})
	}
}

func TestHandlerThatHeedsItsTimeOutFailsAlone(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.publish(ev("a", 1), ev("slow", 1), ev("a", 2))
		run := r.start(func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
			if event.Key == "slow" {
				<-ctx.Done()
				return ctx.Err()
			}
			return apply(ctx, tx, event)
		}, nil)
		r.until("lag 0", func() bool { return r.b.Lag("g", topic) == 0 })
		run.mustStop()
		r.wantHistory(map[string]string{"a": "1 2"})
		if r.said("conflict") != 0 {
			t.Error("the batch was done again")
		}
		if h := r.heldRows(); len(h) != 1 || !strings.Contains(h[0].LastErr, ErrHandlerTimeout.Error()) {
			t.Errorf("held: %+v", h)
		}
	})
}

func TestHandlersChangesToItsEventAreNotHeld(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e := ev("a", 1)
		record, err := waybill.Encode(waybill.FormatRaw, &e) // its data is the record's value
		if err != nil {
			t.Fatal(err)
		}
		r.publishRecords(record)
		runs := 0
		r.start(func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
			if string(event.Data) != string(e.Data) {
				t.Errorf("data: got %q, want %q", event.Data, e.Data)
			}
			copy(event.Data, "garbage")
			if runs++; runs == 1 {
				return errBoom
			}
			return apply(ctx, tx, event)
		}, nil)
		r.until("applied", func() bool { return r.history()["a"] == "1" })
	})
}

func TestReleaseOrder(t *testing.T) {
	at := func(id string, version int64) store.Held {
		return store.Held{Event: waybill.Event{ID: id, AggregateID: id[:1], AggregateVersion: version}}
	}
	got := releaseOrder([]store.Held{at("a3", 3), at("b1", 1), at("a0", 0), at("a1", 1), at("b0", 0), at("a2", 2)})
	var ids []string
	for _, h := range got {
		ids = append(ids, h.Event.ID)
	}
	if want := []string{"a1", "b1", "a0", "a2", "b0", "a3"}; !slices.Equal(ids, want) {
		t.Errorf("got %v, want %v", ids, want)
	}
}
