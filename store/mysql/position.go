package mysql

import (
	"context"
	"database/sql"

	"github.com/waybillhq/waybill/store"
)

const listPositionsSQL = `SELECT source, position, updated_at FROM {position} ORDER BY source`

// ListPositions returns all positions, by source.
func (s *Store) ListPositions(ctx context.Context) ([]store.Position, error) {
	positions, err := collect(ctx, s.pool(), func(rows *sql.Rows) (p store.Position, err error) {
		var at moment
		err = rows.Scan(&p.Source, &p.Position, &at)
		p.UpdatedAt = at.Time
		return p, err
	}, listPositionsSQL)
	return positions, failure("list positions", "", err)
}

const savePositionSQL = `
INSERT INTO {position} (source, position, updated_at) VALUES (?, ?, UTC_TIMESTAMP(6))
ON DUPLICATE KEY UPDATE position = VALUES(position), updated_at = VALUES(updated_at)`

const deletePositionSQL = `DELETE FROM {position} WHERE source = ?`

// SavePosition replaces a source's position if the leases hold.
func (s *Store) SavePosition(ctx context.Context, guard store.Guard, source, position string) error {
	return failure("save position", source, s.inTx(ctx, func(tx ownTx) error {
		if err := tx.lockLeases(ctx, guard); err != nil {
			return err
		}
		if position == "" {
			_, err := tx.exec(ctx, deletePositionSQL, source)
			return err
		}
		_, err := tx.exec(ctx, savePositionSQL, source, position)
		return err
	}))
}

const readModeSQL = "SELECT `value` FROM {meta} WHERE `key` = 'mode'"

// ReadMode returns the mode that was set.
func (s *Store) ReadMode(ctx context.Context) (mode string, err error) {
	_, err = s.pool().one(ctx, readModeSQL, nil, &mode)
	return mode, failure("read mode", "", err)
}

const lockModeSQL = readModeSQL + ` FOR UPDATE`

const setModeSQL = "\nINSERT INTO {meta} (`key`, `value`) VALUES ('mode', ?)\nON DUPLICATE KEY UPDATE `value` = VALUES(`value`)"

const deleteModeSQL = "DELETE FROM {meta} WHERE `key` = 'mode'"

// SetMode changes the mode of all relays.
func (s *Store) SetMode(ctx context.Context, action store.Action, mode string) error {
	if err := store.CheckMode(action, mode); err != nil {
		return failure("set mode", mode, err)
	}
	return failure("set mode", mode, s.inTx(ctx, func(tx ownTx) error {
		var before string
		if _, err := tx.one(ctx, lockModeSQL, nil, &before); err != nil || before == mode {
			return err
		}
		var err error
		if mode == "" {
			_, err = tx.exec(ctx, deleteModeSQL)
		} else {
			_, err = tx.exec(ctx, setModeSQL, mode)
		}
		if err != nil {
			return err
		}
		var entries audited
		entries.add("mode", store.DescribeMode(before), store.DescribeMode(mode))
		return tx.audit(ctx, action, "relay mode", entries)
	}))
}
