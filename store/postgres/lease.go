package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill/store"
)

const renewRelaySQL = `
INSERT INTO {relay} AS r (owner, host, mode, expires_at, report)
VALUES ($1, $2, $3, clock_timestamp() + $4::bigint * interval '1 microsecond', $5::text)
ON CONFLICT (owner) DO UPDATE SET host = EXCLUDED.host, mode = EXCLUDED.mode, expires_at = EXCLUDED.expires_at, report = EXCLUDED.report`

// Leases that are renewed or claimed together expire together, hence one time
// for all rows; whether one is still held is asked of the clock row by row,
// after a possible wait.
const renewLeasesSQL = `
UPDATE {lease} l SET expires_at = statement_timestamp() + $4::bigint * interval '1 microsecond'
FROM unnest($2::smallint[], $3::bigint[]) AS w (lane, fence)
WHERE l.lane = w.lane AND l.owner = $1 AND l.fence = w.fence AND l.expires_at > clock_timestamp()
RETURNING l.lane, l.fence`

const forgetRelaysSQL = `
DELETE FROM {relay} WHERE owner IN (
    SELECT owner FROM {relay} WHERE expires_at < clock_timestamp() - interval '1 hour' FOR UPDATE SKIP LOCKED
)`

const countRelaysSQL = `SELECT count(*) FROM {relay} WHERE expires_at > clock_timestamp()`

// Renew makes the relay known and extends its leases.
func (s *Store) Renew(ctx context.Context, beat store.Heartbeat) (held []store.Lease, live int, err error) {
	lanes := make([]int16, len(beat.Held))
	fences := make([]int64, len(beat.Held))
	for i, lease := range beat.Held {
		lanes[i], fences[i] = int16(lease.Lane), lease.Fence
	}
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		batch.Queue(s.sql(renewRelaySQL), beat.Owner, storable(beat.Host), beat.Mode, micros(beat.TTL), optional(beat.Report))
		batch.Queue(s.sql(renewLeasesSQL), beat.Owner, lanes, fences, micros(beat.TTL)).Query(func(rows pgx.Rows) (err error) {
			held, err = collectLeases(rows)
			return err
		})
		batch.Queue(s.sql(forgetRelaysSQL))
		batch.Queue(s.sql(countRelaysSQL)).QueryRow(func(row pgx.Row) error { return row.Scan(&live) })
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return nil, 0, failure("renew leases", beat.Owner, err)
	}
	return held, live, nil
}

// FOR UPDATE waits for nobody: a lane that is being settled under its lease, or
// claimed by another relay, is passed over.
const claimSQL = `
WITH free AS MATERIALIZED (
    SELECT lane FROM {lease}
    WHERE owner = '' OR expires_at <= statement_timestamp()
    ORDER BY lane
    LIMIT $3
    FOR UPDATE SKIP LOCKED
)
UPDATE {lease} l SET owner = $1, fence = l.fence + 1, expires_at = statement_timestamp() + $2::bigint * interval '1 microsecond'
FROM free WHERE l.lane = free.lane
RETURNING l.lane, l.fence`

// Claim takes lanes that are free or expired.
func (s *Store) Claim(ctx context.Context, owner string, ttl time.Duration, limit int) ([]store.Lease, error) {
	if limit <= 0 {
		return nil, nil
	}
	var claimed []store.Lease
	err := retry(ctx, func() error {
		rows, err := s.pool.Query(ctx, s.sql(claimSQL), owner, micros(ttl), int64(limit))
		if err != nil {
			return err
		}
		claimed, err = collectLeases(rows)
		return err
	})
	if err != nil {
		return nil, failure("claim leases", owner, err)
	}
	return claimed, nil
}

const releaseSQL = `
UPDATE {lease} l SET owner = '', expires_at = 'epoch'
FROM unnest($2::smallint[], $3::bigint[]) AS w (lane, fence)
WHERE l.lane = w.lane AND l.owner = $1 AND l.fence = w.fence`

// Release frees leases that the owner still holds.
func (s *Store) Release(ctx context.Context, owner string, leases []store.Lease) error {
	lanes := make([]int16, len(leases))
	fences := make([]int64, len(leases))
	for i, lease := range leases {
		lanes[i], fences[i] = int16(lease.Lane), lease.Fence
	}
	return failure("release leases", owner, retry(ctx, func() error {
		_, err := s.pool.Exec(ctx, s.sql(releaseSQL), owner, lanes, fences)
		return err
	}))
}

const leaveLeasesSQL = `UPDATE {lease} SET owner = '', expires_at = 'epoch' WHERE owner = $1`

const leaveRelaySQL = `DELETE FROM {relay} WHERE owner = $1`

// Leave frees the owner's leases and forgets the relay.
func (s *Store) Leave(ctx context.Context, owner string) error {
	return failure("leave", owner, s.inTx(ctx, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		batch.Queue(s.sql(leaveLeasesSQL), owner)
		batch.Queue(s.sql(leaveRelaySQL), owner)
		return tx.SendBatch(ctx, batch).Close()
	}))
}

const listLeasesSQL = `SELECT lane, fence, owner, expires_at, clock_timestamp() FROM {lease} ORDER BY lane`

// ListLeases returns all lanes in order.
func (s *Store) ListLeases(ctx context.Context) ([]store.LeaseState, error) {
	rows, err := s.pool.Query(ctx, s.sql(listLeasesSQL))
	if err != nil {
		return nil, failure("list leases", "", err)
	}
	states, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (state store.LeaseState, err error) {
		var expires, now time.Time
		err = row.Scan(&state.Lane, &state.Fence, &state.Owner, &expires, &now)
		if state.Owner != "" {
			state.ExpiresIn = expires.Sub(now)
		}
		return state, err
	})
	return states, failure("list leases", "", err)
}

const listRelaysSQL = `
SELECT owner, host, mode, started_at, expires_at, clock_timestamp(), report
FROM {relay} ORDER BY started_at, owner`

// ListRelays returns all known relays, oldest first.
func (s *Store) ListRelays(ctx context.Context) ([]store.RelayState, error) {
	rows, err := s.pool.Query(ctx, s.sql(listRelaysSQL))
	if err != nil {
		return nil, failure("list relays", "", err)
	}
	states, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (state store.RelayState, err error) {
		var expires, now time.Time
		err = row.Scan(&state.Owner, &state.Host, &state.Mode, &state.StartedAt, &expires, &now, &state.Report)
		state.StartedAt, state.ExpiresIn = state.StartedAt.UTC(), expires.Sub(now)
		return state, err
	})
	return states, failure("list relays", "", err)
}

func collectLeases(rows pgx.Rows) ([]store.Lease, error) {
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (lease store.Lease, err error) {
		err = row.Scan(&lease.Lane, &lease.Fence)
		return lease, err
	})
}

func optional(text []byte) *string {
	if text == nil {
		return nil
	}
	return new(storable(string(text)))
}
