package sqlite

import (
	"context"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

const listPositionsSQL = `SELECT source, position, updated_at FROM {position} ORDER BY source`

// ListPositions returns all positions, by source.
func (s *Store) ListPositions(ctx context.Context) ([]store.Position, error) {
	rows, err := s.query(ctx, listPositionsSQL)
	if err != nil {
		return nil, s.failed("list positions", "", err)
	}
	defer rows.Close()
	var positions []store.Position
	for rows.Next() {
		var p store.Position
		var at string
		if err := rows.Scan(&p.Source, &p.Position, &at); err != nil {
			return nil, s.failed("list positions", "", err)
		}
		p.UpdatedAt = parseTime(at)
		positions = append(positions, p)
	}
	return positions, s.failed("list positions", "", rows.Err())
}

const savePositionSQL = `
INSERT INTO {position} (source, position) VALUES (?1, ?2)
ON CONFLICT (source) DO UPDATE SET position = excluded.position, updated_at = {now}`

const deletePositionSQL = `DELETE FROM {position} WHERE source = ?1`

// SavePosition replaces a source's position if the leases hold.
func (s *Store) SavePosition(ctx context.Context, guard store.Guard, source, position string) error {
	return s.write(ctx, "save position", true, func(w writing) error {
		if err := w.compare(ctx, guard); err != nil {
			return err
		}
		if position == "" {
			_, err := w.exec(ctx, deletePositionSQL, source)
			return err
		}
		_, err := w.exec(ctx, savePositionSQL, source, position)
		return err
	})
}

const readModeSQL = `SELECT COALESCE((SELECT value FROM {meta} WHERE key = 'mode'), '')`

// ReadMode returns the mode that was set.
func (s *Store) ReadMode(ctx context.Context) (mode string, err error) {
	err = s.scan(ctx, readModeSQL, nil, &mode)
	return mode, s.failed("read mode", "", err)
}

const setModeSQL = `
INSERT INTO {meta} (key, value) VALUES ('mode', ?1)
ON CONFLICT (key) DO UPDATE SET value = excluded.value`

const deleteModeSQL = `DELETE FROM {meta} WHERE key = 'mode'`

// SetMode changes the mode of all relays.
func (s *Store) SetMode(ctx context.Context, action store.Action, mode string) error {
	if err := store.CheckMode(action, mode); err != nil {
		return &waybill.Error{Op: "set mode", Key: mode, Err: err}
	}
	return s.write(ctx, "set mode", false, func(w writing) error {
		var before string
		if err := w.scan(ctx, readModeSQL, nil, &before); err != nil || before == mode {
			return err
		}
		var err error
		if mode == "" {
			_, err = w.exec(ctx, deleteModeSQL)
		} else {
			_, err = w.exec(ctx, setModeSQL, mode)
		}
		if err != nil {
			return err
		}
		_, err = w.exec(ctx, recordSQL, action.Actor, action.Named("relay mode"), "mode", action.Reason, store.DescribeMode(before), store.DescribeMode(mode))
		return err
	})
}
