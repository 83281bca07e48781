package relay

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/waybillhq/waybill/internal/fault"
	"github.com/waybillhq/waybill/store"
)

type leaseState struct {
	busy bool
	next time.Time
	live int // relays
	// share is how many lanes are this relay's due.
	share int
	// others counts lanes of other relays, where this one should have all of them.
	others int
}

type leaseResult struct {
	released  []store.Lease
	sentAt    time.Time // of the renewal
	mode      string    // of all relays
	held      []store.Lease
	live      int
	share     int
	others    int
	claimedAt time.Time
	claimed   []store.Lease
	err       error
}

// firstTries is how often the first renewal may run into its time-out: a busy
// database is no reason to refuse to start, one that cannot be used is.
const firstTries = 5

// firstLease claims lanes before anything else, so that a database that cannot
// be written fails the start.
func (s *scheduler) firstLease(ctx context.Context) error {
	var result leaseResult
	for range firstTries {
		result = s.renew(ctx, s.heartbeat(), nil, true)
		if !errors.Is(result.err, context.DeadlineExceeded) || ctx.Err() != nil {
			break
		}
		s.log.Warn("the database is busy, the relay tries again to claim its lanes", "error", result.err)
	}
	if result.err != nil {
		return result.err
	}
	s.onLeased(result)
	s.log.Info("relay started", "owner", s.relay.owner, "host", s.config.Host, "lanes", len(s.lanes), "relays", s.lease.live)
	return nil
}

func (s *scheduler) heartbeat() store.Heartbeat {
	health := s.judge()
	s.relay.setHealth(health)
	report, err := json.Marshal(health)
	if err != nil {
		report = nil
	}
	beat := store.Heartbeat{Owner: s.relay.owner, Host: s.config.Host, Mode: s.mode(), TTL: s.config.LeaseTTL, Report: report}
	for _, l := range s.lanes {
		beat.Held = append(beat.Held, l.Lease)
	}
	if s.config.Events.Stats != nil {
		s.config.Events.Stats(health.Stats)
	}
	return beat
}

// startLease renews in time, gives back what was drained, and claims its share.
func (s *scheduler) startLease(ctx context.Context) {
	at := now()
	if s.lease.busy || at.Before(s.lease.next) {
		return
	}
	var release []store.Lease
	for _, l := range s.lanes {
		if l.state == leaving && l.busy == 0 {
			release = append(release, l.Lease)
			s.dropLane(l)
		}
	}
	s.lease.busy = true
	s.lease.next = at.Add(s.config.RenewEvery)
	beat := s.heartbeat()
	claims := !s.stopping
	go func() { s.leaseDone <- s.renew(ctx, beat, release, claims) }()
}

// renew asks the store; it runs beside the scheduler. The claim follows the
// number of relays that the renewal finds.
func (s *scheduler) renew(ctx context.Context, beat store.Heartbeat, release []store.Lease, claims bool) (result leaseResult) {
	result.released = release
	ctx, cancel := context.WithTimeout(ctx, s.config.LeaseTTL)
	defer cancel()
	if len(release) > 0 {
		if result.err = s.store.Release(ctx, beat.Owner, release); result.err != nil {
			return result
		}
	}
	if result.mode, result.err = s.store.ReadMode(ctx); result.err != nil {
		return result
	}
	beat.Mode = s.modeWhere(result.mode)
	result.sentAt = now()
	fault.Point("relay.renewing")
	if result.held, result.live, result.err = s.store.Renew(ctx, beat); result.err != nil {
		return result
	}
	if beat.Mode == store.ModeCDC {
		if result.share, result.others, result.err = s.allOrNone(ctx, beat.Owner, len(result.held)); result.err != nil {
			return result
		}
	} else {
		result.share = (store.Lanes + max(result.live, 1) - 1) / max(result.live, 1)
	}
	if want := result.share - len(result.held); want > 0 && claims {
		result.claimedAt = now()
		result.claimed, result.err = s.store.Claim(ctx, beat.Owner, beat.TTL, want)
	}
	return result
}

