package inbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
)

func (r *rig) progress(id string) int64 {
	r.t.Helper()
	found, err := r.st.FindProgress(context.Background(), "g", []store.Aggregate{{Type: "order", ID: id}})
	if err != nil {
		r.t.Fatal(err)
	}
	return found[0].Version
}

func (r *rig) outcome(id string) string {
	r.t.Helper()
	rows, err := r.st.FindConsumed(context.Background(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	if len(rows) == 0 {
		return ""
	}
	return string(rows[0].Outcome)
}

func (r *rig) wantOutcomes(want map[string]string) {
	r.t.Helper()
	for id, outcome := range want {
		if got := r.outcome(id); got != outcome {
			r.t.Errorf("outcome of %s: got %q, want %q", id, got, outcome)
		}
	}
}

func (r *rig) settled() bool { return r.b.Lag("g", topic) == 0 }

func TestAVersionThatComesTooEarlyWaitsForTheOnesBefore(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		config := r.config()
		config.SweepEvery = time.Hour // what wakes the others is not a sweep
		r.start(apply, config)
		r.publish(ev("a", 1), ev("a", 3), ev("a", 4), ev("b", 1))
		r.until("settled", r.settled)
		r.wantHeld("a/3 WAITING 0", "a/4 WAITING 0")
		r.wantHistory(map[string]string{"a": "1", "b": "1"})
		r.publish(ev("b", 2), ev("a", 2), ev("a", 5), ev("a", 6))
		r.until("nothing held", func() bool { return r.progress("a") == 6 })
		r.wantHistory(map[string]string{"a": "1 2 3 4 5 6", "b": "1 2"})
		r.wantHeld()
		r.wantSettled()
	})
}

func TestAllInOneBatchInTheWrongOrder(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.publish(ev("a", 1), ev("a", 3), ev("a", 4), ev("a", 2), ev("a", 5))
		r.start(apply, nil)
		r.until("all", func() bool { return r.progress("a") == 5 })
		r.wantHistory(map[string]string{"a": "1 2 3 4 5"})
		r.wantHeld()
	})
}

func TestALowerVersionIsStale(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		config := r.config()
		config.Baseline = BaselineFirstSeen
		r.start(apply, config)
		late := ev("a", 3)
		late.ID = "a/3 again"
		same := ev("a", 5)
		same.ID = "a/5 of another type"
		r.publish(ev("a", 4), ev("a", 5), late, same, ev("a", 4))
		r.until("settled", r.settled)
		r.wantHistory(map[string]string{"a": "4 5 5"})
		r.wantOutcomes(map[string]string{"a/3 again": "STALE", "a/5 of another type": "APPLIED", "a/4": "APPLIED"})
		if r.said("STALE a/3 again") != 1 || r.said("duplicate a/4") != 1 {
			t.Errorf("told: %q", r.lines())
		}
		if got := r.progress("a"); got != 5 {
			t.Errorf("progress: got %d, want 5", got)
		}
	})
}

func TestEventsWithoutAVersionPass(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start(apply, nil)
		loose := ev("a", 0)
		loose.ID = "loose"
		r.publish(ev("a", 1), loose, ev("a", 3))
		r.until("settled", r.settled)
		r.wantOutcomes(map[string]string{"a/1": "APPLIED", "loose": "APPLIED", "a/3": ""})
		r.wantHeld("a/3 WAITING 0")
	})
}

// WAITING v3, then v2 comes and fails, and succeeds later.
func TestTheMissingVersionFailsFirst(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start(failing(map[string]int{"a/2": 2}), nil)
		r.publish(ev("a", 1), ev("a", 3))
		r.until("held", func() bool { return len(r.held()) == 1 })
		r.publish(ev("a", 2), ev("a", 4))
		r.until("settled", r.settled)
		r.wantHeld("a/3 WAITING 0", "a/2 RETRY 1", "a/4 BLOCKED 0")
		r.until("nothing held", func() bool { return len(r.held()) == 0 })
		r.wantHistory(map[string]string{"a": "1 2 3 4"})
	})
}

