package relay

import (
	"fmt"
	"time"

	"github.com/waybillhq/waybill/cdc"
	"github.com/waybillhq/waybill/store"
)

// FeedInfo tells of a change of the feed from the database's log.
type FeedInfo struct {
	Source string
	State  cdc.State
	Err    error // why, may be nil
}

func (i FeedInfo) String() string {
	if i.Err != nil {
		return fmt.Sprintf("feed %s %s: %v", i.Source, i.State, i.Err)
	}
	return fmt.Sprintf("feed %s %s", i.Source, i.State)
}

// FeedStatus is a picture of the feed from the database's log. Counts are of this
// process.
type FeedStatus struct {
	Mode   string    `json:"mode"` // "poll" or "cdc"
	Source string    `json:"source"`
	State  cdc.State `json:"state"`
	Since  time.Time `json:"since,omitzero"` // by this process's clock
	Error  string    `json:"error,omitempty"`
	// Position is how far the log was read and acknowledged, Committed when the last
	// transaction there committed, by the database's clock.
	Position  string    `json:"position,omitempty"`
	Committed time.Time `json:"committed,omitzero"`
	// Delay is how long the log takes to show what was committed: the round trip of
	// the last mark, or the wait for the one under way if that is longer.
	Delay time.Duration `json:"delay_ns"`
	// Told counts ids that the log told, Queued those that wait to be loaded.
	Told   uint64 `json:"told"`
	Queued int    `json:"queued"`
	// Streams counts streams that were opened: all but the first are restarts.
	Streams uint64 `json:"streams"`
	// CatchUps counts how often the queue was read again because the log told more
	// than could be kept, or left something open.
	CatchUps uint64 `json:"catch_ups"`
	// Losses counts lost positions; LastLoss names the last one.
	Losses     uint64    `json:"losses"`
	LastLoss   cdc.State `json:"last_loss,omitempty"`
	LastLossAt time.Time `json:"last_loss_at,omitzero"`
	Truncates  uint64    `json:"truncates"`
	// Undecodable counts events whose ids could not be read from the log, Unseen
	// those that were told and did not become visible within a minute.
	Undecodable uint64 `json:"undecodable"`
	Unseen      uint64 `json:"unseen"`
	// Log is the last look at the log from outside, nil before the first.
	Log *cdc.Status `json:"log,omitempty"`
}

// feedStatus completes the status that the scheduler keeps.
func (s *scheduler) feedStatus() *FeedStatus {
	if s.config.Source == nil {
		return nil
	}
	f := &s.feed
	st := f.status
	st.Mode, st.Queued = s.mode(), f.told.len()+len(f.missing)
	if f.tail != nil {
		_, wait := f.tail.unanswered()
		st.Delay = max(f.tail.roundTrip(), wait)
	}
	return &st
}

// feedReason says why the log does not help, where it should.
func (s *scheduler) feedReason() (Reason, bool) {
	st := &s.feed.status
	if s.mode() != store.ModeCDC {
		return Reason{}, false
	}
	switch st.State {
	case "", cdc.Off, cdc.Standby, cdc.Opening, cdc.CatchingUp, cdc.Streaming:
		if s.lease.others > 0 {
			return Reason{Name: "cdc", Text: fmt.Sprintf("%d lanes are held by other relays: until this one holds all, it polls", s.lease.others)}, true
		}
		return Reason{}, false
	}
	text := string(st.State)
	if st.Error != "" {
		text = st.Error
	}
	return Reason{Name: "cdc", Text: text + "; events are read from the queue meanwhile", Since: st.Since}, true
}
