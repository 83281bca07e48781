package relay

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/waybillhq/waybill/internal/fault"
	"github.com/waybillhq/waybill/store"
)

// A changeSet collects what is to be written, until the one transaction under
// way is done; what came meanwhile goes into the next.
type changeSet struct {
	settled []*row
	failed  []failedRow
	parked  []*row
}

type failedRow struct {
	row    *row
	change store.FailedChange
}

func (c *changeSet) settle(r *row) { c.settled = append(c.settled, r) }
func (c *changeSet) fail(r *row, change store.FailedChange) {
	c.failed = append(c.failed, failedRow{r, change})
}
func (c *changeSet) park(r *row) { c.parked = append(c.parked, r) }
func (c *changeSet) rows() int   { return len(c.settled) + len(c.failed) + len(c.parked) }
func (c *changeSet) empty() bool { return c.rows() == 0 }

// each calls visit for every row.
func (c *changeSet) each(visit func(*row)) {
	for _, r := range c.settled {
		visit(r)
	}
	for _, f := range c.failed {
		visit(f.row)
	}
	for _, r := range c.parked {
		visit(r)
	}
}

// take removes and returns at most limit rows, failures first: they hold keys.
func (c *changeSet) take(limit int) changeSet {
	var out changeSet
	out.failed, c.failed = cut(c.failed, limit)
	out.settled, c.settled = cut(c.settled, limit-len(out.failed))
	out.parked, c.parked = cut(c.parked, limit-len(out.failed)-len(out.settled))
	return out
}

func cut[T any](all []T, n int) (taken, left []T) {
	if len(all) <= n {
		return all, nil
	}
	return all[:n:n], append([]T(nil), all[n:]...)
}

// giveBack puts a set that was not written in front of what came since.
func (c *changeSet) giveBack(old changeSet) {
	c.settled = append(old.settled, c.settled...)
	c.failed = append(old.failed, c.failed...)
	c.parked = append(old.parked, c.parked...)
}

func (c *changeSet) dropLane(l *lane) {
	c.settled = without(c.settled, func(r *row) bool { return r.key.lane == l })
	c.failed = without(c.failed, func(f failedRow) bool { return f.row.key.lane == l })
	c.parked = without(c.parked, func(r *row) bool { return r.key.lane == l })
}

func without[T any](all []T, drop func(T) bool) []T {
	kept := all[:0]
	for _, x := range all {
		if !drop(x) {
			kept = append(kept, x)
		}
	}
	return kept
}

const (
	applyRows  = 1000 // in one transaction
	gatherRows = 500  // are written at once; fewer of them wait for settleEvery
	// settleEvery paces transactions that settle few rows: each costs the database
	// about as much as its first hundred rows. What is lost by it in a crash is sent
	// once more.
	settleEvery = 20 * time.Millisecond
)

type applyResult struct {
	set  changeSet
	took time.Duration
	err  error
}

// write marks a row as waiting for its change to be written.
func (s *scheduler) write(r *row) {
	r.state = writing
	r.key.writes++
	r.key.lane.busy++
}

// startApply writes what is to be written, one transaction at a time. It is
// tried again for as long as the leases live, and never by sending again.
func (s *scheduler) startApply(ctx context.Context) {
	at := now()
	if s.applying > 0 || s.proving || s.changes.empty() || !s.settles(at) || s.database.down && at.Before(s.database.retryAt) {
		return
	}
	s.settleAt = at.Add(settleEvery)
	set := s.changes.take(applyRows)
	slices.SortFunc(set.settled, func(a, b *row) int { return cmp.Compare(a.ID, b.ID) }) // as the store wants them
	s.applying = set.rows()
	changes := store.Changes{Forget: s.config.Forget}
	guard := store.Guard{Owner: s.relay.owner}
	lanes := make(map[int]bool)
	set.each(func(r *row) {
		if l := r.key.lane; !lanes[l.Lane] {
			lanes[l.Lane] = true
			guard.Lanes = append(guard.Lanes, l.Lease)
		}
	})
	changes.Settled = make([]store.SettledChange, 0, len(set.settled))
	for _, r := range set.settled {
		outcome, via := store.StatusSent, store.ModePoll
		if r.skip {
			outcome = store.StatusSkipped
		}
		if r.told {
			via = store.ModeCDC
		}
		changes.Settled = append(changes.Settled, store.SettledChange{
			Change: r.Change, Outcome: outcome, Via: via, PublishedTo: r.place,
		})
	}
	for _, f := range set.failed {
		changes.Failed = append(changes.Failed, f.change)
	}
	for _, r := range set.parked {
		changes.Parked = append(changes.Parked, r.ID)
	}
	s.apply(ctx, guard, changes, set)
}

