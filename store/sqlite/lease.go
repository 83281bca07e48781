package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/waybillhq/waybill/store"
)

const (
	renewRelaySQL = `
INSERT INTO {relay} (owner, host, mode, expires_at, report)
VALUES (?1, ?2, ?3, strftime({iso}, 'now', ?4), ?5)
ON CONFLICT (owner) DO UPDATE SET host = excluded.host, mode = excluded.mode, expires_at = excluded.expires_at, report = excluded.report`

	forgetRelaysSQL = `
DELETE FROM {relay} WHERE expires_at <= strftime({iso}, 'now', '-1 hours')`

	countRelaysSQL = `
SELECT count(*) FROM {relay} WHERE expires_at > {now}`

	renewLeasesSQL = `
UPDATE {lease} AS l SET expires_at = strftime({iso}, 'now', ?2)
FROM json_each(?3) AS h
WHERE l.lane = h.value ->> 0 AND l.fence = h.value ->> 1 AND l.owner = ?1 AND l.expires_at > {now}
RETURNING lane, fence`
)

// Renew makes the relay known and extends its leases.
func (s *Store) Renew(ctx context.Context, beat store.Heartbeat) (held []store.Lease, live int, err error) {
	err = s.write(ctx, "renew leases", true, func(w writing) error {
		if _, err := w.exec(ctx, renewRelaySQL, beat.Owner, withoutNUL(beat.Host), withoutNUL(beat.Mode), after(beat.TTL), string(beat.Report)); err != nil {
			return err
		}
		if _, err := w.exec(ctx, forgetRelaysSQL); err != nil {
			return err
		}
		if err := w.scan(ctx, countRelaysSQL, nil, &live); err != nil {
			return err
		}
		if len(beat.Held) == 0 {
			return nil
		}
		rows, err := w.query(ctx, renewLeasesSQL, beat.Owner, after(beat.TTL), jsonLeases(beat.Held))
		held, err = scanLeases(rows, err)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return held, live, nil
}

const claimSQL = `
UPDATE {lease} SET owner = ?1, fence = fence + 1, expires_at = strftime({iso}, 'now', ?2)
WHERE lane IN (SELECT lane FROM {lease} WHERE owner = '' OR expires_at <= {now} ORDER BY lane LIMIT ?3)
RETURNING lane, fence`

// Claim takes lanes that are free or expired.
func (s *Store) Claim(ctx context.Context, owner string, ttl time.Duration, limit int) ([]store.Lease, error) {
	var claimed []store.Lease
	err := s.write(ctx, "claim leases", true, func(w writing) error {
		rows, err := w.query(ctx, claimSQL, owner, after(ttl), max(limit, 0))
		claimed, err = scanLeases(rows, err)
		return err
	})
	if err != nil {
		return nil, err
	}
	return claimed, nil
}

func scanLeases(rows *sql.Rows, err error) ([]store.Lease, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var leases []store.Lease
	for rows.Next() {
		var lease store.Lease
		if err := rows.Scan(&lease.Lane, &lease.Fence); err != nil {
			return nil, err
		}
		leases = append(leases, lease)
	}
	return leases, errors.Join(rows.Err(), rows.Close())
}

const releaseSQL = `
UPDATE {lease} AS l SET owner = '', expires_at = ''
FROM json_each(?2) AS h
WHERE l.lane = h.value ->> 0 AND l.fence = h.value ->> 1 AND l.owner = ?1`

// Release frees leases that the owner still holds.
func (s *Store) Release(ctx context.Context, owner string, leases []store.Lease) error {
	if len(leases) == 0 {
		return nil
	}
	return s.write(ctx, "release leases", true, func(w writing) error {
		_, err := w.exec(ctx, releaseSQL, owner, jsonLeases(leases))
		return err
	})
}

const (
	leaveLeasesSQL = `
UPDATE {lease} SET owner = '', expires_at = '' WHERE owner = ?1`

	leaveRelaySQL = `
DELETE FROM {relay} WHERE owner = ?1`
)

// Leave frees the owner's leases and forgets the relay.
func (s *Store) Leave(ctx context.Context, owner string) error {
	return s.write(ctx, "leave", true, func(w writing) error {
		if _, err := w.exec(ctx, leaveLeasesSQL, owner); err != nil {
			return err
		}
		_, err := w.exec(ctx, leaveRelaySQL, owner)
		return err
	})
}

const listLeasesSQL = `
SELECT lane, fence, owner, expires_at, {now} FROM {lease} ORDER BY lane`

// ListLeases returns all lanes in order.
func (s *Store) ListLeases(ctx context.Context) ([]store.LeaseState, error) {
	rows, err := s.query(ctx, listLeasesSQL)
	if err != nil {
		return nil, s.failed("list leases", "", err)
	}
	defer rows.Close()
	var states []store.LeaseState
	for rows.Next() {
		var state store.LeaseState
		var expiresAt, now string
		if err := rows.Scan(&state.Lane, &state.Fence, &state.Owner, &expiresAt, &now); err != nil {
			return nil, s.failed("list leases", "", err)
		}
		state.ExpiresIn = until(expiresAt, now)
		states = append(states, state)
	}
	return states, s.failed("list leases", "", rows.Err())
}

const listRelaysSQL = `
SELECT owner, host, mode, started_at, expires_at, {now}, report FROM {relay} ORDER BY started_at, owner`

// ListRelays returns all known relays, oldest first.
func (s *Store) ListRelays(ctx context.Context) ([]store.RelayState, error) {
	rows, err := s.query(ctx, listRelaysSQL)
	if err != nil {
		return nil, s.failed("list relays", "", err)
	}
	defer rows.Close()
	var states []store.RelayState
	for rows.Next() {
		var state store.RelayState
		var startedAt, expiresAt, now string
		if err := rows.Scan(&state.Owner, &state.Host, &state.Mode, &startedAt, &expiresAt, &now, &state.Report); err != nil {
			return nil, s.failed("list relays", "", err)
		}
		state.StartedAt = parseTime(startedAt)
		state.ExpiresIn = until(expiresAt, now)
		states = append(states, state)
	}
	return states, s.failed("list relays", "", rows.Err())
}
