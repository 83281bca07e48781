package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
)

// coupons is a service that grants a coupon for each call, or, if it heeds
// keys, for each key.
type coupons struct {
	heedsKeys bool
	answer    func(try int) error // after it has granted; nil means none
	refuse    func(try int) error // before

	mu      sync.Mutex
	tries   map[string]int // by event id
	keys    []string
	granted map[string]int // by event id
}

func (c *coupons) effect() Effect {
	return Effect{Name: "coupon", Idempotent: c.heedsKeys, Call: c.grant}
}

func (c *coupons) grant(_ context.Context, key string, event waybill.Event) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tries == nil {
		c.tries, c.granted = make(map[string]int), make(map[string]int)
	}
	c.tries[event.ID]++
	try := c.tries[event.ID]
	if c.refuse != nil {
		if err := c.refuse(try); err != nil {
			return nil, err
		}
	}
	if !c.heedsKeys || !slices.Contains(c.keys, key) {
		c.granted[event.ID]++
	}
	c.keys = append(c.keys, key)
	if c.answer != nil {
		if err := c.answer(try); err != nil {
			return nil, err
		}
	}
	return []byte("coupon of " + event.ID), nil
}

func (c *coupons) want(t *testing.T, tries, granted int, ids ...string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if c.tries[id] != tries || c.granted[id] != granted {
			t.Errorf("coupons for %s: %d calls, %d granted, want %d and %d", id, c.tries[id], c.granted[id], tries, granted)
		}
	}
}

func (r *rig) effects(e ...Effect) *Config {
	config := r.config()
	config.Effects = e
	return config
}

// applyCoupon is apply, once the coupon is known.
func applyCoupon(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
	result, ok := EffectResult(ctx, "coupon")
	if want := "coupon of " + event.ID; !ok || string(result) != want {
		return Dead(fmt.Errorf("the handler has the result %q, want %q", result, want))
	}
	return apply(ctx, tx, event)
}

func (r *rig) call(eventID string) store.EffectCall {
	r.t.Helper()
	calls, err := r.st.ListEffects(context.Background(), "g", eventID)
	if err != nil || len(calls) != 1 {
		r.t.Fatalf("calls for %s: %+v, %v, want one", eventID, calls, err)
	}
	return calls[0]
}

func (r *rig) applied(n int) func() bool {
	return func() bool { return r.said("APPLIED") == n }
}

func TestEffectIsCalledOnceAndItsResultReachesTheHandler(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		c := &coupons{}
		r.publish(ev("a", 1), ev("b", 1), ev("a", 2))
		r.publish(ev("a", 1), ev("b", 1))
		run := r.start(applyCoupon, r.effects(c.effect()))
		r.until("all applied", r.applied(3))
		r.until("duplicates", func() bool { return r.said("duplicate") == 2 })
		r.wantHistory(map[string]string{"a": "1 2", "b": "1"})
		c.want(t, 1, 1, "a/1", "b/1", "a/2")
		if call := r.call("a/2"); call.State != store.EffectDone || string(call.Result) != "coupon of a/2" {
			t.Errorf("call: %+v, want it DONE with its result", call)
		}
		run.mustStop()
		r.wantSettled()
	})
}

func TestEventsWithoutEffectsRunBesideThoseThatHaveThem(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		c := &coupons{}
		effect := c.effect()
		effect.Types = []string{"OrderPaid"}
		paid := ev("a", 2)
		paid.Type = "OrderPaid"
		r.publish(ev("a", 1), paid, ev("a", 3), ev("b", 1))
		r.start(func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
			if _, ok := EffectResult(ctx, "coupon"); ok != (event.Type == "OrderPaid") {
				return Dead(fmt.Errorf("a %s with a result: %t", event.Type, ok))
			}
			return apply(ctx, tx, event)
		}, r.effects(effect))
		r.until("all applied", r.applied(4))
		r.wantHistory(map[string]string{"a": "1 2 3", "b": "1"})
		c.want(t, 1, 1, "a/2")
		c.want(t, 0, 0, "a/1", "a/3", "b/1")
	})
}

// The service answers with an error after it has granted the coupon.
func TestFailedCallIsRepeatedWithItsKeyIfThatIsHarmless(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		c := &coupons{heedsKeys: true, answer: failTries(2)}
		effect := c.effect()
		n := 0
		effect.Key = func(waybill.Event) string { n++; return fmt.Sprintf("key %d", n) } // the first one counts
		r.publish(ev("a", 1), ev("a", 2))
		r.start(applyCoupon, r.effects(effect))
		r.until("both applied", r.applied(2))
		r.wantHistory(map[string]string{"a": "1 2"})
		c.want(t, 3, 1, "a/1", "a/2")
	})
}