// Of two aggregates under one key, one waits for a version: the other goes on.
func TestAGapKeepsBackItsOwnAggregateOnly(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		of := func(aggregate string, version int64) waybill.Event {
			e := ev(aggregate, version)
			e.Key = "k"
			return e
		}
		r.start(failing(map[string]int{"b/2": 1}), nil)
		r.publish(of("a", 2), of("b", 1), of("a", 3), of("b", 2), of("b", 3))
		r.until("b", func() bool { return r.progress("b") == 3 })
		r.wantHeld("a/2 WAITING 0", "a/3 WAITING 0")
		r.publish(of("a", 1))
		r.until("a", func() bool { return r.progress("a") == 3 })
		r.wantHeld()
	})
}

// One aggregate's events come in two topics, under different keys.
func TestAVersionWakesItsSuccessorUnderAnotherKey(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		second := ev("a", 2)
		second.Key = "other"
		r.start(apply, nil)
		r.publish(second)
		r.until("held", func() bool { return len(r.held()) == 1 })
		r.publish(ev("a", 1))
		r.until("both", func() bool { return r.progress("a") == 2 })
		r.wantHistory(map[string]string{"a": "1", "other": "2"})
	})
}

func TestAVersionThatNeverComesRaisesTheAlarm(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		run := r.start(apply, nil)
		r.publish(ev("a", 1), ev("a", 4), ev("a", 5), ev("b", 1))
		r.after(4 * time.Minute)
		if r.said("gap") != 0 || run.Health().State != Green {
			t.Errorf("too early: %q, %v", r.lines(), run.Health())
		}
		r.after(90 * time.Second)
		if r.said("gap order a: version 2 to 3, a/4 waits") != 1 || r.said("gap") != 1 {
			t.Errorf("told: %q", r.lines())
		}
		if h := run.Health(); h.State != Yellow || len(h.Reasons) != 1 || h.Reasons[0].Name != "gap" {
			t.Errorf("health: %v", h)
		}
		r.publish(ev("a", 2), ev("a", 3))
		r.until("all", func() bool { return r.progress("a") == 5 })
		r.after(2 * time.Second)
		r.wantHistory(map[string]string{"a": "1 2 3 4 5", "b": "1"})
		if h := run.Health(); h.State != Green {
			t.Errorf("health afterwards: %v", h)
		}
	})
}

func TestOnGapBringsWhatIsMissing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		config := r.config()
		var asked []Gap
		config.OnGap = func(_ context.Context, gap Gap) ([]waybill.Event, error) {
			asked = append(asked, gap)
			switch len(asked) {
			case 1:
				return nil, errBoom
			case 2:
				return []waybill.Event{ev("a", 3), ev("z", 2)}, nil // of z nobody asked
			}
			return []waybill.Event{ev("a", 2)}, nil
		}
		r.start(apply, config)
		r.publish(ev("a", 1), ev("a", 4))
		r.until("all", func() bool { return r.progress("a") == 4 })
		r.wantHistory(map[string]string{"a": "1 2 3 4"})
		want := Gap{Aggregate: store.Aggregate{Type: "order", ID: "a"}, Topic: topic, From: 2, To: 3}
		if asked[0] != want {
			t.Errorf("asked for %+v, want %+v", asked[0], want)
		}
		// What the broker brings later is a duplicate.
		r.publish(ev("a", 2), ev("a", 3), ev("a", 5))
		r.until("settled", r.settled)
		r.wantHistory(map[string]string{"a": "1 2 3 4 5"})
		r.wantHeld()
	})
}

// The place where gaps are asked for is away, for more gaps than can be asked
// for between two questions about one of them.
func TestGapsRaiseTheAlarmThoughNobodyCanBeAsked(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		const n = 120
		config := r.config()
		config.OnGap = func(context.Context, Gap) ([]waybill.Event, error) { return nil, errBoom }
		run := r.start(apply, config)
		for i := range n {
			r.publish(ev(fmt.Sprintf("k%03d", i), 3))
		}
		r.until("held", func() bool { return len(r.held()) == n })
		r.after(6 * time.Minute)
		if got := r.said("gap"); got != n {
			t.Errorf("%d alarms, want %d", got, n)
		}
		if h := run.Health(); !slices.ContainsFunc(h.Reasons, func(r Reason) bool { return strings.HasPrefix(r.Text, fmt.Sprint(n, " aggregates")) }) {
			t.Errorf("health does not tell of %d gaps: %+v", n, h)
		}
	})
}

