package ops

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/waybillhq/waybill/cdc"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/store"
)

// LogStatus is how the database's own log is read, as the relay that could read
// it tells. Its JSON form is stable; numbers that are not known are -1.
type LogStatus struct {
	// Set is the mode that was set for all relays, empty where each follows its own
	// configuration. Mode is what the relay does.
	Set  string `json:"set"`
	Mode string `json:"mode"`
	// State is OFF, STANDBY, OPENING, CATCHING_UP, STREAMING, WAITING, or what keeps
	// the log from being read; empty when no live relay tells.
	State  string    `json:"state"`
	Since  time.Time `json:"since,omitzero"`
	Error  string    `json:"error,omitempty"`
	Relay  string    `json:"relay,omitempty"` // its host
	Source string    `json:"source,omitempty"`
	// Position is how far the log was read, SavedAt when that was last written down.
	Position string    `json:"position,omitempty"`
	SavedAt  time.Time `json:"saved_at,omitzero"`
	// DelaySeconds is how long the log takes to show what was committed.
	DelaySeconds float64 `json:"delay_seconds"`
	// LagBytes is what the reader is behind the log's end, RetainedBytes what the
	// database keeps for it, LimitBytes how much of it at most.
	LagBytes      int64 `json:"lag_bytes"`
	RetainedBytes int64 `json:"retained_bytes"`
	LimitBytes    int64 `json:"limit_bytes"`
	// HeadroomHours is how long a reader may stay away until its position is lost.
	HeadroomHours float64 `json:"headroom_hours"`
	// Counts of the relay's process.
	Told        uint64    `json:"told"`
	Restarts    uint64    `json:"restarts"`
	CatchUps    uint64    `json:"catch_ups"`
	Losses      uint64    `json:"losses"`
	LastLoss    string    `json:"last_loss,omitempty"`
	LastLossAt  time.Time `json:"last_loss_at,omitzero"`
	Truncates   uint64    `json:"truncates"`
	Undecodable uint64    `json:"undecodable"`
	Unseen      uint64    `json:"unseen"`
}

// ReadLog tells how the log is read; nil where nobody reads one and no mode was
// set.
func ReadLog(ctx context.Context, st store.Positions, relays []store.RelayState) (*LogStatus, error) {
	set, err := st.ReadMode(ctx)
	if err != nil {
		return nil, err
	}
	positions, err := st.ListPositions(ctx)
	if err != nil {
		return nil, err
	}
	status := &LogStatus{Set: set, LagBytes: -1, RetainedBytes: -1, LimitBytes: -1, HeadroomHours: -1}
	for i := range relays {
		if r := &relays[i]; r.ExpiresIn > 0 {
			status.hear(r)
		}
	}
	if status.State == "" && set == "" && len(positions) == 0 {
		return nil, nil
	}
	for _, p := range positions {
		if status.Source == "" || status.Source == p.Source {
			status.Source, status.SavedAt = p.Source, p.UpdatedAt
			if status.Position == "" {
				status.Position = p.Position
			}
		}
	}
	return status, nil
}

// hear takes what a relay says of its feed. One that stands by knows less than
// one that holds the lanes.
func (s *LogStatus) hear(r *store.RelayState) {
	var report relay.Health
	if json.Unmarshal(r.Report, &report) != nil || report.Stats.Feed == nil {
		return
	}
	feed := report.Stats.Feed
	if s.State != "" && (feed.State == cdc.Standby || feed.State == cdc.Off) {
		return
	}
	s.Mode, s.State, s.Since, s.Error = feed.Mode, string(feed.State), feed.Since, feed.Error
	s.Relay, s.Source, s.Position = r.Host, feed.Source, feed.Position
	s.DelaySeconds = seconds(feed.Delay)
	s.Told, s.CatchUps, s.Truncates, s.Undecodable, s.Unseen = feed.Told, feed.CatchUps, feed.Truncates, feed.Undecodable, feed.Unseen
	s.Restarts = max(feed.Streams, 1) - 1
	s.Losses, s.LastLoss, s.LastLossAt = feed.Losses, string(feed.LastLoss), feed.LastLossAt
	if log := feed.Log; log != nil {
		s.LagBytes, s.RetainedBytes, s.LimitBytes = log.LagBytes, log.RetainedBytes, log.LimitBytes
		if s.HeadroomHours = -1; log.Headroom >= 0 {
			s.HeadroomHours = log.Headroom.Hours()
		}
	}
}

// CheckLog is the doctor's name for the database's own log.
const CheckLog = "database log"

// leastHeadroom is how long a reader should be able to stay away.
const leastHeadroom = 4 * time.Hour

// log examines the database's own log where it is to be read, and what is kept
// for nobody where it is not.
func (d *doctor) log(ctx context.Context) error {
	positions, ok := d.store.(store.Positions)
	if !ok || d.config.Source == nil {
		return nil
	}
	mode, err := positions.ReadMode(ctx)
	if err != nil {
		return err
	}
	if mode == "" {
		mode = d.config.Mode
	}
	status, err := d.config.Source.Status(ctx)
	if mode != store.ModeCDC {
		// A slot that nobody reads keeps the log until the disk is full.
		if err == nil && status.RetainedBytes > 0 {
			d.found(Examination{
				Check: CheckLog, Detail: fmt.Sprintf("the mode is %s, and the database keeps %s of its log for %s", store.ModePoll, sizeText(status.RetainedBytes), d.config.Source.Name()),
				Hint: "let it go: waybill relay mode poll --reason TEXT",
			})
		}
		return nil
	}
	e := Examination{Check: CheckLog}
	switch {
	case err != nil:
		e.Detail, e.Hint = "cannot be looked at: "+err.Error(), "mend what it says; until then events are read from the queue"
	case status.State.Lost():
		e.Detail, e.Hint = string(status.State), "a running relay begins anew by itself; if this stays, look at its log"
	case status.Headroom >= 0 && status.Headroom < leastHeadroom:
		e.Detail = fmt.Sprintf("a relay that is away for %s loses its position", round(status.Headroom))
		e.Hint = "raise the limit (max_slot_wal_keep_size, or binlog_expire_logs_seconds): a lost position costs no event, but time"
	default:
		e.OK, e.Detail = true, fmt.Sprintf("%s at %s, %s behind", d.config.Source.Name(), status.End, sizeText(status.LagBytes))
	}
	d.found(e)
	if checker, ok := d.config.Source.(cdc.Checker); ok {
		for _, c := range checker.Check(ctx) {
			d.found(Examination{Check: CheckLog + ": " + c.Name, OK: c.OK, Detail: c.Detail, Hint: c.Hint})
		}
	}
	return nil
}

// sizeText writes a number of bytes for people.
func sizeText(n int64) string {
	switch {
	case n < 0:
		return "an unknown part"
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}

// SetMode changes how relays find events: store.ModeCDC, store.ModePoll, or empty
// for what each is configured for. Where the log is not to be read any more, what
// the source made the database keep is dropped: by the relay that reads it, or
// here when none does. Running relays notice within a renewal.
func SetMode(ctx context.Context, st store.Positions, source cdc.Source, action store.Action, mode string) error {
	if err := st.SetMode(ctx, action, mode); err != nil {
		return err
	}
	if mode != store.ModePoll || source == nil {
		return nil
	}
	err := source.Drop(ctx)
	if cdc.StateOf(err) == cdc.Waiting {
		return nil // the relay that reads it lets it go
	}
	return err
}
