package inbox

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
)

func TestEventsAreAppliedOnceAndTheBrokerIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.publish(ev("a", 1), ev("b", 1), ev("a", 2), ev("a", 2), ev("b", 2))
		run := r.start(apply, nil)
		r.until("lag 0", func() bool { return r.b.Lag("g", topic) == 0 })
		r.wantHistory(map[string]string{"a": "1 2", "b": "1 2"})
		if got := r.said("duplicate a/2"); got != 1 {
			t.Errorf("duplicates of a/2 told: got %d, want 1", got)
		}
		if h := run.Health(); h.State != Green {
			t.Errorf("health: %+v", h)
		}
		run.mustStop()
		if h := run.Health(); h.State != Red {
			t.Errorf("health after the end: %+v", h)
		}
	})
}

func TestBatchWithOneConsumedEventAppliesTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.publish(ev("k", 3))
		config := r.config()
		config.Baseline = BaselineFirstSeen
		run := r.start(apply, config)
		r.until("first", func() bool { return r.b.Lag("g", topic) == 0 })
		run.mustStop()
		r.publish(ev("k", 4), ev("k", 5), ev("k", 3), ev("k", 6), ev("k", 7))
		var batches []int
		config.Events.Batch = func(i BatchInfo) { batches = append(batches, i.Events) }
		r.start(apply, config)
		r.until("second", func() bool { return r.b.Lag("g", topic) == 0 })
		r.wantHistory(map[string]string{"k": "3 4 5 6 7"})
		if !slices.Equal(batches, []int{5}) {
			t.Errorf("batches: got %v, want one of five", batches)
		}
		rows, _ := r.st.FindConsumed(t.Context(), "k/3")
		if len(rows) != 1 || rows[0].Duplicates != 1 {
			t.Errorf("consumed rows of the duplicate: %+v", rows)
		}
		if r.said("conflict") != 0 {
			t.Errorf("a transaction died: %v", r.lines())
		}
	})
}

func TestGroupsConsumeIndependently(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		paid, cancelled := ev("o", 1), ev("o", 2)
		paid.Type, cancelled.Type = "OrderPaid", "OrderCancelled"
		r.publish(paid, cancelled)
		groups := []string{"inventory", "points", "notification"}
		for _, group := range groups {
			config := r.config()
			config.Group = group
			r.start(func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
				return tx.Update(ctx, group, event.Type, func(old string, _ bool) string { return old + "x" })
			}, config)
		}
		for _, group := range groups {
			r.until(group, func() bool {
				rows := r.st.Rows(group)
				return rows["OrderPaid"] == "x" && rows["OrderCancelled"] == "x"
			})
		}
	})
}

func TestSkipMarkerIsSettledWithoutTheHandler(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		skipped := ev("a", 1)
		r.publish(skipped.SkipMarker(), ev("a", 2))
		r.start(apply, nil)
		r.until("lag 0", func() bool { return r.b.Lag("g", topic) == 0 })
		r.wantHistory(map[string]string{"a": "2"})
		rows, _ := r.st.FindConsumed(t.Context(), "a/1")
		if len(rows) != 1 || rows[0].Outcome != store.ConsumedSkipped {
			t.Errorf("consumed: %+v", rows)
		}
	})
}

func TestUndecodableRecordsAreHeldDeadAndNothingLoops(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.publish(ev("a", 1))
		r.publishRecords(
			waybill.Record{Topic: topic, Key: "null", Value: nil},
			waybill.Record{Topic: topic, Key: "empty", Value: []byte{}},
			waybill.Record{Topic: topic, Key: "", Value: []byte("not an event")},
			waybill.Record{Topic: topic, Key: "bad\x00\xff" + strings.Repeat("k", 300), Value: []byte("{}")},
		)
		r.publish(ev("empty", 1), ev("b", 1))
		run := r.start(apply, nil)
		r.until("lag 0", func() bool { return r.b.Lag("g", topic) == 0 })
		r.after(time.Hour)
		// What follows the broken record under its key waits, others do not.
		r.wantHistory(map[string]string{"a": "1", "b": "1"})
		dead := 0
		for _, h := range r.heldRows() {
			switch {
			case h.State == store.HeldDead && strings.HasPrefix(h.Event.ID, "undecodable:orders/") && h.LastErr != "":
				dead++
			case h.Event.ID == "empty/1" && h.State == store.HeldBlocked:
			default:
				t.Errorf("held: %+v", h)
			}
		}
		if dead != 4 {
			t.Errorf("dead: got %d, want 4: %v", dead, r.held())
		}
		// Delivered again, they are known.
		run.mustStop()
		config := r.config()
		config.Events.Handled = func(i HandledInfo) { t.Errorf("handled %v", i) }
		before := len(r.held())
		sub := &replaying{Subscriber: r.b.Connect()}
		r.startOn(r.st, sub, apply, config)
		r.until("all again", func() bool { return r.said("duplicate undecodable:") == 4 })
		if got := len(r.held()); got != before {
			t.Errorf("held after the second delivery: got %d, want %d", got, before)
		}
	})
}