func TestFailedCallIsParkedIfARepetitionMayDoItTwice(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		c := &coupons{answer: failTries(1)}
		r.publish(ev("a", 1), ev("a", 2), ev("b", 1))
		run := r.start(applyCoupon, r.effects(c.effect()))
		r.until("parked", func() bool {
			held := r.held()
			slices.Sort(held)
			return slices.Equal(held, []string{"a/1 DEAD 0", "a/2 BLOCKED 0", "b/1 DEAD 0"})
		})
		r.after(time.Hour)
		c.want(t, 1, 1, "a/1", "b/1")
		c.want(t, 0, 0, "a/2")
		r.wantHistory(map[string]string{})
		for _, part := range []string{"parked:", "coupon", "g/a/1/coupon", errInDoubt.Error(), "no answer"} {
			i := slices.IndexFunc(r.heldRows(), func(h store.Held) bool { return h.Event.ID == "a/1" })
			if text := r.heldRows()[i].LastErr; !strings.Contains(text, part) {
				t.Errorf("error %q does not say %q", text, part)
			}
		}
		run.mustStop()
		r.wantSettled()
	})
}

func TestCallThatCertainlyDidNothingIsRepeated(t *testing.T) {
	for name, refusal := range map[string]error{
		"not done":    NotDone(errBoom),
		"retry after": RetryAfter(time.Minute, errBoom),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				c := &coupons{refuse: func(try int) error {
					if try < 3 {
						return refusal
					}
					return nil
				}}
				r.publish(ev("a", 1))
				r.start(applyCoupon, r.effects(c.effect()))
				r.until("applied", r.applied(1))
				c.want(t, 3, 1, "a/1")
			})
		})
	}
	t.Run("dead", func(t *testing.T) {
		bubble(t, func(t *testing.T, r *rig) {
			c := &coupons{refuse: func(int) error { return Dead(errBoom) }}
			r.publish(ev("a", 1))
			r.start(applyCoupon, r.effects(c.effect()))
			r.until("dead", func() bool { return slices.Equal(r.held(), []string{"a/1 DEAD 1"}) })
			if calls, err := r.st.ListEffects(context.Background(), "g", "a/1"); err != nil || len(calls) != 0 {
				t.Errorf("calls: %v, %v, want none: it did nothing", calls, err)
			}
		})
	})
}

// What a call did stays known when the handler fails.
func TestHandlerIsRetriedWithoutAnotherCall(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		c := &coupons{}
		runs := &counter{}
		r.publish(ev("a", 1), ev("a", 2), ev("b", 1))
		r.start(func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
			if err := applyCoupon(ctx, tx, event); err != nil {
				return err
			}
			if runs.add(event.ID) < 3 && event.ID == "a/1" {
				return errBoom
			}
			return nil
		}, r.effects(c.effect()))
		r.until("all applied", r.applied(3))
		r.wantHistory(map[string]string{"a": "1 2", "b": "1"})
		c.want(t, 1, 1, "a/1", "a/2", "b/1")
	})
}

func TestSecondEffectSeesTheResultOfTheFirst(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		c := &coupons{}
		mails := &counter{}
		mail := Effect{Name: "mail", Call: func(ctx context.Context, _ string, event waybill.Event) ([]byte, error) {
			if result, _ := EffectResult(ctx, "coupon"); string(result) != "coupon of "+event.ID {
				return nil, Dead(fmt.Errorf("the mail has the result %q", result))
			}
			if mails.add(event.ID) == 1 && event.AggregateID == "b" {
				return nil, NotDone(errBoom)
			}
			return []byte("mail"), nil
		}}
		r.publish(ev("a", 1), ev("b", 1), ev("b", 2))
		r.start(func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
			if result, _ := EffectResult(ctx, "mail"); string(result) != "mail" {
				return Dead(errBoom)
			}
			return applyCoupon(ctx, tx, event)
		}, r.effects(c.effect(), mail))
		r.until("all applied", r.applied(3))
		c.want(t, 1, 1, "a/1", "b/1", "b/2")
		r.wantHistory(map[string]string{"a": "1", "b": "1 2"})
	})
}

// A process dies while the service works on its call.
func TestProcessDiesInACall(t *testing.T) {
	for _, heedsKeys := range []bool{true, false} {
		t.Run(fmt.Sprintf("the service heeds keys %t", heedsKeys), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				c := &coupons{heedsKeys: heedsKeys}
				effect := c.effect()
				processes := make(chan *running, 1) // those that die in a call
				effect.Call = func(ctx context.Context, key string, event waybill.Event) ([]byte, error) {
					result, err := c.grant(ctx, key, event)
					if run, ok := <-processes; ok {
						r.st.SetError(func(string) error { return errors.New("the process is gone") })
						run.cancel()
					}
					return result, err
				}
				config := r.effects(effect)
				config.Grace = time.Millisecond
				r.publish(ev("a", 1), ev("a", 2))
				run := r.start(applyCoupon, config)
				processes <- run
				if err := <-run.result; err != nil {
					t.Logf("the end of the first process: %v", err)
				}
				r.st.SetError(nil)
				close(processes)
				r.wantHistory(map[string]string{})
				if call := r.call("a/1"); call.State != store.EffectDoing {
					t.Fatalf("call: %+v, want it DOING", call)
				}

				r.start(applyCoupon, r.effects(effect))
				if heedsKeys {
					r.until("both applied", r.applied(2))
					c.want(t, 2, 1, "a/1")
					c.want(t, 1, 1, "a/2")
					r.wantHistory(map[string]string{"a": "1 2"})
					return
				}
				r.until("parked", func() bool { return slices.Equal(r.held(), []string{"a/1 DEAD 0", "a/2 BLOCKED 0"}) })
				c.want(t, 1, 1, "a/1")
				r.wantHistory(map[string]string{})
			})
		})
	}
}