func TestGapsAreFilledFromTheOutbox(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		outbox := memstore.New(nil)
		tx, err := outbox.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var events []waybill.Event
		for version := int64(1); version <= 5; version++ {
			e := ev("a", version)
			e.Normalize(time.Now())
			events = append(events, e)
		}
		if _, err := outbox.Append(t.Context(), tx, events); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		// 1 and 2 were sent, 3 is on its way yet.
		send(t, outbox, "a/1", "a/2")
		config := r.config()
		config.OnGap = GapsFromOutbox(outbox)
		r.start(apply, config)
		r.publish(ev("a", 5))
		r.until("what was sent", func() bool { return r.progress("a") == 2 })
		r.after(time.Minute)
		r.wantHistory(map[string]string{"a": "1 2"})
		send(t, outbox, "a/3", "a/4")
		r.until("the rest", func() bool { return r.progress("a") == 5 })
		r.wantHistory(map[string]string{"a": "1 2 3 4 5"})
	})
}

// send settles events of the outbox as sent.
func send(t *testing.T, st *memstore.Store, ids ...string) {
	t.Helper()
	lanes := make([]store.LaneCursor, store.Lanes)
	for lane := range lanes {
		lanes[lane].Lane = lane
	}
	owner := waybill.NewID()
	if _, _, err := st.Renew(t.Context(), store.Heartbeat{Owner: owner, TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	leases, err := st.Claim(t.Context(), owner, time.Hour, store.Lanes)
	if err != nil {
		t.Fatal(err)
	}
	guard := store.Guard{Owner: owner, Lanes: leases}
	walked, err := st.Walk(t.Context(), store.WalkRequest{Lanes: lanes})
	if err != nil {
		t.Fatal(err)
	}
	queued := make([]int64, len(walked.Refs))
	for i, ref := range walked.Refs {
		queued[i] = ref.ID
	}
	slices.Sort(queued)
	result, err := st.Load(t.Context(), queued, 0)
	if err != nil {
		t.Fatal(err)
	}
	var changes store.Changes
	for _, row := range result.Rows {
		if slices.Contains(ids, row.Event.ID) {
			changes.Settled = append(changes.Settled, store.SettledChange{
				Change: store.Change{ID: row.ID, EventID: row.Event.ID}, Outcome: store.StatusSent, Via: "poll",
			})
		}
	}
	if len(changes.Settled) != len(ids) {
		t.Fatalf("%d of %d events are in the queue", len(changes.Settled), len(ids))
	}
	if err := st.Apply(t.Context(), guard, changes); err != nil {
		t.Fatal(err)
	}
	if err := st.Leave(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
}

func TestAGroupThatBeginsInTheMiddleStartsFromASnapshot(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		config := r.config()
		var fails atomic.Bool
		fails.Store(true)
		config.Snapshot = func(_ context.Context, a store.Aggregate) (int64, error) {
			if fails.Load() {
				return 0, errBoom
			}
			return map[string]int64{"a": 7}[a.ID], nil
		}
		r.start(apply, config)
		r.publish(ev("a", 6), ev("a", 8), ev("a", 10), ev("b", 1))
		r.after(time.Second)
		r.wantHistory(map[string]string{}) // nothing is decided by a guess
		r.wantHeld()
		fails.Store(false)
		r.until("settled", r.settled)
		r.wantOutcomes(map[string]string{"a/6": "STALE", "a/8": "APPLIED", "b/1": "APPLIED"})
		r.wantHeld("a/10 WAITING 0")
		if got := r.progress("a"); got != 8 {
			t.Errorf("progress: got %d, want 8", got)
		}
	})
}

func TestTheLatestVersionOvertakes(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		config := r.config()
		config.Gate = GateLatest
		r.start(failing(map[string]int{"a/3": forever, "b/1": 1}), config)
		r.publish(ev("a", 2), ev("a", 3))
		r.until("held", func() bool { return len(r.held()) == 1 })
		other := ev("b", 1)
		other.Key = "a"
		r.publish(ev("a", 1), ev("a", 5))
		r.until("a", func() bool { return r.progress("a") == 5 })
		r.wantHistory(map[string]string{"a": "2 5"})
		r.wantOutcomes(map[string]string{"a/1": "STALE", "a/3": "STALE"})
		r.wantHeld()
		if r.said("STALE a/3 (held before)") != 1 || r.said("STALE a/1") != 1 {
			t.Errorf("told: %q", r.lines())
		}
		// What another aggregate of the key holds back stays behind it.
		r.publish(other, ev("a", 6))
		r.until("settled", r.settled)
		r.wantHeld("b/1 RETRY 1", "a/6 BLOCKED 0")
		r.until("released", func() bool { return len(r.held()) == 0 })
		r.wantOutcomes(map[string]string{"b/1": "APPLIED", "a/6": "APPLIED"})
	})
}

