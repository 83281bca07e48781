package reconcile

import (
	"context"
	"fmt"
	"time"
)

// entry is what the outbox or an inbox has written down about an event.
type entry struct {
	eventID string
	at      time.Time
	arm     string
	text    string
}

// book is a table of such entries: a statement for a list of event ids, and how
// a row of it reads.
type book struct {
	database  Database
	statement func(ids []string) *statement
	read      func(types []column, got []any) entry
}

// entries reads what the outbox and the inbox, where the check has them, know
// of events. A book that cannot be read is an entry that says so.
func (t *tables) entries(ctx context.Context, ids []string) (all []entry) {
	const batch = 500
	for _, b := range t.books() {
		limited, cancel := t.limit(ctx)
		err := b.database.snapshot(limited, func(q queryer) error {
			for rest := ids; len(rest) > 0; {
				n := min(batch, len(rest))
				if err := scan(limited, q, b.statement(rest[:n]), func(types []column, got []any) error {
					all = append(all, b.read(types, got))
					return nil
				}); err != nil {
					return err
				}
				rest = rest[n:]
			}
			return nil
		})
		cancel()
		if err != nil {
			all = append(all, entry{arm: "unknown", text: err.Error()})
		}
	}
	return all
}

func (t *tables) books() (all []book) {
	if t.check.Log != nil && t.check.Log.Outbox != nil {
		all = append(all, book{t.log, t.queue, readQueue}, book{t.log, t.receipts, readReceipt})
	}
	if t.check.Consumer != nil {
		all = append(all, book{t.consumer, t.consumption, readConsumption}, book{t.consumer, t.holds, readHold})
	}
	return all
}

const queueSQL = `
SELECT e.event_id, p.status, p.retry_count, p.next_retry_at, p.last_error, p.updated_at
FROM %s AS e
JOIN %s AS p ON p.id = e.id
WHERE e.event_id IN (%s)`

func (t *tables) queue(ids []string) *statement {
	s := &statement{dialect: t.log.Dialect}
	names := t.check.Log.Outbox.Names.WithDefaults()
	return s.add(queueSQL, t.outboxTable(names.Event), t.outboxTable(names.Pending), s.list(ids))
}

func readQueue(types []column, got []any) entry {
	e := entry{eventID: textAt(got, 0), arm: "outbox", at: timeAt(types, got, 5)}
	tries, lastError := textAt(got, 2), textAt(got, 4)
	switch {
	case textAt(got, 1) == string(StateDead):
		e.text = "given up after " + tries + " attempts: " + lastError
	case lastError != "":
		e.text = "attempt " + tries + " failed, next at " + moment(timeAt(types, got, 3)) + ": " + lastError
	default:
		e.text = "in the queue, not tried yet"
	}
	return e
}

const receiptSQL = `
SELECT e.event_id, r.outcome, r.via, r.published_at, r.published_to, r.note
FROM %s AS e
JOIN %s AS r ON r.id = e.id
WHERE e.event_id IN (%s)`

func (t *tables) receipts(ids []string) *statement {
	s := &statement{dialect: t.log.Dialect}
	names := t.check.Log.Outbox.Names.WithDefaults()
	return s.add(receiptSQL, t.outboxTable(names.Event), t.outboxTable(names.Receipt), s.list(ids))
}

func readReceipt(types []column, got []any) entry {
	e := entry{eventID: textAt(got, 0), arm: "outbox", at: timeAt(types, got, 3), text: textAt(got, 1)}
	for _, more := range []struct{ word, text string }{{" by ", textAt(got, 2)}, {" to ", textAt(got, 4)}, {", ", textAt(got, 5)}} {
		if more.text != "" {
			e.text += more.word + more.text
		}
	}
	return e
}

func (t *tables) outboxTable(name string) string {
	return t.log.Dialect.table(&Table{Schema: t.check.Log.Outbox.Names.Schema, Table: name})
}

const consumptionSQL = `
SELECT event_id, outcome, consumed_at, duplicates, last_duplicate_at
FROM %s
WHERE consumer_group = %s AND event_id IN (%s)`

func (t *tables) consumption(ids []string) *statement {
	s := &statement{dialect: t.consumer.Dialect}
	names := t.check.Consumer.Names.WithDefaults()
	return s.add(consumptionSQL, t.consumerTable(names.Consumed), s.bind(t.check.Consumer.Group), s.list(ids))
}

func readConsumption(types []column, got []any) entry {
	e := entry{eventID: textAt(got, 0), arm: "consumer", at: timeAt(types, got, 2), text: textAt(got, 1)}
	if n := textAt(got, 3); n != "" && n != "0" {
		e.text += fmt.Sprintf("; %s duplicates, the last %s", n, moment(timeAt(types, got, 4)))
	}
	return e
}

const holdSQL = `
SELECT event_id, state, held_at, attempts, next_attempt_at, last_error
FROM %s
WHERE consumer_group = %s AND event_id IN (%s)`

func (t *tables) holds(ids []string) *statement {
	s := &statement{dialect: t.consumer.Dialect}
	names := t.check.Consumer.Names.WithDefaults()
	return s.add(holdSQL, t.consumerTable(names.Held), s.bind(t.check.Consumer.Group), s.list(ids))
}

func readHold(types []column, got []any) entry {
	e := entry{eventID: textAt(got, 0), arm: "consumer", at: timeAt(types, got, 2)}
	e.text = "held as " + textAt(got, 1)
	if n := textAt(got, 3); n != "" && n != "0" {
		e.text += " after " + n + " attempts"
	}
	if next := timeAt(types, got, 4); !next.IsZero() {
		e.text += ", next at " + moment(next)
	}
	if why := textAt(got, 5); why != "" {
		e.text += ": " + why
	}
	return e
}
