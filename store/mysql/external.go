package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// Delivery returns who sends.
func (s *Store) Delivery(ctx context.Context) (store.Delivery, error) {
	values, err := s.readMetaRows(ctx, s.db)
	if err != nil {
		return store.Delivery{}, failure("delivery", "", err)
	}
	d, err := store.DeliveryOf(values)
	return d, failure("delivery", "", err)
}

// The greatest id that was queued. What leaves the queue is in the receipts by
// then, so the queue is asked first; what is deleted instead needs no sender.
const (
	greatestQueuedSQL   = `SELECT COALESCE(MAX(id), 0) FROM {pending}`
	greatestReceivedSQL = `SELECT COALESCE(MAX(id), 0) FROM {receipt}`
)

// One statement, so that there is no mode without its cut.
const writeDeliverySQL = "\nINSERT INTO {meta} (`key`, `value`) VALUES ('delivery', ?), ('delivery_cut', ?)" + `
ON DUPLICATE KEY UPDATE ` + "`value` = VALUES(`value`)"

const deleteDeliverySQL = "DELETE FROM {meta} WHERE `key` IN ('delivery', 'delivery_cut')"

// HandOver removes the queue trigger and notes the cut.
//
// The server commits each statement by itself. Removing the trigger waits for
// everybody who inserts, and is thus the moment; from then on nothing above the
// cut gets a queue row, so the cut can be read afterwards, and again if this is
// interrupted before it is noted.
func (s *Store) HandOver(ctx context.Context, action store.Action) (store.Delivery, error) {
	var delivery store.Delivery
	err := s.switching(ctx, action, func(conn *sql.Conn, run func(string) error) error {
		values, err := s.readMetaRows(ctx, conn)
		if err != nil {
			return err
		}
		before, err := store.DeliveryOf(values)
		switch {
		case err != nil:
			return err
		case before.Returning:
			return &waybill.Error{Op: "mysql: hand over", Err: store.ErrReturning, Hint: "bring it to its end: waybill delivery switch relay"}
		case before.External:
			delivery = before
			return s.showQueued(delivery, run) // a run before may not have come to it
		case values[metaTrigger] == "":
			return &waybill.Error{Op: "mysql: hand over", Err: store.ErrNoTrigger, Hint: "let all producers write events alone, install the trigger (waybill migrate), and switch then"}
		}
		if err := run(s.names.expand(`DROP TRIGGER IF EXISTS {queue_trigger}`)); err != nil {
			return err
		}
		delivery = store.Delivery{External: true}
		for _, text := range []string{greatestQueuedSQL, greatestReceivedSQL} {
			var id int64
			if err := conn.QueryRowContext(ctx, s.sql(text)).Scan(&id); err != nil {
				return err
			}
			delivery.Cut = max(delivery.Cut, id)
		}
		if _, err := conn.ExecContext(ctx, s.sql(writeDeliverySQL), store.DeliveryExternal, strconv.FormatInt(delivery.Cut, 10)); err != nil {
			return err
		}
		if err := run(s.names.expand(deleteTriggerMetaSQL)); err != nil {
			return err
		}
		if err := s.showQueued(delivery, run); err != nil {
			return err
		}
		return s.auditSwitch(ctx, conn, action, before, delivery)
	})
	return delivery, failure("hand over", "", err)
}

