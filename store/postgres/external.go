package postgres

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// Delivery returns who sends.
func (s *Store) Delivery(ctx context.Context) (store.Delivery, error) {
	values, err := s.readMetaRows(ctx, s.pool)
	if err != nil {
		return store.Delivery{}, failure("delivery", "", err)
	}
	d, err := store.DeliveryOf(values)
	return d, failure("delivery", "", err)
}

// Nobody who inserts is under way when the trigger goes, since removing it takes
// the table's strongest lock; and whoever comes after takes a greater id.
const readCutSQL = `SELECT COALESCE(max(id), 0) FROM {event}`

const writeDeliverySQL = `
INSERT INTO {meta} (key, value) VALUES ('delivery', $1), ('delivery_cut', $2)
ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value`

const deleteDeliverySQL = `DELETE FROM {meta} WHERE key IN ('delivery', 'delivery_cut')`

// HandOver removes the queue trigger and notes the cut, in one transaction.
func (s *Store) HandOver(ctx context.Context, action store.Action) (store.Delivery, error) {
	var delivery store.Delivery
	err := s.switching(ctx, action, func(tx pgx.Tx, values map[string]string, entries *audited) error {
		before, err := store.DeliveryOf(values)
		switch {
		case err != nil:
			return err
		case before.Returning:
			return &waybill.Error{Op: "postgres: hand over", Err: store.ErrReturning, Hint: "bring it to its end: waybill delivery switch relay"}
		case before.External:
			delivery = before
			return nil
		}
		var trigger bool
		if err := tx.QueryRow(ctx, s.sql(readTriggerSQL)).Scan(&trigger); err != nil {
			return err
		}
		if !trigger {
			return &waybill.Error{Op: "postgres: hand over", Err: store.ErrNoTrigger, Hint: "let all producers write events alone, install the trigger (waybill migrate), and switch then"}
		}
		delivery = store.Delivery{External: true}
		if err := s.runScripts(ctx, tx, script("external/dequeue.sql"), deleteTriggerMetaSQL); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, s.sql(readCutSQL)).Scan(&delivery.Cut); err != nil {
			return err
		}
		if err := s.runScripts(ctx, tx, statusView(fmt.Sprintf("p.id IS NOT NULL OR r.id IS NULL AND e.id > %d", delivery.Cut))); err != nil {
			return err
		}
		entries.add("delivery", before.Describe(), delivery.Describe())
		_, err = tx.Exec(ctx, s.sql(writeDeliverySQL), store.DeliveryExternal, strconv.FormatInt(delivery.Cut, 10))
		return err
	})
	return delivery, failure("hand over", "", err)
}

// The queue of a row above the cut is nobody's yet, so nobody else writes it.
const queueUnconfirmedSQL = `
INSERT INTO {pending} (id, lane, key_hash, topic_hash, next_retry_at)
SELECT n.id, {lane}, {key_hash}, {topic_hash}, clock_timestamp()
FROM {event} n
WHERE n.id > $1
  AND NOT EXISTS (SELECT FROM {receipt} r WHERE r.id = n.id)
  AND NOT EXISTS (SELECT FROM {pending} p WHERE p.id = n.id)
ORDER BY n.id
LIMIT 1000
ON CONFLICT (id) DO NOTHING`

// TakeBack installs the trigger in one transaction, and queues in others what
// was inserted without it.
func (s *Store) TakeBack(ctx context.Context, action store.Action) (queued int, err error) {
	var before store.Delivery
	err = s.switching(ctx, action, func(tx pgx.Tx, values map[string]string, _ *audited) error {
		if before, err = store.DeliveryOf(values); err != nil || !before.External || before.Returning {
			return err
		}
		if err := s.runScripts(ctx, tx, script("trigger/create_functions.sql"), script("trigger/install.sql"), fmt.Sprintf(writeMetaSQL, quoteLiteral(metaTrigger), quoteLiteral(triggerVersion))); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, s.sql(writeDeliverySQL), store.DeliveryReturning, strconv.FormatInt(before.Cut, 10))
		return err
	})
	for again := err == nil && before.External; again; {
		var n int64
		err = s.inTx(ctx, func(tx pgx.Tx) error {
			tag, err := tx.Exec(ctx, s.sql(queueUnconfirmedSQL), before.Cut)
			n = tag.RowsAffected()
			return err
		})
		queued += int(n)
		again = err == nil && n > 0
	}
	if err != nil || !before.External {
		return queued, failure("take back", "", err)
	}
	err = s.switching(ctx, action, func(tx pgx.Tx, _ map[string]string, entries *audited) error {
		entries.add("delivery", before.Describe(), store.Delivery{}.Describe())
		if _, err := tx.Exec(ctx, s.sql(deleteDeliverySQL)); err != nil {
			return err
		}
		return s.runScripts(ctx, tx, statusView("p.id IS NOT NULL"))
	})
	return queued, failure("take back", "", err)
}

