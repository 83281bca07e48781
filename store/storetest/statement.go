package storetest

import (
	"strconv"
	"strings"

	"github.com/waybillhq/waybill"
)

// Statement is what an application in any language might run.
type Statement struct {
	// Delete removes the row of Event.ID from outbox_event, and from nowhere
	// else. Otherwise the statement inserts Event there, naming no more columns
	// than it must.
	Delete bool
	// ID is the id to insert; 0 leaves it to the database.
	ID    int64
	Event waybill.Event
}

// SQL returns the statement in the SQL that all dialects share. table is the
// quoted name of outbox_event.
func (s Statement) SQL(table string) string {
	if s.Delete {
		return "DELETE FROM " + table + " WHERE event_id = " + literal(s.Event.ID)
	}
	columns := []string{"event_id", "aggregate_type", "aggregate_id", "event_type", "topic", "payload"}
	values := []string{
		literal(s.Event.ID), literal(s.Event.AggregateType), literal(s.Event.AggregateID), literal(s.Event.Type),
		literal(s.Event.Topic), literal(string(s.Event.Data)),
	}
	if s.ID != 0 {
		columns, values = append(columns, "id"), append(values, strconv.FormatInt(s.ID, 10))
	}
	if s.Event.AggregateVersion != 0 {
		columns, values = append(columns, "aggregate_version"), append(values, strconv.FormatInt(s.Event.AggregateVersion, 10))
	}
	if s.Event.Key != "" {
		columns, values = append(columns, "event_key"), append(values, literal(s.Event.Key))
	}
	return "INSERT INTO " + table + " (" + strings.Join(columns, ", ") + ") VALUES (" + strings.Join(values, ", ") + ")"
}

// literal quotes a text. The suite's texts have no backslash, which some
// dialects would read as an escape.
func literal(text string) string {
	return "'" + strings.ReplaceAll(text, "'", "''") + "'"
}