// settles reports whether what is to be written is written now, or with what comes
// soon after it. A key that is not open is read on when its rows are written.
func (s *scheduler) settles(at time.Time) bool {
	c := &s.changes
	return !at.Before(s.settleAt) || len(c.settled) >= gatherRows || len(c.failed)+len(c.parked) > 0 || s.stopping || s.room() <= 0 ||
		slices.ContainsFunc(c.settled, func(r *row) bool { return r.key.state != open })
}

// prove writes nothing, in a transaction that could: before the first send
// after a quiet time it shows that the answer can be settled.
func (s *scheduler) prove(ctx context.Context) {
	if s.applying > 0 || s.proving || s.database.down && now().Before(s.database.retryAt) {
		return
	}
	s.proving = true
	s.apply(ctx, store.Guard{Owner: s.relay.owner}, store.Changes{}, changeSet{})
}

func (s *scheduler) apply(ctx context.Context, guard store.Guard, changes store.Changes, set changeSet) {
	began := now()
	s.jobs.do(func() {
		if len(changes.Failed) > 0 && changes.Failed[0].Dead {
			fault.Point("relay.dead")
		}
		ctx, cancel := context.WithTimeout(ctx, s.patience())
		defer cancel()
		err := s.store.Apply(ctx, guard, changes)
		if len(changes.Settled) > 0 && err == nil {
			fault.Point("relay.settled")
		}
		s.applyDone <- applyResult{set: set, took: now().Sub(began), err: err}
	})
}

func (s *scheduler) onApplied(result applyResult) {
	s.applying, s.proving = 0, false
	var stale *store.StaleError
	switch {
	case errors.As(result.err, &stale):
		s.databaseUp(true)
		s.onStale(stale, result.set)
		return
	case result.err != nil:
		s.databaseDown(result.err, true)
		s.changes.giveBack(s.ours(result.set))
		return
	}
	s.databaseUp(true)
	if !result.set.empty() {
		s.reportSettled(&result)
	}
	result.set.each(func(r *row) {
		s.bury(r)
		r.key.writes--
		r.key.lane.busy--
	})
	result.set.each(func(r *row) {
		if k := r.key; s.live(k) {
			s.wantRead(k)
			s.release(k)
		}
	})
}

// onStale lets go of lanes that another relay has taken: what they still had
// here is sent again there. The rest of the set is written next.
func (s *scheduler) onStale(stale *store.StaleError, set changeSet) {
	info := StaleWriteInfo{Lanes: stale.Lanes}
	set.each(func(r *row) {
		for _, id := range stale.Lanes {
			if r.key.lane.Lane == id {
				info.Rows++
			}
		}
	})
	s.log.Warn("a write was refused: the lanes belong to another relay", "lanes", stale.Lanes, "rows", info.Rows)
	if s.config.Events.StaleWrite != nil {
		s.config.Events.StaleWrite(info)
	}
	var lost []int
	for _, id := range stale.Lanes {
		if l := s.lanes[id]; l != nil {
			s.dropLane(l)
			lost = append(lost, id)
		}
	}
	s.changes.giveBack(s.ours(set))
	s.leasesChanged(LeasesInfo{Lost: lost})
	s.lease.next = now()
}

// ours drops from a set what belongs to lanes that are gone.
func (s *scheduler) ours(set changeSet) changeSet {
	gone := func(r *row) bool { return !s.live(r.key) }
	set.settled = without(set.settled, gone)
	set.failed = without(set.failed, func(f failedRow) bool { return gone(f.row) })
	set.parked = without(set.parked, gone)
	return set
}

func (s *scheduler) reportSettled(result *applyResult) {
	hook := s.config.Events.Settled
	if hook == nil {
		return
	}
	info := SettledInfo{Parked: len(result.set.parked), Took: result.took}
	for _, r := range result.set.settled {
		if r.skip {
			info.Skipped++
		} else {
			info.Sent++
		}
	}
	for _, f := range result.set.failed {
		if f.change.Dead {
			info.Dead++
		} else {
			info.Retried++
		}
	}
	hook(info)
}