func TestASkipMarkerAdvancesProgress(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		second := ev("a", 2)
		r.start(apply, nil)
		r.publish(ev("a", 1), ev("a", 3), second.SkipMarker())
		r.until("all", func() bool { return r.progress("a") == 3 })
		r.wantHistory(map[string]string{"a": "1 3"})
		r.wantOutcomes(map[string]string{"a/2": "SKIPPED", "a/3": "APPLIED"})
		r.wantHeld()
	})
}

func TestAKeyThatGoesOnAfterADeadEventGoesOnInItsVersionsToo(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		config := r.config()
		config.OnDead, config.Schedule = Continue, []time.Duration{time.Second}
		r.start(failing(map[string]int{"a/2": forever, "b/1": forever}), config)
		r.publish(ev("a", 1), ev("a", 2), ev("a", 3), ev("b", 1), ev("b", 2))
		r.until("both", func() bool { return r.progress("a") == 3 && r.progress("b") == 2 })
		r.wantHistory(map[string]string{"a": "1 3", "b": "2"})
	})
}

// A group that counted nothing until now has events that wait for nothing, and
// events that were consumed without being counted.
func TestAChangeOfTheGateIsFollowed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		run := r.start(apply, nil)
		r.publish(ev("a", 2), ev("b", 1), ev("b", 3))
		r.until("held", func() bool { return len(r.held()) == 2 })
		run.mustStop()
		run = r.start(apply, r.ungated())
		r.until("released", func() bool { return len(r.held()) == 0 })
		r.publish(ev("c", 1), ev("c", 2))
		r.until("settled", r.settled)
		run.mustStop()
		config := r.config()
		config.OnGap = func(_ context.Context, gap Gap) (events []waybill.Event, _ error) {
			for version := gap.From; version <= gap.To; version++ {
				events = append(events, ev(gap.Aggregate.ID, version))
			}
			return events, nil
		}
		r.start(apply, config)
		r.publish(ev("c", 3))
		r.until("c goes on", func() bool { return r.progress("c") == 3 })
		r.wantHistory(map[string]string{"a": "2", "b": "1 3", "c": "1 2 3"})
	})
}

// Several readers of the same partitions, whose sessions end all the time, work
// through versions that come in any order, again and again, while handlers fail.
func TestEachVersionOnceAndInOrderInAnyInterleaving(t *testing.T) {
	const keys, versions = 4, 25
	for _, workers := range []int{1, 3} {
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("workers %d seed %d", workers, seed), func(t *testing.T) {
				bubble(t, func(t *testing.T, r *rig) {
					random := rand.New(rand.NewPCG(seed, 7))
					var events []waybill.Event
					for version := int64(1); version <= versions; version++ {
						for k := range keys {
							e := ev(fmt.Sprintf("k%d", k), version)
							events = append(events, e)
							if random.IntN(5) == 0 {
								events = append(events, e)
							}
						}
					}
					for range 3 * len(events) { // each not far from its place
						i := random.IntN(len(events) - 3)
						j := i + random.IntN(3)
						events[i], events[j] = events[j], events[i]
					}
					config := r.config()
					config.Workers, config.BatchSize, config.PauseAfter, config.PollWait = workers, 7, -1, 10*time.Millisecond
					config.Schedule = slices.Repeat([]time.Duration{10 * time.Millisecond}, 200)
					// Time passes between any two operations of a transaction.
					var mu sync.Mutex
					r.st.SetError(func(string) error {
						mu.Lock()
						d := time.Duration(random.IntN(4)) * time.Millisecond
						mu.Unlock()
						pauseFor(context.Background(), d)
						return nil
					})
					var calls atomic.Int64
					handler := func(ctx context.Context, tx *memstore.Tx, e waybill.Event) error {
						if err := apply(ctx, tx, e); err != nil {
							return err
						}
						if calls.Add(1)%9 == 0 {
							return errBoom
						}
						return nil
					}
					var runs []*running
					for range 3 {
						runs = append(runs, r.start(handler, config))
					}
					for i := 0; i < len(events); i += 10 {
						r.publish(events[i:min(i+10, len(events))]...)
						pauseFor(t.Context(), time.Duration(i%30)*time.Millisecond)
						r.b.ExpireSessions("g")
					}
					r.until("all", func() bool {
						for k := range keys {
							if r.progress(fmt.Sprintf("k%d", k)) != versions {
								return false
							}
						}
						return len(r.held()) == 0
					})
					r.st.SetError(nil)
					for _, run := range runs {
						run.mustStop()
					}
					want := map[string]string{}
					for k := range keys {
						text := ""
						for version := 1; version <= versions; version++ {
							text += fmt.Sprintf(" %d", version)
						}
						want[fmt.Sprintf("k%d", k)] = text[1:]
					}
					r.wantHistory(want)
				})
			})
		}
	}
}