// replaying is a subscriber for whom nothing was ever committed.
type replaying struct{ broker.Subscriber }

func (s *replaying) Subscribe(ctx context.Context, request broker.SubscribeRequest) (broker.Subscription, error) {
	request.Group += "-again"
	return s.Subscriber.Subscribe(ctx, request)
}

func TestLongUndecodableIDsFitTheColumn(t *testing.T) {
	p := broker.Partition{Topic: strings.Repeat("t", waybill.MaxTopicLen), ID: 7}
	id, other := placeID(p, 1), placeID(p, 2)
	if len(id) > waybill.MaxIDLen || id == other {
		t.Errorf("ids %q, %q", id, other)
	}
}

func TestRunRefusesADatabaseWithoutTables(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		st := memstore.New(&memstore.Config{Empty: true})
		run := r.startOn(st, r.b.Connect(), apply, nil)
		err := <-run.result
		if !errors.Is(err, store.ErrNoSchema) {
			t.Errorf("Run: got %v, want %v", err, store.ErrNoSchema)
		}
	})
}

func TestRunRefusesToRunTwiceAtOnceAndMayRunAgain(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		run := r.start(apply, nil)
		r.after(time.Second)
		if err := run.Run(t.Context()); !errors.Is(err, errRunning) {
			t.Errorf("second Run: %v", err)
		}
		run.mustStop()
		r.publish(ev("a", 1))
		ctx, cancel := context.WithCancel(t.Context())
		go func() { run.result <- run.Run(ctx) }()
		r.until("applied", func() bool { return r.history()["a"] == "1" })
		cancel()
		if err := <-run.result; err != nil {
			t.Errorf("Run again: %v", err)
		}
	})
}

func TestConfigIsChecked(t *testing.T) {
	st, good := memstore.New(nil), Config{Group: "g", Topics: []string{"t"}}
	for name, change := range map[string]func(*Config){
		"no group":         func(c *Config) { c.Group = "" },
		"no topics":        func(c *Config) { c.Topics = nil },
		"illegal topic":    func(c *Config) { c.Topics = []string{"a b"} },
		"on dead":          func(c *Config) { c.OnDead = "explode" },
		"negative batch":   func(c *Config) { c.BatchSize = -1 },
		"negative time":    func(c *Config) { c.HandlerTimeout = -1 },
		"negative retries": func(c *Config) { c.Schedule = []time.Duration{-1} },
	} {
		c := good
		change(&c)
		if _, err := New[*memstore.Tx](st, nopSubscriber{}, apply, &c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := New[*memstore.Tx](st, nopSubscriber{}, apply, &good); err != nil {
		t.Errorf("good config: %v", err)
	}
	if _, err := New[*memstore.Tx](st, nopSubscriber{}, apply, nil); err == nil {
		t.Error("nil config accepted")
	}
}

type nopSubscriber struct{ broker.Subscriber }

func TestSlowHandlersDoNotMakeALongTransaction(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		for version := int64(1); version <= 40; version++ {
			r.publish(ev("k", version))
		}
		var longest time.Duration
		config := r.config()
		config.Events.Batch = func(i BatchInfo) { longest = max(longest, i.Took) }
		r.start(func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
			pauseFor(ctx, 400*time.Millisecond)
			return apply(ctx, tx, event)
		}, config)
		r.until("lag 0", func() bool { return r.b.Lag("g", topic) == 0 })
		if longest > 1500*time.Millisecond {
			t.Errorf("the longest transaction took %v", longest)
		}
	})
}

// Stopping.

