package ops

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/store"
)

// StatusStore is what [ReadStatus] reads.
type StatusStore interface {
	store.Schema
	store.Inspector
	store.Leases
	store.Positions
}

// StatusConfig adjusts [ReadStatus]. Nil means all defaults.
type StatusConfig struct {
	// MaxPendingAge is the age of the oldest pending event from which on it is
	// a reason for alarm. 0 means one minute; below 0 means never.
	MaxPendingAge time.Duration
	// Inboxes are the consumers' databases. Empty means that nothing is said
	// about consumers.
	Inboxes []Inbox
	// CheckWrite asks whether the database can be written, which costs a small
	// write where only that tells.
	CheckWrite bool
	// NoTrigger says that producers queue their events themselves, so no trigger
	// is expected.
	NoTrigger bool
}

// The states that a [Status] can be in.
const (
	Green  = "green"  // nothing to do
	Yellow = "yellow" // events flow, but somebody should look
	Red    = "red"    // events do not flow
)

// Status is the outbox at one moment. Its JSON form is stable.
type Status struct {
	State     string           `json:"state"`
	Reasons   []string         `json:"reasons"` // the texts of Causes; never nil
	Causes    []Cause          `json:"causes"`  // why State is not green; never nil
	Queue     QueueStatus      `json:"queue"`
	Lanes     LaneStatus       `json:"lanes"`
	Relays    []RelayStatus    `json:"relays"`    // never nil
	Consumers []ConsumerStatus `json:"consumers"` // never nil
	Schema    SchemaStatus     `json:"schema"`
	Delivery  DeliveryStatus   `json:"delivery"`
	// Log is absent where the database's own log is not read.
	Log *LogStatus `json:"log,omitempty"`
}

// QueueStatus counts unsettled events.
type QueueStatus struct {
	Pending              int64   `json:"pending"` // those in backoff included
	Failed               int64   `json:"failed"`  // pending with at least one failed attempt
	Dead                 int64   `json:"dead"`
	Parked               int64   `json:"parked"` // dead, in backoff, or behind one of these
	OldestPendingSeconds float64 `json:"oldest_pending_seconds"`
}

// LaneStatus counts lanes by ownership.
type LaneStatus struct {
	Total   int `json:"total"`
	Owned   int `json:"owned"`   // under a live lease
	Expired int `json:"expired"` // their owner vanished
	Free    int `json:"free"`
}

// RelayStatus is one relay process.
type RelayStatus struct {
	Owner     string          `json:"owner"`
	Host      string          `json:"host"`
	Mode      string          `json:"mode"`
	Live      bool            `json:"live"`
	Lanes     int             `json:"lanes"` // under a live lease
	StartedAt time.Time       `json:"started_at"`
	Report    json.RawMessage `json:"report,omitempty"` // what it says of itself
}

// SchemaStatus is what the tables say of themselves.
type SchemaStatus struct {
	Version int  `json:"version"`
	Trigger bool `json:"trigger"`
	Outbox  bool `json:"outbox"`
	Inbox   bool `json:"inbox"`
}

// ReadStatus reads the status of an outbox. Tables that are missing or of
// another version are an error, not a status.
func ReadStatus(ctx context.Context, st StatusStore, config *StatusConfig) (Status, error) {
	if config == nil {
		config = &StatusConfig{}
	}
	meta, err := st.ReadMeta(ctx)
	if err != nil {
		return Status{}, err
	}
	if !meta.Outbox {
		return Status{}, fmt.Errorf("read status: the outbox is not in this database: %w", store.ErrNoSchema)
	}
	counts, err := st.Counts(ctx)
	if err != nil {
		return Status{}, err
	}
	leases, err := st.ListLeases(ctx)
	if err != nil {
		return Status{}, err
	}
	relays, err := st.ListRelays(ctx)
	if err != nil {
		return Status{}, err
	}
	status := Status{
		Queue: QueueStatus{
			Pending: counts.Pending, Failed: counts.Failed, Dead: counts.Dead, Parked: counts.Parked,
			OldestPendingSeconds: seconds(counts.OldestAge),
		},
		Relays: make([]RelayStatus, 0, len(relays)),
		Schema: SchemaStatus{Version: meta.Version, Trigger: meta.Trigger, Outbox: meta.Outbox, Inbox: meta.Inbox},
	}
	lanesOf := status.Lanes.count(leases)
	for _, r := range relays {
		rs := RelayStatus{
			Owner: r.Owner, Host: r.Host, Mode: r.Mode, Live: r.ExpiresIn > 0,
			Lanes: lanesOf[r.Owner], StartedAt: r.StartedAt,
		}
		if json.Valid(r.Report) {
			rs.Report = r.Report
		}
		status.Relays = append(status.Relays, rs)
	}
	if status.Log, err = ReadLog(ctx, st, relays); err != nil {
		return Status{}, err
	}
	status.Consumers = ReadConsumers(ctx, config.Inboxes)
	found := causes{state: Green, all: []Cause{}}
	if config.CheckWrite {
		unwritable(ctx, st, &found)
	}
	delivery, unconfirmed, err := readDelivery(ctx, st)
	if err != nil {
		return Status{}, err
	}
	status.Delivery = DeliveryStatus{Mode: delivery.Mode(), Cut: delivery.Cut, Unconfirmed: unconfirmed.Events, OldestUnconfirmedSeconds: seconds(unconfirmed.OldestAge)}
	judgeDelivery(delivery, unconfirmed, orDefault(config.MaxPendingAge, time.Minute), &found)
	if !meta.Trigger && !config.NoTrigger && !delivery.External {
		found.add(Yellow, CauseNoTrigger, "waybill migrate; then waybill doctor, which finds what was missed", "the queue trigger is missing: an event inserted by plain SQL is never sent")
	}
	status.judge(&found, counts, config.MaxPendingAge)
	return status, nil
}

