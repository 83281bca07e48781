package inbox

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/waybillhq/waybill/store"
)

// The states of [Health].
const (
	Green  = "green"
	Yellow = "yellow" // it works, and a person should look
	Red    = "red"    // it does not work, or not yet
)

// Health is how a processor fares.
type Health struct {
	State   string
	Reasons []string // empty when green
	Running bool
	Paused  bool
	// OldestUnconsumed is the time since the broker stored the oldest record
	// that was received and is not settled; 0 when there is none.
	OldestUnconsumed time.Duration
	// Held is what the group holds, as counted last.
	Held store.HeldCounts
}

// complaintEvery is the time between two log lines about one trouble.
const complaintEvery = 10 * time.Second

const (
	troubleDatabase = "database"
	troubleBroker   = "broker"
	troublePosition = "position"
	troubleReaders  = "partition readers"
	troubleHeld     = "held events"
	troubleShare    = "sharing of partitions"
)

// condition is what goes wrong at present, and when it was last said so.
type condition struct {
	log    *slog.Logger
	events *Events

	mu       sync.Mutex
	troubles map[string]*trouble
	running  bool
	ready    bool // subscribed, with a schema that fits
	oldest   time.Time
	held     store.HeldCounts
}

type trouble struct {
	err  error
	said time.Time
}

func newCondition(log *slog.Logger, events *Events) *condition {
	return &condition{log: log, events: events, troubles: make(map[string]*trouble)}
}

// complain notes a trouble and logs it, once per interval.
func (c *condition) complain(source string, err error) {
	c.mu.Lock()
	t := c.troubles[source]
	if t == nil {
		t = &trouble{}
		c.troubles[source] = t
	}
	t.err = err
	say := t.said.IsZero() || now().Sub(t.said) >= complaintEvery
	if say {
		t.said = now()
	}
	c.mu.Unlock()
	if say {
		c.log.Error("consumer in trouble, trying again", "with", source, "error", err)
	}
	tell(c.events.Trouble, TroubleInfo{Source: source, Err: err})
}

// fine ends a trouble.
func (c *condition) fine(source string) {
	c.mu.Lock()
	_, was := c.troubles[source]
	delete(c.troubles, source)
	c.mu.Unlock()
	if was {
		c.log.Info("consumer out of trouble", "with", source)
	}
}

func (c *condition) update(change func(*condition)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
}

// Health reports how the processor fares. It asks no one, so it answers at once.
func (p *Processor[TX]) Health() Health {
	paused, _, _ := p.pause.state(fromStream)
	failing := p.pause.failingKeys()
	c := p.condition
	c.mu.Lock()
	defer c.mu.Unlock()
	h := Health{State: Green, Running: c.running, Paused: paused, Held: c.held}
	if !c.oldest.IsZero() {
		h.OldestUnconsumed = max(now().Sub(c.oldest), 0)
	}
	worse := func(state, format string, args ...any) {
		if h.State != Red {
			h.State = state
		}
		h.Reasons = append(h.Reasons, fmt.Sprintf(format, args...))
	}
	switch {
	case !c.running:
		worse(Red, "not running")
	case !c.ready && len(c.troubles) == 0:
		worse(Red, "starting")
	}
	for source, t := range c.troubles {
		if source == troublePosition {
			worse(Yellow, "%s: %v", source, t.err)
		} else {
			worse(Red, "%s: %v", source, t.err)
		}
	}
	if paused {
		worse(Red, "paused: the handler failed for %d keys in a row", failing)
	}
	if c.held.Dead > 0 {
		worse(Yellow, "%d dead events", c.held.Dead)
	}
	slices.Sort(h.Reasons)
	return h
}