// showQueued makes the view of all events say of those above the cut that
// somebody is to send them.
func (s *Store) showQueued(d store.Delivery, run func(string) error) error {
	condition := "p.id IS NOT NULL"
	if d.External {
		condition += fmt.Sprintf(" OR r.id IS NULL AND e.id > %d", d.Cut)
	}
	text := strings.ReplaceAll(script("external/status_view.sql"), "{queued}", condition)
	for _, statement := range statementsOf(text) {
		if err := run(s.names.expand(statement)); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) auditSwitch(ctx context.Context, conn *sql.Conn, action store.Action, before, after store.Delivery) error {
	var entries audited
	entries.add("delivery", before.Describe(), after.Describe())
	return ownTx{s, conn}.audit(ctx, action, "delivery switch", entries)
}

// Chosen without a lock: nobody else writes the queue of what is above the cut.
const chooseUnconfirmedSQL = `
SELECT e.id FROM {event} e
WHERE e.id > ?
  AND NOT EXISTS (SELECT 1 FROM {receipt} r WHERE r.id = e.id)
  AND NOT EXISTS (SELECT 1 FROM {pending} p WHERE p.id = e.id)
ORDER BY e.id
LIMIT 1000`

// TakeBack installs the trigger, which waits for everybody who inserts, and
// then queues what was inserted without it.
func (s *Store) TakeBack(ctx context.Context, action store.Action) (queued int, err error) {
	err = s.switching(ctx, action, func(conn *sql.Conn, run func(string) error) error {
		values, err := s.readMetaRows(ctx, conn)
		if err != nil {
			return err
		}
		before, err := store.DeliveryOf(values)
		if err != nil || !before.External {
			return err
		}
		if !before.Returning {
			if _, err := conn.ExecContext(ctx, s.sql(writeDeliverySQL), store.DeliveryReturning, strconv.FormatInt(before.Cut, 10)); err != nil {
				return err
			}
		}
		for _, statement := range append(statementsOf(script("trigger/install.sql")), fmt.Sprintf(writeMetaSQL, metaTrigger, triggerVersion)) {
			if err := run(s.names.expand(statement)); err != nil {
				return err
			}
		}
		for {
			ids, err := collect(ctx, ownTx{s, conn}, scanOne[int64], chooseUnconfirmedSQL, before.Cut)
			if err != nil {
				return err
			}
			if len(ids) == 0 {
				break
			}
			if err := s.inTx(ctx, func(tx ownTx) error { _, err := tx.exec(ctx, requeueSQL, list(ids)); return err }); err != nil {
				return err
			}
			queued += len(ids)
		}
		if err := s.showQueued(store.Delivery{}, run); err != nil {
			return err
		}
		if err := s.auditSwitch(ctx, conn, action, before, store.Delivery{}); err != nil {
			return err
		}
		return run(s.names.expand(deleteDeliverySQL))
	})
	return queued, failure("take back", "", err)
}

// switching runs the steps of a switch on one connection, under the lock of
// migrations. run tries a statement again while others use the table.
func (s *Store) switching(ctx context.Context, action store.Action, do func(conn *sql.Conn, run func(string) error) error) error {
	if action.Reason == "" {
		return store.ErrNoReason
	}
	return s.underLock(ctx, func(conn *sql.Conn) error {
		return do(conn, func(statement string) error { return patiently(ctx, conn, statement) })
	})
}

// receivedRows are confirmations as JSON.
const receivedRows = `JSON_TABLE(?, '$[*]' COLUMNS (
    event_id VARCHAR(384) CHARACTER SET utf8mb4 PATH '$[0]', published_to VARCHAR(1024) CHARACTER SET utf8mb4 PATH '$[1]')) c`

const confirmSQL = `
INSERT IGNORE INTO {receipt} (id, event_id, outcome, via, published_to, note)
SELECT e.id, e.event_id, 'SENT', 'external', c.published_to, ''
FROM ` + receivedRows + `
STRAIGHT_JOIN {event} e FORCE INDEX (event_id) ON e.event_id = c.event_id COLLATE {collation}
WHERE e.id > (SELECT CAST(m.` + "`value`" + ` AS SIGNED) FROM {meta} m WHERE m.` + "`key`" + ` = 'delivery_cut')
ORDER BY e.id`

// Confirm writes receipts for what another program has sent.
func (s *Store) Confirm(ctx context.Context, confirmations []store.Confirmation) (int, error) {
	if len(confirmations) == 0 {
		return 0, nil
	}
	rows := make([][2]string, len(confirmations))
	for i, c := range confirmations {
		rows[i] = [2]string{storable(c.EventID), short(c.PublishedTo)}
	}
	var written int64
	err := s.inTx(ctx, func(tx ownTx) (err error) {
		written, err = tx.exec(ctx, confirmSQL, list(rows))
		return err
	})
	return int(written), failure("confirm", "", err)
}

const unconfirmedSQL = `
SELECT COUNT(*), MIN(e.created_at), UTC_TIMESTAMP(6)
FROM {event} e
WHERE e.id > (SELECT CAST(m.` + "`value`" + ` AS SIGNED) FROM {meta} m WHERE m.` + "`key`" + ` = 'delivery_cut')
  AND e.id > (SELECT MAX(id) FROM {event}) - ?
  AND NOT EXISTS (SELECT 1 FROM {receipt} r WHERE r.id = e.id)
  AND NOT EXISTS (SELECT 1 FROM {pending} p WHERE p.id = e.id)`

// Unconfirmed sums up what was not confirmed yet.
func (s *Store) Unconfirmed(ctx context.Context) (store.Unconfirmed, error) {
	var u store.Unconfirmed
	var oldest, now moment
	if _, err := s.pool().one(ctx, unconfirmedSQL, []any{store.UnconfirmedSpan}, &u.Events, &oldest, &now); err != nil {
		return u, failure("unconfirmed", "", err)
	}
	if !oldest.IsZero() {
		u.OldestAge = max(now.Sub(oldest.Time), 0)
	}
	return u, nil
}

const eventTopicsSQL = `
SELECT topic, MAX(id) FROM {event} WHERE id > ? GROUP BY topic ORDER BY topic`

// EventTopics returns the topics of the events above an id.
func (s *Store) EventTopics(ctx context.Context, above int64) (topics []string, last int64, err error) {
	last = above
	rows, err := s.pool().query(ctx, eventTopicsSQL, above)
	if err != nil {
		return nil, last, failure("event topics", "", err)
	}
	err = each(rows, func() error {
		var topic string
		var id int64
		err := rows.Scan(&topic, &id)
		topics, last = append(topics, topic), max(last, id)
		return err
	})
	return topics, last, failure("event topics", "", err)
}

var _ store.External = (*Store)(nil)