// count fills s and returns the number of live leases of each owner. The
// table may have no row yet for a lane that nobody has ever claimed.
func (s *LaneStatus) count(leases []store.LeaseState) map[string]int {
	owned := make(map[string]int)
	s.Total = store.Lanes
	for _, l := range leases {
		switch {
		case l.Owner == "":
		case l.ExpiresIn > 0:
			s.Owned++
			owned[l.Owner]++
		default:
			s.Expired++
		}
	}
	s.Free = max(s.Total-s.Owned-s.Expired, 0)
	return owned
}

// judge derives State and Reasons. A stopped relay alone is red even with an
// empty queue: the next event would stay where it is.
func (s *Status) judge(found *causes, counts store.Counts, maxAge time.Duration) {
	if maxAge == 0 {
		maxAge = time.Minute
	}
	switch unowned := s.Lanes.Total - s.Lanes.Owned; {
	case s.Lanes.Owned == 0 && s.Lanes.Expired > 0:
		found.add(Red, CauseNoRelay, fixStartRelay, "no relay is running: no lane has a live owner; %d belong to one that vanished", s.Lanes.Expired)
	case s.Lanes.Owned == 0:
		found.add(Red, CauseNoRelay, fixStartRelay, "no relay is running: no lane has a live owner")
	case unowned > 0:
		found.add(Yellow, CauseLanesUnowned, fixLanes,
			"%d of %d lanes have no live owner", unowned, s.Lanes.Total)
	}
	if maxAge > 0 && counts.OldestAge > maxAge {
		found.add(Red, CausePendingOld, "look at the other reasons first; else follow the event: waybill trace ID (waybill doctor names it)",
			"the oldest pending event is %s old, limit %s", round(counts.OldestAge), maxAge)
	}
	if s.Queue.Dead > 0 {
		found.add(Yellow, CauseDead, fixDead, "%d dead %s for a decision: retry or skip", s.Queue.Dead, plural(s.Queue.Dead, "event waits", "events wait"))
	}
	for _, r := range s.Relays {
		s.relaySays(r, found)
	}
	for i := range s.Consumers {
		s.Consumers[i].judge(found, maxAge)
	}
	s.State, s.Causes, s.Reasons = found.state, found.all, make([]string, len(found.all))
	for i, c := range found.all {
		s.Reasons[i] = c.Text
	}
}

// relaySays adds what a live relay alone can know: that the other side is
// away. The rest of its report is what the tables told already.
func (s *Status) relaySays(r RelayStatus, found *causes) {
	if !r.Live {
		return
	}
	for _, reason := range relayReasons(r.Report) {
		name, fix := relayCause(reason.Name, reason.Text)
		found.add(string(reason.state), name, fix, "relay %s: %s: %s", r.Host, reason.Name, reason.Text)
	}
}

type relayReason struct {
	relay.Reason
	state relay.State
}

// relayReasons returns what a relay's report says of the other sides.
func relayReasons(text []byte) []relayReason {
	var report relay.Health
	if json.Unmarshal(text, &report) != nil {
		return nil
	}
	var reasons []relayReason
	for _, reason := range report.Reasons {
		switch reason.Name {
		case "database", "broker", "topic", "cdc":
			reasons = append(reasons, relayReason{reason, report.State})
		}
	}
	return reasons
}

func seconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }

// round shortens a duration for people.
func round(d time.Duration) time.Duration {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second)
	case d >= time.Second:
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}

func plural(n int64, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
