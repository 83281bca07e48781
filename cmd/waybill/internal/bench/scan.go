package bench

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"sync"

	"github.com/waybillhq/waybill/cmd/waybill/internal/checks"
	"github.com/waybillhq/waybill/reconcile"
)

var scans = map[string]string{
	sideWrite: `SELECT id, version, status, amount FROM loan WHERE id IS NOT NULL ORDER BY id`,
	sideRead:  `SELECT id, version, status, amount FROM loan_view WHERE id IS NOT NULL ORDER BY id`,
	LogOwn:    `SELECT loan_id, version, state, status, amount FROM loan_event ORDER BY loan_id`,
	LogOutbox: `SELECT aggregate_id, aggregate_version, status, payload FROM outbox_status WHERE aggregate_type = 'loan' AND tenant_id = '' ORDER BY aggregate_id`,
}

// scan reads one side in order, as fast as database/sql hands rows over, or all
// three at once, as fast as the comparison's own reader does: that is as fast as
// anything can be that reads all three here and then has nothing to do.
func (t *task) scan(ctx context.Context, d *database) (_ *outcome, err error) {
	read := d
	if t.Compare.ReadDSN != t.DSN {
		if read, err = openDatabase(ctx, t.Compare.ReadStore, t.Compare.ReadDSN); err != nil {
			return nil, err
		}
		defer func() { _ = read.close() }()
	}
	began := now()
	if t.Compare.Side != sideAll {
		on, text := t.sideOf(t.Compare.Side, d, read)
		keys, err := scanRows(ctx, on.db, text)
		return &outcome{Events: keys, Seconds: since(began)}, err
	}
	sides := []string{sideWrite, sideLog, sideRead}
	keys, failed := make([]int, len(sides)), make([]error, len(sides))
	var working sync.WaitGroup
	for i, side := range sides {
		on, text := t.sideOf(side, d, read)
		working.Go(func() { keys[i], failed[i] = scanTexts(ctx, on, text) })
	}
	working.Wait()
	return &outcome{Events: min(keys[0], keys[1], keys[2]), Seconds: since(began)}, errors.Join(failed...)
}

func (t *task) sideOf(side string, d, read *database) (on *database, text string) {
	switch side {
	case sideLog:
		return d, scans[t.Compare.Log]
	case sideRead:
		return read, scans[side]
	}
	return d, scans[side]
}

// scanRows counts the keys that a query returns in order.
func scanRows(ctx context.Context, db *sql.DB, text string) (keys int, err error) {
	rows, err := db.QueryContext(ctx, text)
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }()
	names, err := rows.Columns()
	if err != nil {
		return 0, err
	}
	values, targets := make([]any, len(names)), make([]any, len(names))
	for i := range values {
		targets[i] = &values[i]
	}
	last := ""
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			return keys, err
		}
		key, _ := values[0].(string)
		if raw, ok := values[0].([]byte); ok {
			key = string(raw)
		}
		if key != last {
			keys++
			last = key
		}
	}
	return keys, rows.Err()
}

// scanTexts does the same with the comparison's reader, where the database has
// one.
func scanTexts(ctx context.Context, d *database, text string) (keys int, err error) {
	var read reconcile.TextReader = checks.Of(d.db, d.kind).Texts
	if read == nil {
		return scanRows(ctx, d.db, text)
	}
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	done := false
	var last []byte
	err = conn.Raw(func(driverConn any) (err error) {
		done, err = read(ctx, driverConn, text, nil, func([]string) error { return nil }, func(values [][]byte) error {
			if !bytes.Equal(values[0], last) {
				keys++
				last = append(last[:0], values[0]...)
			}
			return nil
		})
		return err
	})
	if err == nil && !done {
		return scanRows(ctx, d.db, text)
	}
	return keys, err
}
