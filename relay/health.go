package relay

import (
	"fmt"
	"strings"
	"time"

	"github.com/waybillhq/waybill/store"
)

// State is the relay's health in one word.
type State string

// Green: all flows. Yellow: some events wait. Red: nothing can be sent.
const (
	Green  State = "green"
	Yellow State = "yellow"
	Red    State = "red"
)

// Reason is why the state is not green.
type Reason struct {
	Name  string    `json:"name"` // "database", "broker", "topic", "lanes", "cdc", ...
	Text  string    `json:"text"`
	Since time.Time `json:"since,omitzero"` // by this process's clock
}

// Health is a snapshot for probes and people. A relay also writes it, as JSON,
// beside its heartbeat, for other processes to show.
type Health struct {
	State   State    `json:"state"`
	Reasons []Reason `json:"reasons,omitempty"`
	Stats   Stats    `json:"stats"`
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

// Health returns the relay's health, at most one renewal old.
func (r *Relay) Health() Health {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.health
}

func (r *Relay) setHealth(h Health) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.health = h
}

// judge draws the health from the scheduler's state.
func (s *scheduler) judge() Health {
	h := Health{State: Green, Stats: s.stats()}
	add := func(state State, reason Reason) {
		h.Reasons = append(h.Reasons, reason)
		if state == Red || h.State == Green {
			h.State = state
		}
	}
	if s.database.down {
		add(Red, Reason{Name: "database", Text: s.database.err.Error(), Since: s.database.since})
	}
	if s.brokerPause.active {
		add(Red, Reason{Name: "broker", Text: s.brokerPause.err.Error(), Since: s.brokerPause.since})
	}
	if len(s.lanes) == 0 && s.mode() != store.ModeCDC {
		add(Yellow, Reason{Name: "lanes", Text: "this relay holds no lane; others do"})
	}
	if reason, ok := s.feedReason(); ok {
		add(Yellow, reason)
	}
	for _, p := range s.topicPauses {
		add(Yellow, Reason{Name: "topic", Text: p.topic + ": " + p.err.Error(), Since: p.since})
	}
	if n := s.deadKeys; n > 0 {
		add(Yellow, Reason{Name: "dead", Text: fmt.Sprintf("%d keys are held by a DEAD event: retry or skip it", n)})
	}
	return h
}

func (s *scheduler) stats() Stats {
	st := Stats{Lanes: len(s.lanes), Rows: len(s.known), InFlight: s.flying, Unsettled: s.changes.rows() + s.applying, Feed: s.feedStatus()}
	for _, k := range s.keys {
		switch k.state {
		case held:
			st.HeldKeys++
		case draining:
			st.Draining++
		}
	}
	return st
}