func TestStopLetsTheHandlerFinishAndCommitsItsWork(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.publish(ev("k", 1), ev("k", 2), ev("k", 3))
		began := make(chan struct{}, 3)
		run := r.start(func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
			began <- struct{}{}
			pauseFor(ctx, 5*time.Second)
			return errors.Join(ctx.Err(), apply(ctx, tx, event))
		}, nil)
		<-began
		r.after(time.Second)
		run.mustStop()
		r.wantHistory(map[string]string{"k": "1"})
		if lag := r.b.Lag("g", topic); lag != 2 {
			t.Errorf("lag: got %d, want the two that had not begun", lag)
		}
		states, _ := r.st.ListReaders(t.Context(), "g")
		for _, s := range states {
			if s.Owner != "" || !s.Clean {
				t.Errorf("reader row after a stop in good order: %+v", s)
			}
		}
		r.start(apply, nil)
		r.until("the rest", func() bool { return r.b.Lag("g", topic) == 0 })
		r.wantHistory(map[string]string{"k": "1 2 3"})
		if n := r.said("duplicate"); n != 0 {
			t.Errorf("%d duplicates after a stop in good order", n)
		}
	})
}

func TestStopRollsBackWhatTheGracePeriodDoesNotSuffice(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.publish(ev("k", 1))
		began, free := make(chan struct{}, 9), make(chan struct{})
		config := r.config()
		config.Grace, config.HandlerTimeout = 2*time.Second, time.Hour
		run := r.start(func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
			began <- struct{}{}
			<-free // pays no heed to ctx
			return apply(context.WithoutCancel(ctx), tx, event)
		}, config)
		<-began
		err := run.stop()
		if !errors.Is(err, ErrHandlerTimeout) {
			t.Errorf("Run: got %v, want it to name the handler that still runs", err)
		}
		close(free)
		r.after(time.Second)
		r.wantHistory(map[string]string{})
		r.wantHeld()
		r.start(apply, nil)
		r.until("applied", func() bool { return r.b.Lag("g", topic) == 0 })
		r.wantHistory(map[string]string{"k": "1"})
	})
}

// Outages.

func TestDatabaseOutageCommitsNothingAndHeals(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		run := r.start(apply, nil)
		r.after(time.Second)
		r.st.SetError(func(string) error { return errors.New("connection refused") })
		r.publish(ev("a", 1), ev("b", 1), ev("a", 2))
		r.after(time.Minute)
		if h := run.Health(); h.State != Red {
			t.Errorf("health in the outage: %+v", h)
		}
		if lag := r.b.Lag("g", topic); lag != 3 {
			t.Errorf("lag in the outage: got %d, want 3", lag)
		}
		// One line per trouble and interval: three sources complain.
		if n := strings.Count(r.log.String(), "level=ERROR"); n < 3 || n > 3*7 {
			t.Errorf("%d error lines in a minute", n)
		}
		r.st.SetError(nil)
		r.until("healed", func() bool { return r.b.Lag("g", topic) == 0 })
		r.wantHistory(map[string]string{"a": "1 2", "b": "1"})
		r.wantHeld()
		r.after(5 * time.Second)
		if h := run.Health(); h.State != Green {
			t.Errorf("health afterwards: %+v", h)
		}
	})
}

func TestDatabaseOutageInTheMiddleOfABatchBlamesNoEvent(t *testing.T) {
	for op, at := range map[string]int32{"mark consumed": 2, "set": 2, "release savepoint": 1, "commit": 1, "keys held": 1} {
		t.Run(op, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.publish(ev("a", 1), ev("a", 2), ev("a", 3))
				var calls atomic.Int32
				r.st.SetError(func(got string) error {
					if got == op {
						calls.Add(1)
					}
					if calls.Load() >= at {
						return errors.New("connection reset")
					}
					return nil
				})
				r.start(apply, nil)
				r.after(3 * time.Second)
				if calls.Load() < at {
					t.Error("the outage did not happen")
				}
				r.st.SetError(nil)
				r.until("healed", func() bool { return r.b.Lag("g", topic) == 0 })
				r.wantHistory(map[string]string{"a": "1 2 3"})
				r.wantHeld()
			})
		})
	}
}

func TestBrokerOutageHealsAndCommitsLater(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.b.Outage(true)
		run := r.start(apply, nil)
		r.after(10 * time.Second)
		if h := run.Health(); h.State != Red {
			t.Errorf("health before the first connection: %+v", h)
		}
		r.b.Outage(false)
		r.publish(ev("a", 1))
		r.until("first", func() bool { return r.b.Lag("g", topic) == 0 })

		hold := make(chan struct{})
		r.st.SetError(func(op string) error {
			if op == "commit" {
				<-hold
			}
			return nil
		})
		r.publish(ev("a", 2))
		r.after(time.Second)
		r.b.Outage(true) // the commit of the database is not acknowledged to the broker
		r.st.SetError(nil)
		close(hold)
		r.after(time.Minute)
		if h := run.Health(); h.State != Red {
			t.Errorf("health in the outage: %+v", h)
		}
		r.b.Outage(false)
		r.until("second", func() bool { return r.b.Lag("g", topic) == 0 })
		r.wantHistory(map[string]string{"a": "1 2"})
		r.after(10 * time.Second)
		if h := run.Health(); h.State != Green {
			t.Errorf("health afterwards: %+v", h)
		}
	})
}

