package relay

import (
	"fmt"
	"time"
)

// Events are hooks for metrics, traces and logs. Any may be nil. They are
// called from the relay's one scheduling goroutine: they should return quickly,
// and must not call back into the relay.
type Events struct {
	// Fetched follows each read that found new rows.
	Fetched func(FetchedInfo)
	// Published follows each event that the broker accepted.
	Published func(PublishedInfo)
	// Failed follows each attempt that the broker refused or did not answer.
	Failed func(FailedInfo)
	// Settled follows each transaction that removed or changed queue rows.
	Settled func(SettledInfo)
	// Paused and Resumed frame an outage of the broker, of a topic, or of the database.
	Paused  func(PausedInfo)
	Resumed func(PausedInfo)
	// Leases follows each change of the lanes held.
	Leases func(LeasesInfo)
	// StaleWrite follows a write that changed nothing because its lease was lost.
	StaleWrite func(StaleWriteInfo)
	// OutOfOrder follows an event whose version is lower than one sent before it.
	OutOfOrder func(PublishedInfo)
	// Feed follows each change of what the database's log is good for.
	Feed func(FeedInfo)
	// Stats comes with each renewal, about every 3 s.
	Stats func(Stats)
}

// FetchedInfo tells of a read.
type FetchedInfo struct {
	Rows int
	Took time.Duration
}

func (i FetchedInfo) String() string { return fmt.Sprintf("fetched %d rows", i.Rows) }

// EventInfo names an event.
type EventInfo struct {
	ID          int64
	EventID     string
	Topic       string
	Key         string
	Type        string
	Attempt     int // this one, from 1
	Skipped     bool
	TraceParent string
}

func (i EventInfo) String() string {
	return fmt.Sprintf("event %s topic %s key %q attempt %d", i.EventID, i.Topic, i.Key, i.Attempt)
}

// PublishedInfo tells of an accepted event.
type PublishedInfo struct {
	EventInfo
	// Age is the time from insertion to acceptance.
	Age time.Duration
	// Took is the duration of the Publish call.
	Took time.Duration
}

func (i PublishedInfo) String() string {
	if i.Skipped {
		return "published skip marker of " + i.EventInfo.String()
	}
	return "published " + i.EventInfo.String()
}

// FailedInfo tells of an event that was not accepted.
type FailedInfo struct {
	EventInfo
	Class   string // as in package broker: "permanent", "unknown", ...
	Err     error
	Dead    bool          // no further attempt
	RetryIn time.Duration // until the next attempt, unless Dead
}

func (i FailedInfo) String() string {
	if i.Dead {
		return fmt.Sprintf("dead %v: %v", i.EventInfo, i.Err)
	}
	return fmt.Sprintf("failed %v: %v", i.EventInfo, i.Err)
}

// SettledInfo tells of a write to the queue, in rows.
type SettledInfo struct {
	Sent, Skipped, Retried, Dead, Parked int
	Took                                 time.Duration
}

func (i SettledInfo) String() string {
	return fmt.Sprintf("settled sent %d skipped %d retried %d dead %d parked %d", i.Sent, i.Skipped, i.Retried, i.Dead, i.Parked)
}

// PausedInfo tells of an outage.
type PausedInfo struct {
	Scope string // "broker", "topic", "database"
	Topic string
	For   time.Duration
	Err   error
}

func (i PausedInfo) String() string {
	if i.Topic != "" {
		return fmt.Sprintf("%s %s: %v", i.Scope, i.Topic, i.Err)
	}
	return fmt.Sprintf("%s: %v", i.Scope, i.Err)
}

// LeasesInfo tells of a change of lanes.
type LeasesInfo struct {
	Gained, Lost, Released []int
	Owned                  int
	Relays                 int // live ones
}

func (i LeasesInfo) String() string {
	return fmt.Sprintf("lanes: gained %d lost %d released %d, own %d, %d relays", len(i.Gained), len(i.Lost), len(i.Released), i.Owned, i.Relays)
}

// StaleWriteInfo tells of a refused write.
type StaleWriteInfo struct {
	Lanes []int
	Rows  int
}

func (i StaleWriteInfo) String() string {
	return fmt.Sprintf("stale write refused: %d rows of lanes %v", i.Rows, i.Lanes)
}

// Stats is a picture of the relay's memory.
type Stats struct {
	Lanes     int `json:"lanes"`
	Rows      int `json:"rows"`      // known, of any state
	InFlight  int `json:"in_flight"` // given to the broker, without an answer
	HeldKeys  int `json:"held_keys"` // in backoff or behind a DEAD event
	Draining  int `json:"draining"`  // keys that are read one by one
	Unsettled int `json:"unsettled"` // answered, not yet written
	// Feed is nil where the relay can only poll.
	Feed *FeedStatus `json:"feed,omitempty"`
}