// allOrNone returns the share of a relay that reads the log: one holds all lanes,
// and the others none until it is gone. Whoever holds the lowest lane goes on.
func (s *scheduler) allOrNone(ctx context.Context, owner string, held int) (share, others int, err error) {
	if held == store.Lanes {
		return store.Lanes, 0, nil
	}
	leases, err := s.store.ListLeases(ctx)
	if err != nil {
		return held, 0, err // neither more nor fewer
	}
	first := ""
	for i := range leases {
		l := &leases[i]
		if l.Owner == "" || l.ExpiresIn <= 0 {
			continue
		}
		if first == "" {
			first = l.Owner
		}
		if l.Owner != owner {
			others++
		}
	}
	if first != "" && first != owner {
		return 0, 0, nil
	}
	return store.Lanes, others, nil
}

func (s *scheduler) onLeased(result leaseResult) {
	s.lease.busy = false
	info := LeasesInfo{}
	for _, l := range result.released {
		info.Released = append(info.Released, l.Lane)
	}
	if result.err != nil && result.held == nil {
		s.databaseDown(result.err, true)
		s.lease.next = now().Add(min(s.config.RenewEvery, time.Second))
		s.leasesChanged(info)
		return
	}
	s.databaseUp(true)
	s.lease.live, s.lease.share, s.lease.others = result.live, result.share, result.others
	s.feed.set = result.mode
	kept := make(map[store.Lease]bool, len(result.held))
	for _, held := range result.held {
		kept[held] = true
	}
	for id, l := range s.lanes {
		if !kept[l.Lease] {
			s.dropLane(l)
			info.Lost = append(info.Lost, id)
			continue
		}
		l.deadline = result.sentAt.Add(s.config.LeaseTTL)
		if l.expired {
			l.expired = false
			s.laneReady(l)
		}
	}
	for _, lease := range result.claimed {
		if old := s.lanes[lease.Lane]; old != nil {
			s.dropLane(old)
		}
		s.lanes[lease.Lane] = &lane{Lease: lease, epoch: s.epoch, deadline: result.claimedAt.Add(s.config.LeaseTTL)}
		s.reads.load = true
		info.Gained = append(info.Gained, lease.Lane)
	}
	if result.err != nil {
		s.databaseDown(result.err, true)
	}
	s.shareLanes()
	if len(info.Lost)+len(info.Gained) > 0 {
		s.endFeed() // under the leases that it had
	}
	s.feedOff()
	s.leasesChanged(info)
}

// shareLanes begins to give up the lanes above this relay's share, and looks
// again soon where it has fewer.
func (s *scheduler) shareLanes() {
	share := s.lease.share
	over := len(s.lanes) - share
	for _, l := range s.lanes {
		if l.state == leaving {
			over--
		}
	}
	for _, l := range s.lanes {
		if over <= 0 {
			break
		}
		if l.state != leaving {
			l.state = leaving
			over--
			s.lease.next = now() // release at once what is idle
		}
	}
	if len(s.lanes) < share && !s.stopping {
		s.soonLease(s.config.RenewEvery / 3)
	}
	for _, l := range s.lanes {
		if l.state == leaving {
			s.soonLease(s.config.RenewEvery / 10)
		}
	}
}

func (s *scheduler) soonLease(wait time.Duration) {
	if at := now().Add(wait); at.Before(s.lease.next) {
		s.lease.next = at
	}
}

func (s *scheduler) laneReady(l *lane) {
	for _, k := range s.keys {
		if k.lane == l {
			s.makeReady(k)
		}
	}
}

func (s *scheduler) leasesChanged(info LeasesInfo) {
	if len(info.Gained)+len(info.Lost)+len(info.Released) == 0 {
		return
	}
	info.Owned, info.Relays = len(s.lanes), s.lease.live
	s.log.Info("lanes changed", "gained", len(info.Gained), "lost", len(info.Lost), "released", len(info.Released), "owned", info.Owned, "relays", info.Relays)
	if s.config.Events.Leases != nil {
		s.config.Events.Leases(info)
	}
}
