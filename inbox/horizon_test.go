package inbox

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/membroker"
)

// forget has a cleanup remove what was consumed more than an hour ago.
func (r *rig) forget() {
	r.t.Helper()
	if n, err := r.st.CleanupConsumed(context.Background(), "g", time.Hour, 0); err != nil || n == 0 {
		r.t.Fatalf("cleanup: %d removed, %v", n, err)
	}
}

func dated(e waybill.Event, age time.Duration) waybill.Event {
	e.OccurredAt = time.Now().Add(-age)
	return e
}

// Events come again after their ids were forgotten.
func TestEventsBehindTheHorizonAreParkedUnlessTheirVersionsTell(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		unversioned := func(id string) waybill.Event {
			e := dated(ev("u", 1), time.Minute)
			e.ID, e.AggregateVersion = id, 0
			return e
		}
		a1, a2, b1, u1 := dated(ev("a", 1), time.Minute), dated(ev("a", 2), time.Minute), dated(ev("b", 1), time.Minute), unversioned("u1")
		r.publish(a1, a2, b1, u1)
		r.start(apply, nil)
		r.until("all applied", r.applied(4))
		r.after(2 * time.Hour)
		r.publish(dated(ev("last", 1), 0)) // the newest of a partition is never forgotten
		r.publish(dated(ev("other", 1), 0), dated(ev("third", 1), 0))
		r.until("all applied", r.applied(7))
		r.forget()
		before := r.history()

		late := dated(ev("a", 3), 3*time.Hour) // kept back by its producer all the time
		r.publish(a1, a2, b1, u1, late, unversioned("u1"))
		r.until("settled", func() bool { return r.b.Lag("g", topic) == 0 && r.history()["a"] == "1 2 3" })
		dead := r.held()
		slices.Sort(dead)
		if want := []string{"u1 DEAD 0"}; !slices.Equal(dead, want) {
			t.Errorf("held: got %q, want %q", dead, want)
		}
		delete(before, "a")
		for key, versions := range before {
			if got := r.history()[key]; got != versions {
				t.Errorf("history of %s: got %q, want %q", key, got, versions)
			}
		}
	})
}

// The producer's clock is days ahead, and the broker delivers from the start
// again because it has lost the group's position.
func TestEventOfAClockThatIsAheadIsForgottenToo(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		early := dated(ev("early", 1), -48*time.Hour)
		early.AggregateVersion = 0
		first := r.b
		r.b = membroker.New()
		if err := r.b.EnsureTopics(t.Context(), []broker.TopicSpec{{Name: topic, Partitions: 2}}); err != nil {
			t.Fatal(err)
		}
		again := r.b
		for _, r.b = range []*membroker.Broker{again, first} {
			r.publish(early, dated(ev("other", 1), 0), dated(ev("third", 1), 0), dated(ev("fourth", 1), 0))
		}
		run := r.start(apply, nil)
		r.until("all applied", r.applied(4))
		r.after(2 * time.Hour)
		r.publish(dated(ev("last", 1), 0), dated(ev("last", 2), 0))
		r.until("all applied", r.applied(6))
		r.forget()
		run.mustStop()

		r.b = again
		r.start(apply, nil)
		r.until("settled", func() bool { return r.b.Lag("g", topic) == 0 })
		if got := r.history()["early"]; got != "0" {
			t.Errorf("history: got %q, want %q", got, "0")
		}
		if held := r.held(); !slices.Contains(held, "early/1 DEAD 0") {
			t.Errorf("held: %q", held)
		}
	})
}

// Without a cleanup nothing is forgotten, however old it is.
func TestNewGroupTakesOldEvents(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.publish(dated(ev("a", 1), 1000*time.Hour), dated(ev("a", 2), 999*time.Hour))
		r.start(apply, nil)
		r.until("both applied", r.applied(2))
	})
}

func TestRetentionIsCompared(t *testing.T) {
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		retention, told, stored time.Duration // of the inbox, of the broker as configured and as it says
		refused                 bool
	}{
		"not known":            {0, 0, 7 * day, false},
		"long enough":          {22 * day, 0, 7 * day, false},
		"too short":            {22*day - time.Second, 0, 7 * day, true},
		"the broker never":     {1000 * day, 0, 0, true},
		"the user knows":       {22 * day, 7 * day, 0, false},
		"the user knows worse": {22 * day, 8 * day, day, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.b.SetRetention(topic, c.stored)
				config := r.config()
				config.Retention, config.BrokerRetention = c.retention, c.told
				run := r.start(apply, config)
				if !c.refused {
					r.publish(ev("a", 1))
					r.until("applied", r.applied(1))
					return
				}
				if err := <-run.result; !errors.Is(err, ErrRetention) {
					t.Errorf("Run: got %v, want ErrRetention", err)
				}
			})
		})
	}
}