// switching runs one transaction of a switch, under the lock of migrations, and
// again while others use the table.
func (s *Store) switching(ctx context.Context, action store.Action, do func(tx pgx.Tx, values map[string]string, entries *audited) error) error {
	if action.Reason == "" {
		return store.ErrNoReason
	}
	for attempt := 0; ; attempt++ {
		err := retry(ctx, func() error {
			return pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
				if err := s.lockMigration(ctx, tx); err != nil {
					return err
				}
				values, err := s.readMetaRows(ctx, tx)
				if err != nil {
					return err
				}
				path := ownPathSQL
				if s.names.Schema != "" {
					path = namedPathSQL
				}
				if err := s.runScripts(ctx, tx, path); err != nil {
					return err
				}
				var entries audited
				if err := do(tx, values, &entries); err != nil {
					return err
				}
				batch := &pgx.Batch{}
				s.queueAudit(batch, action, "delivery switch", &entries)
				return tx.SendBatch(ctx, batch).Close()
			})
		})
		if codeOf(err) != codeLockTimeout || attempt == migrateAttempts || pause(ctx, migrateBase, attempt) != nil {
			return err
		}
	}
}

// lockMigration shuts out other migrations and switches, and bounds how long a
// table's lock is waited for, since producers wait behind it.
func (s *Store) lockMigration(ctx context.Context, tx pgx.Tx) error {
	// The wait for the other migration is bounded by ctx alone.
	const lockSQL = `SELECT pg_advisory_xact_lock(hashtextextended('waybill migration ' || $1, 0))`
	if _, err := tx.Exec(ctx, lockSQL, s.names.expand("{meta}")); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", lockTimeout.Milliseconds()))
	return err
}

func (s *Store) runScripts(ctx context.Context, tx pgx.Tx, templates ...string) error {
	for _, template := range templates {
		if _, err := tx.Exec(ctx, s.names.expand(template), pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
	}
	return nil
}

// statusView is the view of all events, in which queued is this condition: that
// somebody is to send the event.
func statusView(queued string) string {
	return strings.ReplaceAll(script("external/status_view.sql"), "{queued}", queued)
}

const confirmSQL = `
INSERT INTO {receipt} (id, event_id, outcome, via, published_at, published_to, note)
SELECT e.id, e.event_id, 'SENT', 'external', clock_timestamp(), c.published_to, ''
FROM unnest($1::text[], $2::text[]) AS c (event_id, published_to)
JOIN {event} e ON e.event_id = c.event_id
WHERE e.id > (SELECT value::bigint FROM {meta} WHERE key = 'delivery_cut')
ORDER BY e.id
ON CONFLICT (id) DO NOTHING`

// Confirm writes receipts for what another program has sent.
func (s *Store) Confirm(ctx context.Context, confirmations []store.Confirmation) (int, error) {
	if len(confirmations) == 0 {
		return 0, nil
	}
	ids, places := make([]string, len(confirmations)), make([]string, len(confirmations))
	for i, c := range confirmations {
		ids[i], places[i] = storable(c.EventID), storable(c.PublishedTo)
	}
	tag, err := s.pool.Exec(ctx, s.sql(confirmSQL), s.planned, ids, places)
	return int(tag.RowsAffected()), failure("confirm", "", err)
}

const unconfirmedSQL = `
SELECT count(*), min(e.created_at), clock_timestamp()
FROM {event} e
WHERE e.id > GREATEST((SELECT value::bigint FROM {meta} WHERE key = 'delivery_cut'), (SELECT max(id) FROM {event}) - $1)
  AND EXISTS (SELECT FROM {meta} WHERE key = 'delivery_cut')
  AND NOT EXISTS (SELECT FROM {receipt} r WHERE r.id = e.id)
  AND NOT EXISTS (SELECT FROM {pending} p WHERE p.id = e.id)`

// Unconfirmed sums up what was not confirmed yet.
func (s *Store) Unconfirmed(ctx context.Context) (store.Unconfirmed, error) {
	var u store.Unconfirmed
	var oldest moment
	var now time.Time
	err := s.pool.QueryRow(ctx, s.sql(unconfirmedSQL), s.planned, int64(store.UnconfirmedSpan)).Scan(&u.Events, &oldest, &now)
	if oldest.set {
		u.OldestAge = max(now.Sub(oldest.Time), 0)
	}
	return u, failure("unconfirmed", "", err)
}

const eventTopicsSQL = `
SELECT topic, max(id) FROM {event} WHERE id > $1 GROUP BY topic ORDER BY topic`

// EventTopics returns the topics of the events above an id.
func (s *Store) EventTopics(ctx context.Context, above int64) (topics []string, last int64, err error) {
	rows, err := s.pool.Query(ctx, s.sql(eventTopicsSQL), s.planned, above)
	if err != nil {
		return nil, above, failure("event topics", "", err)
	}
	last = above
	var topic string
	var id int64
	_, err = pgx.ForEachRow(rows, []any{&topic, &id}, func() error {
		topics, last = append(topics, topic), max(last, id)
		return nil
	})
	return topics, last, failure("event topics", "", err)
}

var _ store.External = (*Store)(nil)
