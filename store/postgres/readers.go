package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill/store"
)

const makeReaderSQL = `
INSERT INTO {reader} (consumer_group, topic, partition) VALUES ($1, $2, $3)
ON CONFLICT (consumer_group, topic, partition) DO NOTHING`

const readerColumns = `consumer_group, topic, partition, owner, fence, expires_at, clean, event_id, tries, clock_timestamp()`

const lockReaderSQL = `
SELECT ` + readerColumns + `
FROM {reader} WHERE consumer_group = $1 AND topic = $2 AND partition = $3 FOR UPDATE`

const claimReaderSQL = `
UPDATE {reader} SET owner = $4, fence = $5, clean = false, expires_at = clock_timestamp() + $6::bigint * interval '1 microsecond'
WHERE consumer_group = $1 AND topic = $2 AND partition = $3`

// ClaimReader takes a partition that is free, expired or the owner's.
func (s *Store) ClaimReader(ctx context.Context, key store.ReaderKey, owner string, ttl time.Duration, force bool) (state store.ReaderState, claimed bool, err error) {
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		claimed = false
		batch := &pgx.Batch{}
		batch.Queue(s.sql(makeReaderSQL), key.Group, key.Topic, key.Partition)
		batch.Queue(s.sql(lockReaderSQL), key.Group, key.Topic, key.Partition).Query(func(rows pgx.Rows) (err error) {
			state, err = pgx.CollectExactlyOneRow(rows, scanReader)
			return err
		})
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return err
		}
		if !force && state.Owner != "" && state.Owner != owner && state.ExpiresIn > 0 {
			return nil
		}
		state.Owner = owner
		state.Fence++
		claimed = true
		_, err := tx.Exec(ctx, s.sql(claimReaderSQL), key.Group, key.Topic, key.Partition, owner, state.Fence, micros(ttl))
		return err
	})
	if err != nil {
		return store.ReaderState{}, false, failure("claim reader", key.Topic, err)
	}
	return state, claimed, nil
}

const renewMemberSQL = `
INSERT INTO {member} (consumer_group, owner, expires_at) VALUES ($1, $2, clock_timestamp() + $3::bigint * interval '1 microsecond')
ON CONFLICT (consumer_group, owner) DO UPDATE SET expires_at = EXCLUDED.expires_at`

const renewReadersSQL = `
UPDATE {reader} SET expires_at = clock_timestamp() + $3::bigint * interval '1 microsecond'
WHERE consumer_group = $1 AND owner = $2 AND expires_at > clock_timestamp()`

const heldReadersSQL = `
SELECT ` + readerColumns + `
FROM {reader} WHERE consumer_group = $1 AND owner = $2 AND expires_at > clock_timestamp() ORDER BY topic, partition`

const forgetMembersSQL = `
DELETE FROM {member} WHERE (consumer_group, owner) IN (
    SELECT consumer_group, owner FROM {member} WHERE expires_at < clock_timestamp() - interval '1 hour' FOR UPDATE SKIP LOCKED
)`

const countMembersSQL = `SELECT count(*) FROM {member} WHERE consumer_group = $1 AND expires_at > clock_timestamp()`

// RenewReaders makes the owner known and extends its claims.
func (s *Store) RenewReaders(ctx context.Context, group, owner string, ttl time.Duration) (held []store.ReaderState, live int, err error) {
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		batch.Queue(s.sql(renewMemberSQL), group, owner, micros(ttl))
		batch.Queue(s.sql(renewReadersSQL), group, owner, micros(ttl))
		batch.Queue(s.sql(heldReadersSQL), group, owner).Query(func(rows pgx.Rows) (err error) {
			held, err = pgx.CollectRows(rows, scanReader)
			return err
		})
		batch.Queue(s.sql(forgetMembersSQL))
		batch.Queue(s.sql(countMembersSQL), group).QueryRow(func(row pgx.Row) error { return row.Scan(&live) })
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return nil, 0, failure("renew readers", group, err)
	}
	return held, live, nil
}

const markReaderSQL = `
UPDATE {reader} SET event_id = $6::text,
       tries = CASE WHEN $6::text = '' THEN 0 WHEN event_id = $6::text THEN tries + 1 ELSE 1 END
WHERE consumer_group = $1 AND topic = $2 AND partition = $3 AND owner = $4 AND fence = $5
RETURNING tries`

// MarkReader commits the crash mark.
func (s *Store) MarkReader(ctx context.Context, key store.ReaderKey, owner string, fence int64, eventID string) (tries int, err error) {
	err = s.pool.QueryRow(ctx, s.sql(markReaderSQL), key.Group, key.Topic, key.Partition, owner, fence, encodeText(eventID)).Scan(&tries)
	if errors.Is(err, pgx.ErrNoRows) {
		err = store.ErrStale
	}
	return tries, failure("mark reader", key.Topic, err)
}

const releaseReaderSQL = `
UPDATE {reader} SET owner = '', expires_at = 'epoch', clean = $6
WHERE consumer_group = $1 AND topic = $2 AND partition = $3 AND owner = $4 AND fence = $5`

// ReleaseReader frees the partition if the owner still has it.
func (s *Store) ReleaseReader(ctx context.Context, key store.ReaderKey, owner string, fence int64, clean bool) error {
	_, err := s.pool.Exec(ctx, s.sql(releaseReaderSQL), key.Group, key.Topic, key.Partition, owner, fence, clean)
	return failure("release reader", key.Topic, err)
}

const leaveReadersSQL = `UPDATE {reader} SET owner = '', expires_at = 'epoch', clean = false WHERE consumer_group = $1 AND owner = $2`

const leaveMemberSQL = `DELETE FROM {member} WHERE consumer_group = $1 AND owner = $2`

// LeaveReaders frees the owner's partitions as not clean.
func (s *Store) LeaveReaders(ctx context.Context, group, owner string) error {
	return failure("leave readers", group, s.inTx(ctx, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		batch.Queue(s.sql(leaveReadersSQL), group, owner)
		batch.Queue(s.sql(leaveMemberSQL), group, owner)
		return tx.SendBatch(ctx, batch).Close()
	}))
}

const listReadersSQL = `
SELECT ` + readerColumns + `
FROM {reader} WHERE consumer_group = $1 ORDER BY topic, partition`

// ListReaders returns the group's rows.
func (s *Store) ListReaders(ctx context.Context, group string) ([]store.ReaderState, error) {
	rows, err := s.pool.Query(ctx, s.sql(listReadersSQL), group)
	if err != nil {
		return nil, failure("list readers", group, err)
	}
	states, err := pgx.CollectRows(rows, scanReader)
	return states, failure("list readers", group, err)
}

func scanReader(row pgx.CollectableRow) (r store.ReaderState, err error) {
	var expires, now time.Time
	err = row.Scan(&r.Group, &r.Topic, &r.Partition, &r.Owner, &r.Fence, &expires, &r.Clean, &r.EventID, &r.Tries, &now)
	r.EventID = decodeText(r.EventID)
	if r.Owner != "" {
		r.ExpiresIn = expires.Sub(now)
	}
	return r, err
}
