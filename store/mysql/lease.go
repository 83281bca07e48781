package mysql

import (
	"context"
	"database/sql"
	"time"

	"github.com/waybillhq/waybill/store"
)

const renewRelaySQL = `
INSERT INTO {relay} (owner, host, mode, expires_at, report)
VALUES (?, ?, ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, ?)
ON DUPLICATE KEY UPDATE host = VALUES(host), mode = VALUES(mode), expires_at = VALUES(expires_at), report = VALUES(report)`

const lockHeldSQL = `
SELECT l.lane, l.fence
FROM ` + listedLeases + ` STRAIGHT_JOIN {lease} l FORCE INDEX (PRIMARY) ON l.lane = w.lane
WHERE l.owner = ? AND l.fence = w.fence AND l.expires_at > SYSDATE(6)
{for update l}`

const renewLeasesSQL = `
UPDATE ` + listedLeases + ` STRAIGHT_JOIN {lease} l FORCE INDEX (PRIMARY) ON l.lane = w.lane
SET l.expires_at = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND`

const goneRelaysSQL = `SELECT owner FROM {relay} WHERE expires_at < UTC_TIMESTAMP(6) - INTERVAL 1 HOUR`

const countRelaysSQL = `SELECT COUNT(*) FROM {relay} WHERE expires_at > UTC_TIMESTAMP(6)`

// Renew makes the relay known and extends its leases.
func (s *Store) Renew(ctx context.Context, beat store.Heartbeat) (held []store.Lease, live int, err error) {
	err = s.inTx(ctx, func(tx ownTx) error {
		held = nil
		if len(beat.Held) == 0 {
			return nil
		}
		held, err = collect(ctx, tx, scanLease, lockHeldSQL, leaseList(beat.Held), beat.Owner)
		if err != nil || len(held) == 0 {
			return err
		}
		_, err = tx.exec(ctx, renewLeasesSQL, leaseList(held), micros(beat.TTL))
		return err
	})
	if err == nil {
		live, err = s.beat(ctx, beat)
	}
	if err != nil {
		return nil, 0, failure("renew leases", beat.Owner, err)
	}
	return held, live, nil
}

// beat writes the relay's own row, beside no lock on a lane.
func (s *Store) beat(ctx context.Context, beat store.Heartbeat) (live int, err error) {
	err = retry(ctx, func() error {
		_, err := s.pool().exec(ctx, renewRelaySQL, beat.Owner, short(beat.Host), beat.Mode, micros(beat.TTL), optional(beat.Report))
		return err
	})
	if err != nil {
		return 0, err
	}
	gone, err := collect(ctx, s.pool(), scanOne[string], goneRelaysSQL)
	if err != nil {
		return 0, err
	}
	for _, owner := range gone {
		if _, err := s.pool().exec(ctx, forgetRelaySQL, owner); err != nil {
			return 0, err
		}
	}
	_, err = s.pool().one(ctx, countRelaysSQL, nil, &live)
	return live, err
}

const forgetRelaySQL = `DELETE FROM {relay} WHERE owner = ? AND expires_at < UTC_TIMESTAMP(6) - INTERVAL 1 HOUR`

// FOR UPDATE waits for nobody: a lane that is being settled under its lease, or
// claimed by another relay, is passed over.
const freeLanesSQL = `
SELECT lane, fence + 1 FROM {lease}
WHERE owner = '' OR expires_at <= UTC_TIMESTAMP(6)
ORDER BY lane
LIMIT ?
FOR UPDATE SKIP LOCKED`

const claimSQL = `
UPDATE ` + listedLeases + ` STRAIGHT_JOIN {lease} l FORCE INDEX (PRIMARY) ON l.lane = w.lane
SET l.owner = ?, l.fence = w.fence, l.expires_at = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND`

// Claim takes lanes that are free or expired.
func (s *Store) Claim(ctx context.Context, owner string, ttl time.Duration, limit int) ([]store.Lease, error) {
	if limit <= 0 {
		return nil, nil
	}
	var claimed []store.Lease
	err := s.inTx(ctx, func(tx ownTx) (err error) {
		claimed, err = collect(ctx, tx, scanLease, freeLanesSQL, limit)
		if err != nil || len(claimed) == 0 {
			return err
		}
		_, err = tx.exec(ctx, claimSQL, leaseList(claimed), owner, micros(ttl))
		return err
	})
	if err != nil {
		return nil, failure("claim leases", owner, err)
	}
	return claimed, nil
}

const releaseSQL = `
UPDATE ` + listedLeases + ` STRAIGHT_JOIN {lease} l FORCE INDEX (PRIMARY) ON l.lane = w.lane
SET l.owner = '', l.expires_at = '1970-01-01'
WHERE l.owner = ? AND l.fence = w.fence`

// Release frees leases that the owner still holds.
func (s *Store) Release(ctx context.Context, owner string, leases []store.Lease) error {
	if len(leases) == 0 {
		return nil
	}
	return failure("release leases", owner, retry(ctx, func() error {
		_, err := s.pool().exec(ctx, releaseSQL, leaseList(leases), owner)
		return err
	}))
}

const ownLanesSQL = `SELECT lane, fence FROM {lease} WHERE owner = ? ORDER BY lane`

const leaveRelaySQL = `DELETE FROM {relay} WHERE owner = ?`

// Leave frees the owner's leases and forgets the relay.
func (s *Store) Leave(ctx context.Context, owner string) error {
	leases, err := collect(ctx, s.pool(), scanLease, ownLanesSQL, owner)
	if err != nil {
		return failure("leave", owner, err)
	}
	if err := s.Release(ctx, owner, leases); err != nil {
		return err
	}
	return failure("leave", owner, retry(ctx, func() error {
		_, err := s.pool().exec(ctx, leaveRelaySQL, owner)
		return err
	}))
}

const listLeasesSQL = `SELECT lane, fence, owner, expires_at, UTC_TIMESTAMP(6) FROM {lease} ORDER BY lane`

// ListLeases returns all lanes in order.
func (s *Store) ListLeases(ctx context.Context) ([]store.LeaseState, error) {
	states, err := collect(ctx, s.pool(), func(rows *sql.Rows) (state store.LeaseState, err error) {
		var expires, now moment
		err = rows.Scan(&state.Lane, &state.Fence, &state.Owner, &expires, &now)
		if state.Owner != "" {
			state.ExpiresIn = expires.Sub(now.Time)
		}
		return state, err
	}, listLeasesSQL)
	return states, failure("list leases", "", err)
}

const listRelaysSQL = `
SELECT owner, host, mode, started_at, expires_at, UTC_TIMESTAMP(6), report
FROM {relay} ORDER BY started_at, owner`

// ListRelays returns all known relays, oldest first.
func (s *Store) ListRelays(ctx context.Context) ([]store.RelayState, error) {
	states, err := collect(ctx, s.pool(), func(rows *sql.Rows) (state store.RelayState, err error) {
		var started, expires, now moment
		err = rows.Scan(&state.Owner, &state.Host, &state.Mode, &started, &expires, &now, &state.Report)
		state.StartedAt, state.ExpiresIn = started.Time, expires.Sub(now.Time)
		return state, err
	}, listRelaysSQL)
	return states, failure("list relays", "", err)
}

func scanLease(rows *sql.Rows) (lease store.Lease, err error) {
	return lease, rows.Scan(&lease.Lane, &lease.Fence)
}

func optional(text []byte) *string {
	if text == nil {
		return nil
	}
	return new(fit(string(text), 1<<20))
}