// Version 3 finds that version 2 is missing, in the moment in which version 2,
// read by another, is about to be committed.
func TestAWaitBeginsWhileTheMissingVersionIsCommitted(t *testing.T) {
	for _, op := range []string{"lock progress", "hold", "commit"} {
		t.Run(op, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				config := r.config()
				config.SweepEvery = time.Hour
				second := ev("a", 2)
				second.Key = "second"
				third := ev("a", 3)
				third.Key = "third"
				handling, goOn := make(chan struct{}), make(chan struct{})
				r.start(func(ctx context.Context, tx *memstore.Tx, e waybill.Event) error {
					if e.ID == "a/2" {
						close(handling)
						<-goOn
					}
					return apply(ctx, tx, e)
				}, config)
				r.publish(ev("a", 1))
				r.until("first", func() bool { return r.progress("a") == 1 })
				r.publish(second)
				<-handling
				var once atomic.Bool
				r.st.SetError(func(got string) error {
					if got == op && once.CompareAndSwap(false, true) {
						close(goOn) // and long enough for it to come to its end
						pauseFor(context.Background(), time.Second)
					}
					return nil
				})
				beside := membroker.New(topic)
				record, _ := waybill.Encode(waybill.FormatEnvelope, &third)
				if err := errors.Join(beside.Publish(t.Context(), []waybill.Record{record})...); err != nil {
					t.Fatal(err)
				}
				r.startOn(r.st, beside, apply, config)
				r.until("third", func() bool { return r.progress("a") == 3 })
				if !once.Load() {
					t.Error("the moment did not come")
				}
				r.wantHistory(map[string]string{"a": "1", "second": "2", "third": "3"})
				r.wantHeld()
			})
		})
	}
}

// A transaction takes no further event after a while, in the middle of a group.
func TestAGroupThatIsCutShortMarksNothingTooMuch(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		config := r.config()
		var batches []int
		config.Events.Batch = func(i BatchInfo) { batches = append(batches, i.Events) }
		var events []waybill.Event
		want := ""
		for version := int64(1); version <= 30; version++ {
			events = append(events, ev("a", version))
			want += fmt.Sprintf(" %d", version)
		}
		r.publish(events...)
		r.start(func(ctx context.Context, tx *memstore.Tx, e waybill.Event) error {
			pauseFor(ctx, 100*time.Millisecond)
			return apply(ctx, tx, e)
		}, config)
		r.until("settled", r.settled)
		r.wantHistory(map[string]string{"a": want[1:]})
		if len(batches) < 3 || r.said("STALE") != 0 || r.said("duplicate") != 0 {
			t.Errorf("batches %v, told %q", batches, r.lines())
		}
	})
}

func TestConfigRefusesUnknownGates(t *testing.T) {
	for _, change := range []func(*Config){
		func(c *Config) { c.Gate = "most" },
		func(c *Config) { c.Baseline = "two" },
		func(c *Config) { c.Workers = -1 },
	} {
		config := &Config{Group: "g", Topics: []string{topic}}
		change(config)
		_, err := New(memstore.New(nil), membroker.New(), apply, config)
		var refused *waybill.Error
		if !errors.As(err, &refused) || refused.Op != "configure consumer" {
			t.Errorf("%+v: got %v", config, err)
		}
	}
}
