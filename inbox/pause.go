package inbox

import (
	"sync"
	"time"

	"github.com/waybillhq/waybill/store"
)

// pause decides whether failures are the events' own or everyone's. It is on
// once enough different keys failed with no success between them, and off after
// the first success. That proves the handler able, so the next time soon after it
// takes twice as many keys: else a long row of bad events would cost a pause for
// every few of them.
type pause struct {
	after    int
	most     int // keys that it may take at last
	min, max time.Duration
	changed  func(on bool)

	mu      sync.Mutex
	limit   int       // keys that it takes now
	off     time.Time // when it went off last
	failing map[store.HeldKeyRef]struct{}
	on      bool
	resumed chan struct{} // closed when it goes off
	trials  [2]trial
}

// trial is when one of the two sources of events, the stream and what is held,
// may try one.
type trial struct {
	step int
	due  time.Time
}

const (
	fromStream = iota
	fromHeld
)

func newPause(c *Config, changed func(on bool)) *pause {
	return &pause{
		after: c.PauseAfter, limit: c.PauseAfter, most: max(c.PauseAfter, c.window()), min: c.PauseMin, max: c.PauseMax, changed: changed,
		failing: make(map[store.HeldKeyRef]struct{}),
	}
}

// failed notes the failure of a key's event, and reports whether the processor
// is paused by now.
func (p *pause) failed(key store.HeldKeyRef) bool {
	if p.after < 0 {
		return false
	}
	p.mu.Lock()
	p.failing[key] = struct{}{}
	if !p.on && now().Sub(p.off) > p.max {
		p.limit = p.after
	}
	turned := !p.on && len(p.failing) >= p.limit
	if turned {
		p.on = true
		p.resumed = make(chan struct{})
		p.trials = [2]trial{}
		for i := range p.trials {
			p.next(i)
		}
	}
	on := p.on
	p.mu.Unlock()
	if turned {
		p.changed(true)
	}
	return on
}

// succeeded notes that an event was applied.
func (p *pause) succeeded() {
	p.mu.Lock()
	clear(p.failing)
	turned := p.on
	if turned {
		p.on = false
		close(p.resumed)
		p.off, p.limit = now(), min(2*p.limit, p.most)
	}
	p.mu.Unlock()
	if turned {
		p.changed(false)
	}
}

// state reports whether the processor is paused, how long until this source
// may try an event, and what is closed when the pause ends.
func (p *pause) state(source int) (on bool, wait time.Duration, resumed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.on {
		return false, 0, nil
	}
	return true, p.trials[source].due.Sub(now()), p.resumed
}

// probes returns how many events of the stream may be tried now that its trial is
// due: one more each time.
func (p *pause) probes() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return min(p.trials[fromStream].step, max(p.after, 1))
}

// tried puts off the source's next trial.
func (p *pause) tried(source int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next(source)
}

func (p *pause) next(source int) {
	t := &p.trials[source]
	t.step++
	t.due = now().Add(backoff(t.step, p.min, p.max))
}

// failingKeys is for people.
func (p *pause) failingKeys() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.failing)
}
