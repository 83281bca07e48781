package sqlite

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// eventScan receives eventColumns.
type eventScan struct {
	event      waybill.Event
	headers    []byte
	occurredAt string
}

func (s *eventScan) targets() []any {
	e := &s.event
	return []any{
		&e.ID, &e.TenantID, &e.AggregateType, &e.AggregateID, &e.AggregateVersion, &e.Type,
		&e.SchemaVersion, &e.Topic, &e.Key, &e.Data,
		&e.ContentType, &s.headers, &s.occurredAt,
	}
}

// finish completes the event. Headers that cannot be read are left out: SQLite
// takes an object with bytes behind a NUL for JSON, and one odd row must not
// stop its lane.
func (s *eventScan) finish() {
	s.event.OccurredAt = parseTime(s.occurredAt)
	if s.event.Data == nil {
		s.event.Data = []byte{}
	}
	_ = s.event.UnmarshalHeaders(s.headers)
}

// rowScan receives rowColumns, the event's created_at and now.
type rowScan struct {
	row                       store.Row
	retryAt, createdAt, clock string
}

func (s *rowScan) targets() []any {
	r := &s.row
	return []any{
		&r.ID, &r.Lane, &r.KeyHash, &r.TopicHash, &r.Status, &r.Parked, &r.Skip, &r.Retries,
		&s.retryAt, &r.FirstErr, &r.LastErr, &s.createdAt, &s.clock,
	}
}

func (s *rowScan) finish() {
	s.row.HasRetry = s.retryAt != ""
	s.row.RetryIn = until(s.retryAt, s.clock)
	s.row.Age = max(-until(s.createdAt, s.clock), 0)
}

// jsonInts and jsonTexts carry a list in one parameter, for json_each.
func jsonInts[T ~int | ~int64](values []T) string {
	text := make([]byte, 0, 2+8*len(values))
	text = append(text, '[')
	for i, value := range values {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, int64(value), 10)
	}
	return string(append(text, ']'))
}

func jsonTexts(values []string) string {
	text := []byte{'['}
	for i, value := range values {
		if i > 0 {
			text = append(text, ',')
		}
		text = appendJSONText(text, value)
	}
	return string(append(text, ']'))
}

// appendJSONText appends a JSON string. SQLite's text ends at a NUL.
func appendJSONText(text []byte, value string) []byte {
	quoted, _ := json.Marshal(withoutNUL(value)) // a string always can be
	return append(text, quoted...)
}

func withoutNUL(text string) string {
	return strings.ReplaceAll(text, "\x00", "\uFFFD")
}

func nonZero(n int64) any {
	if n == 0 {
		return nil
	}
	return n
}

func textOrNull(text []byte) any {
	if text == nil {
		return nil
	}
	return string(text)
}
