package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/waybillhq/waybill/store"
)

const readerColumns = `consumer_group, topic, partition, owner, fence, expires_at, clean, event_id, tries, {now}`

func scanReaders(rows *sql.Rows, err error) ([]store.ReaderState, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var states []store.ReaderState
	for rows.Next() {
		var r store.ReaderState
		var expiresAt, now string
		if err := rows.Scan(&r.Group, &r.Topic, &r.Partition, &r.Owner, &r.Fence, &expiresAt, &r.Clean, &r.EventID, &r.Tries, &now); err != nil {
			return nil, err
		}
		if r.Owner != "" {
			r.ExpiresIn = until(expiresAt, now)
		}
		states = append(states, r)
	}
	return states, errors.Join(rows.Err(), rows.Close())
}

const (
	makeReaderSQL = `
INSERT INTO {reader} (consumer_group, topic, partition) VALUES (?1, ?2, ?3)
ON CONFLICT (consumer_group, topic, partition) DO NOTHING`

	readReaderSQL = `
SELECT ` + readerColumns + `
FROM {reader}
WHERE consumer_group = ?1 AND topic = ?2 AND partition = ?3`

	claimReaderSQL = `
UPDATE {reader} SET owner = ?4, fence = fence + 1, expires_at = strftime({iso}, 'now', ?5), clean = 0
WHERE consumer_group = ?1 AND topic = ?2 AND partition = ?3
  AND (owner IN ('', ?4) OR expires_at <= {now} OR ?6)`
)

// ClaimReader takes a partition that is free, expired or the owner's.
func (s *Store) ClaimReader(ctx context.Context, key store.ReaderKey, owner string, ttl time.Duration, force bool) (store.ReaderState, bool, error) {
	var state store.ReaderState
	claimed := false
	err := s.write(ctx, "claim reader", false, func(w writing) error {
		if _, err := w.exec(ctx, makeReaderSQL, key.Group, key.Topic, key.Partition); err != nil {
			return err
		}
		rows, err := w.query(ctx, readReaderSQL, key.Group, key.Topic, key.Partition)
		states, err := scanReaders(rows, err)
		if err != nil {
			return err
		}
		state = states[0]
		updated, err := w.exec(ctx, claimReaderSQL, key.Group, key.Topic, key.Partition, owner, after(ttl), force)
		if claimed = updated > 0; claimed {
			state.Owner, state.Fence = owner, state.Fence+1
		}
		return err
	})
	if err != nil {
		return store.ReaderState{}, false, err
	}
	return state, claimed, nil
}

const (
	renewMemberSQL = `
INSERT INTO {member} (consumer_group, owner, expires_at) VALUES (?1, ?2, strftime({iso}, 'now', ?3))
ON CONFLICT (consumer_group, owner) DO UPDATE SET expires_at = excluded.expires_at`

	forgetMembersSQL = `
DELETE FROM {member} WHERE expires_at <= strftime({iso}, 'now', '-1 hours')`

	countMembersSQL = `
SELECT count(*) FROM {member} WHERE consumer_group = ?1 AND expires_at > {now}`

	renewReadersSQL = `
UPDATE {reader} SET expires_at = strftime({iso}, 'now', ?3)
WHERE consumer_group = ?1 AND owner = ?2 AND expires_at > {now}
RETURNING ` + readerColumns
)

// RenewReaders makes the owner known and extends its claims.
func (s *Store) RenewReaders(ctx context.Context, group, owner string, ttl time.Duration) (held []store.ReaderState, live int, err error) {
	err = s.write(ctx, "renew readers", true, func(w writing) error {
		if _, err := w.exec(ctx, renewMemberSQL, group, owner, after(ttl)); err != nil {
			return err
		}
		if _, err := w.exec(ctx, forgetMembersSQL); err != nil {
			return err
		}
		if err := w.scan(ctx, countMembersSQL, []any{group}, &live); err != nil {
			return err
		}
		rows, err := w.query(ctx, renewReadersSQL, group, owner, after(ttl))
		held, err = scanReaders(rows, err)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return held, live, nil
}

const markReaderSQL = `
UPDATE {reader} SET tries = CASE WHEN ?6 = '' THEN 0 WHEN event_id = ?6 THEN tries + 1 ELSE 1 END, event_id = ?6
WHERE consumer_group = ?1 AND topic = ?2 AND partition = ?3 AND owner = ?4 AND fence = ?5
RETURNING tries`

// MarkReader commits the crash mark.
func (s *Store) MarkReader(ctx context.Context, key store.ReaderKey, owner string, fence int64, eventID string) (int, error) {
	tries := 0
	err := s.write(ctx, "mark reader", true, func(w writing) error {
		err := w.scan(ctx, markReaderSQL, []any{key.Group, key.Topic, key.Partition, owner, fence, eventID}, &tries)
		if errors.Is(err, sql.ErrNoRows) {
			return store.ErrStale
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return tries, nil
}

const releaseReaderSQL = `
UPDATE {reader} SET owner = '', expires_at = '', clean = ?6
WHERE consumer_group = ?1 AND topic = ?2 AND partition = ?3 AND owner = ?4 AND fence = ?5`

// ReleaseReader frees the partition if the owner still has it. It is durable:
// clean must not outlive what it speaks of.
func (s *Store) ReleaseReader(ctx context.Context, key store.ReaderKey, owner string, fence int64, clean bool) error {
	return s.write(ctx, "release reader", false, func(w writing) error {
		_, err := w.exec(ctx, releaseReaderSQL, key.Group, key.Topic, key.Partition, owner, fence, clean)
		return err
	})
}

const (
	leaveReadersSQL = `
UPDATE {reader} SET owner = '', expires_at = '', clean = 0 WHERE consumer_group = ?1 AND owner = ?2`

	leaveMemberSQL = `
DELETE FROM {member} WHERE consumer_group = ?1 AND owner = ?2`
)

// LeaveReaders frees the owner's partitions as not clean.
func (s *Store) LeaveReaders(ctx context.Context, group, owner string) error {
	return s.write(ctx, "leave readers", true, func(w writing) error {
		if _, err := w.exec(ctx, leaveReadersSQL, group, owner); err != nil {
			return err
		}
		_, err := w.exec(ctx, leaveMemberSQL, group, owner)
		return err
	})
}

const listReadersSQL = `
SELECT ` + readerColumns + `
FROM {reader}
WHERE consumer_group = ?1
ORDER BY topic, partition`

// ListReaders returns the group's rows.
func (s *Store) ListReaders(ctx context.Context, group string) ([]store.ReaderState, error) {
	rows, err := s.query(ctx, listReadersSQL, group)
	states, err := scanReaders(rows, err)
	return states, s.failed("list readers", group, err)
}
