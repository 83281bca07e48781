package mysql

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/waybillhq/waybill/store"
)

const makeReaderSQL = "\nINSERT INTO {reader} (consumer_group, topic, `partition`) VALUES (?, ?, ?)" + `
ON DUPLICATE KEY UPDATE tries = tries`

const readerColumns = "consumer_group, topic, `partition`, owner, fence, expires_at, clean, event_id, tries, SYSDATE(6)"

const readReaderSQL = `
SELECT ` + readerColumns + "\nFROM {reader} WHERE consumer_group = ? AND topic = ? AND `partition` = ?"

const claimReaderSQL = `
UPDATE {reader} SET owner = ?, fence = ?, clean = 0, expires_at = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND` +
	"\nWHERE consumer_group = ? AND topic = ? AND `partition` = ?"

// ClaimReader takes a partition that is free, expired or the owner's. The row is
// made or, where it is there, locked by the first statement.
func (s *Store) ClaimReader(ctx context.Context, key store.ReaderKey, owner string, ttl time.Duration, force bool) (state store.ReaderState, claimed bool, err error) {
	err = s.inTx(ctx, func(tx ownTx) error {
		claimed = false
		if _, err := tx.exec(ctx, makeReaderSQL, key.Group, key.Topic, key.Partition); err != nil {
			return err
		}
		states, err := collect(ctx, tx, scanReader, readReaderSQL, key.Group, key.Topic, key.Partition)
		if err != nil {
			return err
		}
		if len(states) != 1 {
			return sql.ErrNoRows
		}
		state = states[0]
		if !force && state.Owner != "" && state.Owner != owner && state.ExpiresIn > 0 {
			return nil
		}
		state.Owner = owner
		state.Fence++
		claimed = true
		_, err = tx.exec(ctx, claimReaderSQL, owner, state.Fence, micros(ttl), key.Group, key.Topic, key.Partition)
		return err
	})
	if err != nil {
		return store.ReaderState{}, false, failure("claim reader", key.Topic, err)
	}
	return state, claimed, nil
}

const renewMemberSQL = `
INSERT INTO {member} (consumer_group, owner, expires_at) VALUES (?, ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND)
ON DUPLICATE KEY UPDATE expires_at = VALUES(expires_at)`

const renewReadersSQL = `
UPDATE {reader} SET expires_at = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND
WHERE consumer_group = ? AND owner = ? AND expires_at > UTC_TIMESTAMP(6)`

const heldReadersSQL = `
SELECT ` + readerColumns + "\nFROM {reader} WHERE consumer_group = ? AND owner = ? AND expires_at > UTC_TIMESTAMP(6) ORDER BY topic, `partition`"

const forgetMembersSQL = `
DELETE FROM {member} WHERE consumer_group = ? AND expires_at < UTC_TIMESTAMP(6) - INTERVAL 1 HOUR`

const countMembersSQL = `SELECT COUNT(*) FROM {member} WHERE consumer_group = ? AND expires_at > UTC_TIMESTAMP(6)`

// RenewReaders makes the owner known and extends its claims.
func (s *Store) RenewReaders(ctx context.Context, group, owner string, ttl time.Duration) (held []store.ReaderState, live int, err error) {
	err = s.inTx(ctx, func(tx ownTx) error {
		if _, err := tx.exec(ctx, renewReadersSQL, micros(ttl), group, owner); err != nil {
			return err
		}
		held, err = collect(ctx, tx, scanReader, heldReadersSQL, group, owner)
		return err
	})
	if err == nil {
		err = retry(ctx, func() error {
			if _, err := s.pool().exec(ctx, renewMemberSQL, group, owner, micros(ttl)); err != nil {
				return err
			}
			_, err := s.pool().exec(ctx, forgetMembersSQL, group)
			return err
		})
	}
	if err == nil {
		_, err = s.pool().one(ctx, countMembersSQL, []any{group}, &live)
	}
	if err != nil {
		return nil, 0, failure("renew readers", group, err)
	}
	return held, live, nil
}

const lockReaderSQL = `
SELECT event_id, tries FROM {reader}` + "\nWHERE consumer_group = ? AND topic = ? AND `partition` = ? AND owner = ? AND fence = ? FOR UPDATE"

const markReaderSQL = `
UPDATE {reader} SET event_id = ?, tries = ?` + "\nWHERE consumer_group = ? AND topic = ? AND `partition` = ?"

// MarkReader commits the crash mark.
func (s *Store) MarkReader(ctx context.Context, key store.ReaderKey, owner string, fence int64, eventID string) (tries int, err error) {
	mark := encodeText(eventID)
	err = s.inTx(ctx, func(tx ownTx) error {
		var marked string
		found, err := tx.one(ctx, lockReaderSQL, []any{key.Group, key.Topic, key.Partition, owner, fence}, &marked, &tries)
		if err != nil {
			return err
		}
		switch {
		case !found:
			return store.ErrStale
		case mark == "":
			tries = 0
		case mark == marked:
			tries++
		default:
			tries = 1
		}
		_, err = tx.exec(ctx, markReaderSQL, mark, tries, key.Group, key.Topic, key.Partition)
		return err
	})
	if err != nil {
		return 0, failure("mark reader", key.Topic, err)
	}
	return tries, nil
}

const releaseReaderSQL = `
UPDATE {reader} SET owner = '', expires_at = '1970-01-01', clean = ?` +
	"\nWHERE consumer_group = ? AND topic = ? AND `partition` = ? AND owner = ? AND fence = ?"

// ReleaseReader frees the partition if the owner still has it.
func (s *Store) ReleaseReader(ctx context.Context, key store.ReaderKey, owner string, fence int64, clean bool) error {
	return failure("release reader", key.Topic, retry(ctx, func() error {
		_, err := s.pool().exec(ctx, releaseReaderSQL, clean, key.Group, key.Topic, key.Partition, owner, fence)
		return err
	}))
}

const leaveReadersSQL = `UPDATE {reader} SET owner = '', expires_at = '1970-01-01', clean = 0 WHERE consumer_group = ? AND owner = ?`

const leaveMemberSQL = `DELETE FROM {member} WHERE consumer_group = ? AND owner = ?`

// LeaveReaders frees the owner's partitions as not clean.
func (s *Store) LeaveReaders(ctx context.Context, group, owner string) error {
	return failure("leave readers", group, s.inTx(ctx, func(tx ownTx) error {
		_, err := tx.exec(ctx, leaveReadersSQL, group, owner)
		_, leaveErr := tx.exec(ctx, leaveMemberSQL, group, owner)
		return errors.Join(err, leaveErr)
	}))
}

const listReadersSQL = `
SELECT ` + readerColumns + "\nFROM {reader} WHERE consumer_group = ? ORDER BY topic, `partition`"

// ListReaders returns the group's rows.
func (s *Store) ListReaders(ctx context.Context, group string) ([]store.ReaderState, error) {
	states, err := collect(ctx, s.pool(), scanReader, listReadersSQL, group)
	return states, failure("list readers", group, err)
}

func scanReader(rows *sql.Rows) (r store.ReaderState, err error) {
	var expires, now moment
	err = rows.Scan(&r.Group, &r.Topic, &r.Partition, &r.Owner, &r.Fence, &expires, &r.Clean, &r.EventID, &r.Tries, &now)
	r.EventID = decodeText(r.EventID)
	if r.Owner != "" {
		r.ExpiresIn = expires.Sub(now.Time)
	}
	return r, err
}
