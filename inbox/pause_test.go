package inbox

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store/memstore"
)

func TestConsumerThatFailsForEveryKeyPausesAndResumes(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		want := map[string]string{}
		for i := range 100 {
			key := fmt.Sprintf("k%02d", i)
			r.publish(ev(key, 1), ev(key, 2))
			want[key] = "1 2"
		}
		var broken atomic.Bool
		var tried atomic.Int32
		broken.Store(true)
		run := r.start(func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
			tried.Add(1)
			if broken.Load() {
				return errBoom
			}
			return apply(ctx, tx, event)
		}, nil)
		r.after(30 * time.Minute)
		if h := run.Health(); h.State != Red || !h.Paused {
			t.Errorf("health of a paused consumer: %+v", h)
		}
		counts, _ := r.st.CountHeld(t.Context(), "g")
		// Ten keys showed it; later one event per several trials is set aside.
		if counts.Retry < 10 || counts.Retry > 25 || counts.Dead > 0 {
			t.Errorf("held after half an hour: %+v", counts)
		}
		// Each of the hundred keys was probed soon; later there are one or two probes
		// a minute, of the stream and of what is held.
		if n := tried.Load(); n < 100 || n > 230 {
			t.Errorf("the handler was tried %d times in half an hour", n)
		}
		broken.Store(false)
		r.until("all applied", func() bool { return len(r.st.Rows("count")) == 200 })
		r.wantHistory(want)
		r.until("lag 0", func() bool { return r.b.Lag("g", topic) == 0 })
		r.until("health", func() bool { return run.Health().State == Green })
		if r.said("paused") != 1 || r.said("resumed") != 1 {
			t.Errorf("paused %d times, resumed %d times", r.said("paused"), r.said("resumed"))
		}
	})
}

func TestPausedConsumerRecoversByWhatItHolds(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		for i := range 10 {
			r.publish(ev(fmt.Sprintf("k%d", i), 1))
		}
		var broken atomic.Bool
		broken.Store(true)
		run := r.start(func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
			if broken.Load() {
				return errBoom
			}
			return apply(ctx, tx, event)
		}, nil)
		r.until("paused", func() bool { return run.Health().Paused })
		r.after(time.Hour)
		for _, row := range r.heldRows() {
			if row.Attempts != 1 {
				t.Errorf("an attempt was spent in the pause: %+v", row)
			}
		}
		broken.Store(false)
		r.until("applied", func() bool { return len(r.st.Rows("count")) == 10 })
		r.wantHeld()
	})
}

func TestPoisonAmongGoodKeysDoesNotPause(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		for i := range 50 {
			r.publish(ev(fmt.Sprintf("poison%d", i), 1), ev(fmt.Sprintf("good%d", i), 1))
		}
		run := r.start(func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
			if event.Key[0] == 'p' {
				return errBoom
			}
			return apply(ctx, tx, event)
		}, nil)
		r.until("lag 0", func() bool { return r.b.Lag("g", topic) == 0 })
		if run.Health().Paused || r.said("paused") != 0 {
			// Partitions are read one after the other, so ten poisonous keys in a row are possible.
			t.Logf("paused %d times", r.said("paused"))
		}
		if got := len(r.st.Rows("count")); got != 50 {
			t.Errorf("applied %d, want 50", got)
		}
	})
}

func TestPauseCanBeSwitchedOff(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		for i := range 30 {
			r.publish(ev(fmt.Sprintf("k%d", i), 1))
		}
		config := r.config()
		config.PauseAfter = -1
		r.start(func(context.Context, *memstore.Tx, waybill.Event) error { return errBoom }, config)
		r.until("all held", func() bool { return len(r.held()) == 30 })
	})
}

// A poisonous event at the head of the stream must not keep a healed consumer
// paused for ever.
func TestPausedConsumerPassesAPoisonousHead(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		for i := range 10 {
			r.publish(ev(fmt.Sprintf("dead%d", i), 1))
		}
		run := r.start(func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
			if event.Key == "good" {
				return apply(ctx, tx, event)
			}
			return errBoom
		}, nil)
		r.until("paused", func() bool { return run.Health().Paused })
		r.publish(ev("dead11", 1))
		r.publish(ev("good", 1))
		r.until("good applied", func() bool { return r.history()["good"] == "1" })
	})
}

// Hundreds of events that can never be applied, each of a key of its own, must
// not keep back for days what lies behind them.
func TestPausedConsumerFindsGoodEventsBehindManyPoisonousOnes(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		for i := range 300 {
			r.publish(ev(fmt.Sprintf("poison%03d", i), 1))
		}
		for i := range 300 {
			r.publish(ev(fmt.Sprintf("good%03d", i), 1), ev(fmt.Sprintf("good%03d", i), 2))
		}
		r.start(func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
			if event.Key[0] == 'p' {
				return Dead(errBoom)
			}
			return apply(ctx, tx, event)
		}, nil)
		r.until("paused", func() bool { return r.said("paused") > 0 })
		r.after(30 * time.Minute)
		if got := len(r.st.Rows("count")); got != 600 {
			t.Errorf("applied %d of 600 after half an hour", got)
		}
		if lag := r.b.Lag("g", topic); lag != 0 {
			t.Errorf("lag %d after half an hour", lag)
		}
		for key, versions := range r.history() {
			if versions != "1 2" {
				t.Errorf("history of %s: %q", key, versions)
			}
		}
	})
}

// All that is read at once can never be applied, and what can be lies behind it.
func TestPausedConsumerLooksBehindAWindowOfPoison(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		config := r.config()
		config.BatchSize, config.Workers = 20, 2
		for i := range 400 { // ten windows
			r.publish(ev(fmt.Sprintf("poison%03d", i), 1))
		}
		for i := range 100 {
			r.publish(ev(fmt.Sprintf("good%02d", i), 1))
		}
		r.start(func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
			if event.Key[0] == 'p' {
				return errBoom
			}
			return apply(ctx, tx, event)
		}, config)
		r.until("paused", func() bool { return r.said("paused") > 0 })
		r.after(15 * time.Minute)
		if got := len(r.st.Rows("count")); got != 100 {
			t.Errorf("applied %d of 100 after a quarter of an hour", got)
		}
		if lag := r.b.Lag("g", topic); lag != 0 {
			t.Errorf("lag %d after a quarter of an hour", lag)
		}
	})
}
