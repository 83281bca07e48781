package inbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/store/memstore"
)

// Whatever goes wrong, in the end every event has had its effect once, and each
// key's events in their order.
func TestChaosEndsWithEveryEffectOnceAndInOrder(t *testing.T) {
	seeds := 20
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		for _, unshared := range []bool{false, true} {
			t.Run(fmt.Sprintf("seed %d unshared %v", seed, unshared), func(t *testing.T) {
				bubble(t, func(t *testing.T, r *rig) {
					chaos(t, r, uint64(seed), unshared)
				})
			})
		}
	}
}

func chaos(t *testing.T, r *rig, seed uint64, unshared bool) {
	dice := &dice{rng: rand.New(rand.NewPCG(seed, 1)), on: true}
	config := r.widen()
	config.BatchSize = 8
	config.Grace = 10 * time.Second
	config.HandlerTimeout = 2 * time.Second
	// A partition that goes from hand to hand looks like one whose readers die.
	config.CrashTries = 1000
	for range 30 {
		config.Schedule = append(config.Schedule, time.Second)
	}
	free := make(chan struct{})
	handler := func(ctx context.Context, tx *memstore.Tx, event waybill.Event) error {
		if dice.hits(30) {
			pauseFor(ctx, time.Duration(dice.roll(1500))*time.Millisecond)
		}
		if err := apply(ctx, tx, event); err != nil {
			return err
		}
		switch {
		case dice.hits(20):
			return errBoom
		case dice.hits(60):
			panic("chaos")
		case dice.hits(300):
			<-free // ignores its context
			if ctx.Err() != nil {
				_ = apply(context.WithoutCancel(ctx), tx, event)
			}
			return nil
		case dice.hits(200):
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	r.st.SetError(func(op string) error {
		if dice.hits(150) {
			return fmt.Errorf("%s: connection reset", op)
		}
		return nil
	})
	r.st.SetLostAnswer(func(op string) error {
		if op == "commit" && dice.hits(40) {
			return errors.New("no answer")
		}
		return nil
	})
	join := func() *running {
		var sub broker.Subscriber = r.b.Connect()
		if unshared {
			sub = r.b.Unshared()
		}
		return r.startOn(r.st, sub, handler, config)
	}
	var members []*running
	var want strings.Builder
	for version := int64(1); version <= 15; version++ {
		fmt.Fprintf(&want, " %d", version)
		r.publish(wideEvents(version)...)
		switch {
		case len(members) < 2 || dice.hits(4):
			members = append(members, join())
		case len(members) > 2 && dice.hits(2):
			_ = members[0].stop()
			members = members[1:]
		}
		if dice.hits(3) && !unshared {
			r.b.ExpireSessions("g")
		}
		if dice.hits(5) {
			r.b.Outage(true)
			r.after(time.Second)
			r.b.Outage(false)
		}
		r.after(time.Duration(dice.roll(1500)) * time.Millisecond)
	}
	dice.stop()
	close(free)
	r.until("all settled", func() bool {
		return r.b.Lag("g", wide) == 0 && len(r.held()) == 0
	})
	for key, want := range wideHistory(want.String()[1:]) {
		if got := r.history()[key]; got != want {
			var about []string
			for _, line := range r.lines() {
				if strings.Contains(line, key) {
					about = append(about, line)
				}
			}
			t.Errorf("history of %s: got %s, want %s\n%s", key, got, want, strings.Join(about, "\n"))
		}
	}
	for id, count := range r.st.Rows("count") {
		if count != "x" {
			t.Errorf("event %s has had its effect %d times", id, len(count))
		}
	}
	for _, member := range members {
		if err := member.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

// dice says yes once in so many times, as long as it is on.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
	on  bool
}

func (d *dice) hits(oneIn int) bool { return d.roll(oneIn) == 0 }

func (d *dice) roll(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.on {
		return 1
	}
	return d.rng.IntN(n)
}

func (d *dice) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.on = false
}
