package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/waybillhq/waybill/store"
)

const (
	guardSQL = `
SELECT g.value ->> 0
FROM json_each(?2) AS g
LEFT JOIN {lease} AS l ON l.lane = g.value ->> 0
WHERE NOT COALESCE(l.owner = ?1 AND l.fence = g.value ->> 1 AND l.expires_at > {now}, 0)`

	// What was emptied and filled again meanwhile has other events under the same
	// ids. In hexadecimal an id of any bytes can be compared.
	strangersSQL = `
SELECT e.id
FROM json_each(?1) AS c
CROSS JOIN {event} AS e ON e.id = c.value ->> 0
WHERE hex(e.event_id) <> c.value ->> 1`

	settleReceiptSQL = `
INSERT OR REPLACE INTO {receipt} (id, event_id, outcome, via, published_at, published_to, note)
SELECT p.id, c.value ->> 1, c.value ->> 2, c.value ->> 3, {now}, c.value ->> 4, c.value ->> 5
FROM json_each(?1) AS c
CROSS JOIN {pending} AS p ON p.id = c.value ->> 0`

	forgetReceiptSQL = `
DELETE FROM {receipt}
WHERE id IN (SELECT p.id FROM json_each(?1) AS c CROSS JOIN {pending} AS p ON p.id = c.value ->> 0)`

	forgetEventSQL = `
DELETE FROM {event}
WHERE id IN (SELECT p.id FROM json_each(?1) AS c CROSS JOIN {pending} AS p ON p.id = c.value ->> 0)`

	settleSQL = `
DELETE FROM {pending} WHERE id IN (SELECT value ->> 0 FROM json_each(?1))`

	failSQL = `
UPDATE {pending} AS p
SET status = CASE WHEN c.value ->> 1 THEN 'DEAD' ELSE 'PENDING' END,
    parked = 1,
    retry_count = c.value ->> 2,
    next_retry_at = CASE WHEN c.value ->> 1 THEN NULL ELSE strftime({iso}, 'now', c.value ->> 3) END,
    first_error = CASE p.first_error WHEN '' THEN c.value ->> 4 ELSE p.first_error END,
    last_error = c.value ->> 4,
    updated_at = {now}
FROM json_each(?1) AS c
WHERE p.id = c.value ->> 0`

	parkSQL = `
UPDATE {pending} SET parked = 1, updated_at = {now}
WHERE parked = 0 AND id IN (SELECT value FROM json_each(?1))`
)

// Apply makes the changes if the guard's leases hold. BEGIN IMMEDIATE stands
// for the lock on the leases: until the end nobody else writes.
func (s *Store) Apply(ctx context.Context, guard store.Guard, changes store.Changes) error {
	return s.write(ctx, "apply", true, func(w writing) error {
		if err := w.compare(ctx, guard); err != nil {
			return err
		}
		if len(changes.Settled)+len(changes.Failed)+len(changes.Parked) == 0 {
			_, err := w.exec(ctx, pingSQL)
			return err
		}
		if err := w.dropStrangers(ctx, &changes); err != nil {
			return err
		}
		if len(changes.Settled) > 0 {
			steps := []string{settleReceiptSQL, settleSQL}
			if changes.Forget {
				steps = []string{forgetReceiptSQL, forgetEventSQL, settleSQL}
			}
			settled := jsonSettled(changes.Settled)
			for _, step := range steps {
				if _, err := w.exec(ctx, step, settled); err != nil {
					return err
				}
			}
		}
		if len(changes.Failed) > 0 {
			if _, err := w.exec(ctx, failSQL, jsonFailed(changes.Failed)); err != nil {
				return err
			}
		}
		if len(changes.Parked) > 0 {
			if _, err := w.exec(ctx, parkSQL, jsonInts(changes.Parked)); err != nil {
				return err
			}
		}
		return nil
	})
}

func (w writing) compare(ctx context.Context, guard store.Guard) error {
	if len(guard.Lanes) == 0 {
		return nil
	}
	rows, err := w.query(ctx, guardSQL, guard.Owner, jsonLeases(guard.Lanes))
	if err != nil {
		return err
	}
	var lost []int
	for rows.Next() {
		var lane int
		if err := rows.Scan(&lane); err != nil {
			return errors.Join(err, rows.Close())
		}
		lost = append(lost, lane)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	if len(lost) > 0 {
		return &store.StaleError{Lanes: lost}
	}
	return nil
}

// dropStrangers takes out the changes whose ids other events have by now.
func (w writing) dropStrangers(ctx context.Context, changes *store.Changes) error {
	text := []byte{'['}
	add := func(c store.Change) {
		if len(text) > 1 {
			text = append(text, ',')
		}
		text = fmt.Appendf(text, `[%d,"%X"]`, c.ID, c.EventID)
	}
	for i := range changes.Settled {
		add(changes.Settled[i].Change)
	}
	for i := range changes.Failed {
		add(changes.Failed[i].Change)
	}
	rows, err := w.query(ctx, strangersSQL, string(append(text, ']')))
	if err != nil {
		return err
	}
	strange := make(map[int64]bool)
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return errors.Join(err, rows.Close())
		}
		strange[id] = true
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil || len(strange) == 0 {
		return err
	}
	changes.Settled = slices.DeleteFunc(slices.Clone(changes.Settled), func(c store.SettledChange) bool { return strange[c.ID] })
	changes.Failed = slices.DeleteFunc(slices.Clone(changes.Failed), func(c store.FailedChange) bool { return strange[c.ID] })
	return nil
}
