package inbox

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/waybillhq/waybill/store"
)

// State is a processor's health in one word.
type State string

// The states of [Health].
const (
	Green  State = "green"
	Yellow State = "yellow" // it works, and a person should look
	Red    State = "red"    // it does not work, or not yet
)

// Reason is why the state is not green.
type Reason struct {
	Name  string    `json:"name"` // "database", "broker", "paused", "dead", ...
	Text  string    `json:"text"`
	Since time.Time `json:"since,omitzero"` // by this process's clock; zero where that is not known
}

// Health is how a processor fares.
type Health struct {
	State   State    `json:"state"`
	Reasons []Reason `json:"reasons,omitempty"` // empty when green
	Running bool     `json:"running"`
	Paused  bool     `json:"paused"`
	// OldestUnconsumed is the time since the broker stored the oldest record
	// that was received and is not settled; 0 when there is none.
	OldestUnconsumed time.Duration `json:"oldest_unconsumed_ns"`
	// Held is what the group holds, as counted last.
	Held store.HeldCounts `json:"-"`
}

func (h Health) String() string {
	texts := make([]string, len(h.Reasons))
	for i, reason := range h.Reasons {
		texts[i] = reason.Name + ": " + reason.Text
	}
	if len(texts) == 0 {
		return string(h.State)
	}
	return fmt.Sprintf("%s (%s)", h.State, strings.Join(texts, "; "))
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
	troubleGaps     = "missing versions"
	troubleLetters  = "dead letters"
	troubleCalls    = "calls to other systems"
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
	gaps     int // aggregates that have waited for a version for too long
}

type trouble struct {
	err   error
	since time.Time
	said  time.Time
}

func newCondition(log *slog.Logger, events *Events) *condition {
	return &condition{log: log, events: events, troubles: make(map[string]*trouble)}
}

// complain notes a trouble and logs it, once per interval.
func (c *condition) complain(source string, err error) {
	c.mu.Lock()
	t := c.troubles[source]
	if t == nil {
		t = &trouble{since: now()}
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
	worse := func(state State, reason Reason) {
		if h.State != Red {
			h.State = state
		}
		h.Reasons = append(h.Reasons, reason)
	}
	switch {
	case !c.running:
		worse(Red, Reason{Name: "stopped", Text: "the processor does not run"})
	case !c.ready && len(c.troubles) == 0:
		worse(Red, Reason{Name: "starting", Text: "the processor has not joined its group yet"})
	}
	for source, t := range c.troubles {
		state := Red
		if source == troublePosition {
			state = Yellow
		}
		worse(state, Reason{Name: source, Text: t.err.Error(), Since: t.since})
	}
	if paused {
		worse(Red, Reason{Name: "paused", Text: fmt.Sprintf("the handler failed for %d keys in a row", failing)})
	}
	if c.held.Dead > 0 {
		worse(Yellow, Reason{Name: "dead", Text: fmt.Sprintf("%d events are DEAD: retry or skip them", c.held.Dead)})
	}
	if c.gaps > 0 {
		worse(Yellow, Reason{Name: "gap", Text: fmt.Sprintf("%d aggregates lack a version that is overdue: release or skip what waits for it", c.gaps)})
	}
	slices.SortFunc(h.Reasons, func(a, b Reason) int { return cmp.Compare(a.Name, b.Name) })
	return h
}