// The first of two processes loses its session during a call: the second is
// delivered the event too, and waits for as long as the first is alive.
func TestLiveCallOfAnotherProcessIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		c := &coupons{}
		effect := c.effect()
		effect.Call = func(ctx context.Context, key string, event waybill.Event) ([]byte, error) {
			pauseFor(ctx, 25*time.Second) // more than two leases
			return c.grant(ctx, key, event)
		}
		r.publish(ev("a", 1), ev("a", 2))
		r.start(applyCoupon, r.effects(effect))
		r.after(time.Second)
		r.b.ExpireSessions("g")
		r.start(applyCoupon, r.effects(effect))
		r.until("both applied", r.applied(2))
		r.wantHistory(map[string]string{"a": "1 2"})
		c.want(t, 1, 1, "a/1", "a/2")
		r.wantHeld()
	})
}

// As before, but the first process cannot renew its lease, and is taken for
// dead: the event is parked. Then the first has its answer after all.
func TestLateAnswerReleasesWhatWasParked(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		c := &coupons{}
		slow := c.effect()
		slow.Call = func(ctx context.Context, key string, event waybill.Event) ([]byte, error) {
			pauseFor(ctx, 25*time.Second)
			return c.grant(ctx, key, event)
		}
		r.st.SetError(func(op string) error {
			if op == "renew effects" {
				return errBoom
			}
			return nil
		})
		r.publish(ev("a", 1), ev("a", 2))
		r.start(applyCoupon, r.effects(slow))
		r.after(time.Second)
		r.b.ExpireSessions("g")
		r.start(applyCoupon, r.effects(c.effect()))
		r.until("parked", func() bool { return slices.Equal(r.held(), []string{"a/1 DEAD 0", "a/2 BLOCKED 0"}) })
		r.until("both applied", r.applied(2))
		r.wantHistory(map[string]string{"a": "1 2"})
		c.want(t, 1, 1, "a/1", "a/2")
		r.wantHeld()
	})
}

// A call that pays no heed to its context is given up, and brings its answer
// when nobody waits for it any more.
func TestAnswerAfterTheTimeIsTakenToo(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		c := &coupons{}
		effect := c.effect()
		effect.Call = func(ctx context.Context, key string, event waybill.Event) ([]byte, error) {
			pauseFor(context.WithoutCancel(ctx), time.Minute)
			return c.grant(ctx, key, event)
		}
		r.publish(ev("a", 1))
		r.start(applyCoupon, r.effects(effect))
		r.until("parked", func() bool { return slices.Equal(r.held(), []string{"a/1 DEAD 0"}) })
		r.until("applied", r.applied(1))
		c.want(t, 1, 1, "a/1")
		r.wantHeld()
		r.wantHistory(map[string]string{"a": "1"})
	})
}

// The answer is there, but the transaction that is to tell of it fails.
func TestAnswerOutlivesAFailedTransaction(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		c := &coupons{}
		failed := false
		r.st.SetError(func(op string) error {
			if op == "mark consumed" && !failed {
				failed = true
				return errBoom
			}
			return nil
		})
		r.publish(ev("a", 1))
		run := r.start(applyCoupon, r.effects(c.effect()))
		r.until("applied", r.applied(1))
		c.want(t, 1, 1, "a/1")
		if !failed {
			t.Error("no transaction failed")
		}
		run.mustStop()
	})
}

func TestEffectsAreChecked(t *testing.T) {
	call := func(context.Context, string, waybill.Event) ([]byte, error) { return nil, nil }
	for name, effects := range map[string][]Effect{
		"no name":       {{Call: call}},
		"a long name":   {{Name: strings.Repeat("x", store.MaxEffectName+1), Call: call}},
		"a name twice":  {{Name: "a", Call: call}, {Name: "a", Call: call}},
		"nothing to do": {{Name: "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				if _, err := New(r.st, r.b.Connect(), apply, r.effects(effects...)); err == nil {
					t.Error("accepted")
				}
			})
		})
	}
}

func failTries(n int) func(try int) error {
	return func(try int) error {
		if try <= n {
			return errors.New("no answer")
		}
		return nil
	}
}

type counter struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counter) add(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = make(map[string]int)
	}
	c.n[what]++
	return c.n[what]
}
