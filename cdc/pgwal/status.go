package pgwal

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/waybillhq/waybill/cdc"
)

// Who else's synchronous_standby_names would have commits wait for this reader.
const readSyncSQL = `
SELECT r.sync_state FROM pg_stat_replication r JOIN pg_replication_slots s ON s.active_pid = r.pid
WHERE s.slot_name = $1 AND r.sync_state IN ('sync', 'quorum')`

// Status looks at slot, publication and server.
func (s *Source) Status(ctx context.Context) (cdc.Status, error) {
	found, err := s.look(ctx)
	if err != nil {
		return cdc.Status{}, err
	}
	status := cdc.Status{End: position(found.end), LagBytes: -1, RetainedBytes: -1, LimitBytes: -1, Headroom: -1}
	if found.keepMB >= 0 {
		status.LimitBytes = found.keepMB << 20
	}
	slot := found.slot
	if slot == nil {
		status.State, status.Detail = cdc.LostSlot, "there is no slot "+s.config.Slot
		return status, nil
	}
	status.Position, status.Holder = cdc.Position(slot.Confirmed), found.holder
	status.LagBytes = behind(found.end, slot.Confirmed)
	status.RetainedBytes = behind(found.end, slot.Restart)
	rate := s.observe(found)
	status.Headroom = headroom(found, rate)
	details := s.details(ctx, found)
	switch reason := slot.lost(); {
	case reason != "":
		status.State, status.Headroom = cdc.WALRemoved, 0
		details = append(details, reason)
	case slot.Active:
		status.State = cdc.Streaming
	default:
		status.State = cdc.Waiting
	}
	status.Detail = strings.Join(details, "; ")
	return status, nil
}

// details are what an operator may have to know besides.
func (s *Source) details(ctx context.Context, found server) []string {
	var details []string
	if reason := found.slot.foreign(found.database); reason != "" {
		details = append(details, "the slot "+reason)
	}
	switch found.slot.WALStatus {
	case "extended":
		details = append(details, "the slot keeps more log than max_wal_size")
	case "unreserved":
		details = append(details, "the slot is beyond max_slot_wal_keep_size: the next checkpoint removes what it needs")
	}
	if found.slot.Failover {
		details = append(details, "standbys keep the slot too")
	}
	// A table that was dropped and made anew is in no publication, and nothing else
	// would tell.
	if t, err := s.findTable(ctx); err != nil {
		details = append(details, err.Error())
	} else if p, err := s.readPublication(ctx, t); err != nil {
		details = append(details, err.Error())
	} else if err := s.checkPublication(t, p); err != nil {
		details = append(details, err.Error())
	}
	return details
}

// behind is how many bytes of log lie between; -1 where there is no place.
func behind(end pglogrepl.LSN, place string) int64 {
	lsn, err := pglogrepl.ParseLSN(place)
	if err != nil {
		return -1
	}
	return max(0, int64(end)-int64(lsn))
}

// rate is how fast the log grows, seen from two looks.
type rate struct {
	end    pglogrepl.LSN
	at     time.Time
	recent float64 // bytes a second; 0 until there were two looks
}

// rateOver is the shortest time that tells a rate.
const rateOver = 10 * time.Second

// observe returns how many bytes a second are written: lately, or else since the
// server's statistics began.
func (s *Source) observe(found server) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch passed := found.at.Sub(s.rate.at); {
	case s.rate.at.IsZero(), passed < 0, found.end < s.rate.end:
		s.rate = rate{end: found.end, at: found.at}
	case passed >= rateOver:
		s.rate = rate{end: found.end, at: found.at, recent: float64(found.end-s.rate.end) / passed.Seconds()}
	}
	if s.rate.recent > 0 {
		return s.rate.recent
	}
	return found.average
}

// headroom is how long nobody may read until the slot is lost; -1 where no limit
// is set or the rate is not known.
func headroom(found server, bytesPerSecond float64) time.Duration {
	room := time.Duration(-1)
	if found.slot.SafeSize != nil && bytesPerSecond > 0 {
		seconds := min(max(0, float64(*found.slot.SafeSize))/bytesPerSecond, (10 * 365 * 24 * time.Hour).Seconds())
		room = time.Duration(seconds * float64(time.Second))
	}
	if found.idleLimit <= 0 {
		return room
	}
	left := found.idleLimit
	if !found.slot.Active && found.slot.Inactive != nil {
		if at, err := time.Parse(time.RFC3339Nano, *found.slot.Inactive); err == nil {
			left = max(0, left-found.at.Sub(at))
		}
	}
	if room < 0 || left < room {
		return left
	}
	return room
}
