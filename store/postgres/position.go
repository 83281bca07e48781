package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill/store"
)

const listPositionsSQL = `SELECT source, position, updated_at FROM {position} ORDER BY source`

// ListPositions returns all positions, by source.
func (s *Store) ListPositions(ctx context.Context) ([]store.Position, error) {
	rows, err := s.pool.Query(ctx, s.sql(listPositionsSQL))
	if err != nil {
		return nil, failure("list positions", "", err)
	}
	positions, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p store.Position, err error) {
		err = row.Scan(&p.Source, &p.Position, &p.UpdatedAt)
		p.UpdatedAt = p.UpdatedAt.UTC()
		return p, err
	})
	return positions, failure("list positions", "", err)
}

const savePositionSQL = `
INSERT INTO {position} AS p (source, position) VALUES ($1, $2)
ON CONFLICT (source) DO UPDATE SET position = EXCLUDED.position, updated_at = clock_timestamp()`

const deletePositionSQL = `DELETE FROM {position} WHERE source = $1`

// SavePosition replaces a source's position if the leases hold.
func (s *Store) SavePosition(ctx context.Context, guard store.Guard, source, position string) error {
	return failure("save position", source, s.inTx(ctx, func(tx pgx.Tx) error {
		if _, err := s.lockLeases(ctx, tx, guard, store.Changes{}, false); err != nil {
			return err
		}
		if position == "" {
			_, err := tx.Exec(ctx, s.sql(deletePositionSQL), source)
			return err
		}
		_, err := tx.Exec(ctx, s.sql(savePositionSQL), source, position)
		return err
	}))
}

const readModeSQL = `SELECT value FROM {meta} WHERE key = 'mode'`

// ReadMode returns the mode that was set.
func (s *Store) ReadMode(ctx context.Context) (mode string, err error) {
	mode, err = readMode(s.pool.QueryRow(ctx, s.sql(readModeSQL)))
	return mode, failure("read mode", "", err)
}

func readMode(row pgx.Row) (mode string, err error) {
	if err = row.Scan(&mode); errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return mode, err
}

const lockModeSQL = `SELECT value FROM {meta} WHERE key = 'mode' FOR UPDATE`

const setModeSQL = `
INSERT INTO {meta} (key, value) VALUES ('mode', $1)
ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value`

const deleteModeSQL = `DELETE FROM {meta} WHERE key = 'mode'`

// SetMode changes the mode of all relays.
func (s *Store) SetMode(ctx context.Context, action store.Action, mode string) error {
	if err := store.CheckMode(action, mode); err != nil {
		return failure("set mode", mode, err)
	}
	return failure("set mode", mode, s.inTx(ctx, func(tx pgx.Tx) error {
		before, err := readMode(tx.QueryRow(ctx, s.sql(lockModeSQL)))
		if err != nil || before == mode {
			return err
		}
		batch := &pgx.Batch{}
		if mode == "" {
			batch.Queue(s.sql(deleteModeSQL))
		} else {
			batch.Queue(s.sql(setModeSQL), mode)
		}
		var entries audited
		entries.add("mode", store.DescribeMode(before), store.DescribeMode(mode))
		s.queueAudit(batch, action, "relay mode", &entries)
		return tx.SendBatch(ctx, batch).Close()
	}))
}
