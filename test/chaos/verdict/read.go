package verdict

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
)

const selectAccounts = `SELECT id, version, amount FROM account`

const selectFacts = `
SELECT id, event_id, aggregate_id, COALESCE(aggregate_version, 0), event_type, payload
FROM outbox_event ORDER BY id`

const selectQueue = `SELECT id, status, retry_count, COALESCE(last_error, '') FROM outbox_pending ORDER BY id`

const selectReceipts = `SELECT id, event_id, outcome, via, published_to FROM outbox_receipt ORDER BY id`

const selectWrites = `SELECT event_row, who, owner, status, retries, last_error, gone FROM chaos_write ORDER BY seq`

const selectOwners = `SELECT owner, who FROM chaos_owner`

// ReadShop reads the producer's database. The SQL is what PostgreSQL, MySQL and
// SQLite all understand.
func ReadShop(ctx context.Context, db *sql.DB) (s Shop, err error) {
	s.Accounts, s.Owners = make(map[string]Account), make(map[string]string)
	err = firstError(
		each(ctx, db, selectAccounts, func(scan scanner) error {
			var key string
			var a Account
			err := scan(&key, &a.Version, &a.Amount)
			s.Accounts[key] = a
			return err
		}),
		each(ctx, db, selectFacts, func(scan scanner) error {
			var f Fact
			var payload []byte
			if err := scan(&f.Row, &f.ID, &f.Key, &f.Version, &f.Type, &payload); err != nil {
				return err
			}
			f.Sum = Sum(payload)
			f.Amount = amountOf(payload)
			s.Facts = append(s.Facts, f)
			return nil
		}),
		each(ctx, db, selectQueue, func(scan scanner) error {
			var q Queued
			err := scan(&q.Row, &q.Status, &q.Retries, &q.LastErr)
			s.Queue = append(s.Queue, q)
			return err
		}),
		each(ctx, db, selectReceipts, func(scan scanner) error {
			var r Receipt
			err := scan(&r.Row, &r.EventID, &r.Outcome, &r.Via, &r.Place)
			s.Receipts = append(s.Receipts, r)
			return err
		}),
		each(ctx, db, selectWrites, func(scan scanner) error {
			var w Write
			var gone int
			err := scan(&w.Row, &w.Who, &w.Owner, &w.Status, &w.Retries, &w.LastErr, &gone)
			w.Gone = gone != 0
			s.Writes = append(s.Writes, w)
			return err
		}),
		each(ctx, db, selectOwners, func(scan scanner) error {
			var owner, who string
			err := scan(&owner, &who)
			s.Owners[owner] = who
			return err
		}),
	)
	return s, err
}

const selectEffects = `SELECT consumer_group, event_id, of_key, version FROM effect ORDER BY seq`

const selectModels = `SELECT consumer_group, of_key, version, events, total FROM model`

const selectConsumed = `SELECT consumer_group, event_id, outcome, duplicates FROM consumed_event`

const selectHeld = `SELECT consumer_group, event_id, aggregate_id, state, attempts, first_error FROM held_event ORDER BY seq`

// ReadBack reads the consumers' database.
func ReadBack(ctx context.Context, db *sql.DB) (b Back, err error) {
	err = firstError(
		each(ctx, db, selectEffects, func(scan scanner) error {
			var e Effect
			err := scan(&e.Group, &e.EventID, &e.Key, &e.Version)
			b.Effects = append(b.Effects, e)
			return err
		}),
		each(ctx, db, selectModels, func(scan scanner) error {
			var m Model
			err := scan(&m.Group, &m.Key, &m.Version, &m.Events, &m.Total)
			b.Models = append(b.Models, m)
			return err
		}),
		each(ctx, db, selectConsumed, func(scan scanner) error {
			var c Consumed
			err := scan(&c.Group, &c.EventID, &c.Outcome, &c.Duplicates)
			b.Consumed = append(b.Consumed, c)
			return err
		}),
		each(ctx, db, selectHeld, func(scan scanner) error {
			var h Held
			err := scan(&h.Group, &h.EventID, &h.Key, &h.State, &h.Attempts, &h.FirstErr)
			b.Held = append(b.Held, h)
			return err
		}),
	)
	return b, err
}

type scanner func(into ...any) error

func each(ctx context.Context, db *sql.DB, query string, row func(scan scanner) error) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return fmt.Errorf("%s: %w", query, err)
		}
	}
	return rows.Err()
}

func firstError(all ...error) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}

// amountOf is the amount that an event's data tells, 0 where it tells none.
func amountOf(data []byte) int64 {
	var content struct {
		Amount int64 `json:"amount"`
	}
	_ = json.Unmarshal(data, &content)
	return content.Amount
}
