package guard

import (
	"context"

	"github.com/waybillhq/waybill"
)

// Consumed is the inbox's table for those who read events by other means than a
// processor: a framework's listener, a batch job. Processors do the same, and
// with it what this does not: order, retries, and positions.
//
// It protects whatever is done in the same transaction against the repetition
// of one event id in one group. It does not know that two ids mean one fact.
type Consumed struct {
	Table string // empty means consumed_event
	Group string
}

// First notes that the group consumes the event in this transaction, and
// reports true. For an event that it has consumed before it counts the
// duplicate and reports false: do nothing, and commit. It waits for another
// transaction that is consuming the same event.
func (c Consumed) First(ctx context.Context, tx Tx, e *waybill.Event) (first bool, err error) {
	table := c.Table
	if table == "" {
		table = "consumed_event"
	}
	row := Row{
		"consumer_group": c.Group, "event_id": e.ID, "event_type": e.Type, "tenant_id": e.TenantID, "aggregate_type": e.AggregateType,
		"aggregate_id": e.AggregateID, "outcome": "APPLIED", "topic": e.Topic,
		"partition": 0, "position": 0, // whatever the place was: nobody resumes there
	}
	if e.AggregateVersion > 0 {
		row["aggregate_version"] = e.AggregateVersion
	}
	first, err = c.first(ctx, tx, table, row)
	return first, failure("consume in", table, e.ID, err)
}

func (c Consumed) first(ctx context.Context, tx Tx, table string, row Row) (bool, error) {
	d := tx.dialect
	count := "duplicates = duplicates + 1, last_duplicate_at = " + d.now()
	statement, args := d.insertion(table, row)
	if d == MySQL { // which counts two rows for one that was there
		n, err := tx.Exec(ctx, statement+" ON DUPLICATE KEY UPDATE "+count, args...)
		return n == 1, err
	}
	n, err := tx.Exec(ctx, statement+d.orNothing([]string{"consumer_group", "event_id"}), args...)
	if err != nil || n > 0 {
		return n > 0, err
	}
	_, err = tx.Exec(ctx, "UPDATE "+d.name(table)+" SET "+count+" WHERE consumer_group = ? AND event_id = ?", row["consumer_group"], row["event_id"])
	return false, err
}

// now is the moment as the table keeps it.
func (d Dialect) now() string {
	switch d {
	case SQLite:
		return "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"
	case MySQL:
		return "UTC_TIMESTAMP(6)"
	}
	return "clock_timestamp()"
}
