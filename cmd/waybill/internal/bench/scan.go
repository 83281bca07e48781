package bench

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"sync"

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
func (t *task) scan(ctx context.Context) (*outcome, error) {
	shop, search, leave, err := t.arms(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	sides := map[string]reconcile.Database{sideWrite: shop, sideLog: shop, sideRead: search}
	textOf := func(side string) string {
		if side == sideLog {
			side = t.Compare.Log
		}
		return scans[side]
	}
	began := now()
	if side := t.Compare.Side; side != sideAll {
		keys, err := scanRows(ctx, sides[side].DB, textOf(side))
		return &outcome{Events: keys, Seconds: since(began)}, err
	}
	var working sync.WaitGroup
	var mu sync.Mutex
	least, failed := t.Compare.Keys, []error(nil)
	for side, on := range sides {
		working.Go(func() {
			keys, err := scanTexts(ctx, on, textOf(side))
			mu.Lock()
			defer mu.Unlock()
			least, failed = min(least, keys), append(failed, err)
		})
	}
	working.Wait()
	return &outcome{Events: least, Seconds: since(began)}, errors.Join(failed...)
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
func scanTexts(ctx context.Context, d reconcile.Database, text string) (keys int, err error) {
	if d.Texts == nil {
		return scanRows(ctx, d.DB, text)
	}
	conn, err := d.DB.Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	done := false
	var last []byte
	err = conn.Raw(func(driverConn any) (err error) {
		done, err = d.Texts(ctx, driverConn, text, nil, func([]string) error { return nil }, func(values [][]byte) error {
			if !bytes.Equal(values[0], last) {
				keys++
				last = append(last[:0], values[0]...)
			}
			return nil
		})
		return err
	})
	if err == nil && !done {
		return scanRows(ctx, d.DB, text)
	}
	return keys, err
}