func TestRedeliveryAfterACommitThatTheBrokerNeverHeardOf(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.publish(ev("a", 1), ev("a", 2), ev("b", 1))
		var once bool
		r.st.SetLostAnswer(func(op string) error {
			if op == "commit" && !once {
				once = true
				r.b.ExpireSessions("g")
				return errors.New("the answer to COMMIT was lost")
			}
			return nil
		})
		r.start(apply, nil)
		r.until("lag 0", func() bool { return r.b.Lag("g", topic) == 0 })
		r.wantHistory(map[string]string{"a": "1 2", "b": "1"})
		if n := r.said("duplicate"); n == 0 {
			t.Error("no duplicate was counted")
		}
		r.wantHeld()
	})
}

func TestVersionAfterAHigherOneIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.publish(ev("a", 2), ev("a", 1), ev("a", 3))
		r.start(apply, r.ungated())
		r.until("lag 0", func() bool { return r.b.Lag("g", topic) == 0 })
		r.wantHistory(map[string]string{"a": "2 1 3"})
		if r.said("out of order a/1: version 1 after 2") != 1 || r.said("out of order") != 1 {
			t.Errorf("told: %v", r.lines())
		}
	})
}

func TestEveryHookIsCalled(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var mu sync.Mutex
		called := map[string]int{}
		note := func(i fmt.Stringer) {
			mu.Lock()
			defer mu.Unlock()
			called[reflect.TypeOf(i).Name()]++
			if i.String() == "" {
				t.Errorf("%T has no text", i)
			}
		}
		config := r.ungated()
		config.PauseAfter, config.Workers = 3, 1
		config.Events = Events{
			Handled: func(i HandledInfo) { note(i) }, Applied: func(i AppliedInfo) { note(i) },
			Duplicate: func(i DuplicateInfo) { note(i) }, Held: func(i HeldInfo) { note(i) },
			OutOfOrder: func(i OutOfOrderInfo) { note(i) }, Conflict: func(i ConflictInfo) { note(i) },
			Batch: func(i BatchInfo) { note(i) }, Committed: func(i CommittedInfo) { note(i) },
			Counted: func(i CountedInfo) { note(i) }, Paused: func(i PausedInfo) { note(i) },
			Called: func(i CalledInfo) { note(i) }, DeadLettered: func(i DeadLetterInfo) { note(i) },
			Readers: func(i ReadersInfo) { note(i) }, Trouble: func(i TroubleInfo) { note(i) },
		}
		config.DeadLetters = r.b.Connect()
		config.Effects = []Effect{{Name: "coupon", Idempotent: true, Types: []string{"OrderPaid"}, Call: (&coupons{heedsKeys: true}).grant}}
		paid, dead := ev("b", 1), waybill.Record{Topic: topic, Key: "c"}
		paid.Type = "OrderPaid"
		r.publish(paid)
		r.publishRecords(dead)
		r.publish(ev("a", 2), ev("a", 1), ev("a", 1), ev("x", 1), ev("y", 1), ev("z", 1))
		var once atomic.Bool
		r.st.SetError(func(op string) error {
			if op == "commit" && once.CompareAndSwap(false, true) {
				return errBoom
			}
			return nil
		})
		r.st.SetLostAnswer(func(op string) error {
			if op == "commit" && r.b.Lag("g", topic) == 0 {
				return errBoom
			}
			return nil
		})
		healed := time.Now().Add(20 * time.Second)
		r.start(func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
			if event.Key != "a" && time.Now().Before(healed) {
				return errBoom
			}
			return apply(ctx, tx, event)
		}, config)
		r.after(time.Minute)
		r.b.Outage(true)
		r.after(time.Second)
		r.st.SetLostAnswer(nil)
		r.b.Outage(false)
		r.after(10 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		hooks := reflect.TypeOf(Events{})
		for i := range hooks.NumField() {
			// Without a gate there is no gap.
			if info := hooks.Field(i).Type.In(0).Name(); called[info] == 0 && info != "GapInfo" {
				t.Errorf("%s was never told", info)
			}
		}
	})
}
