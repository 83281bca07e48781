package sqlite

import (
	"database/sql"
	"strings"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// eventColumns reads an event whose table is called e, in the order of
// eventScan. A key that plain SQL left out, where no trigger filled it in, is
// the aggregate's id.
const eventColumns = columnsBefore + `CAST(e.payload AS BLOB),` + columnsAfter

// columnsWithoutData are eventColumns where the payload is not asked for.
const columnsWithoutData = columnsBefore + `x'',` + columnsAfter

const (
	columnsBefore = `e.event_id, e.tenant_id, e.aggregate_type, e.aggregate_id, COALESCE(e.aggregate_version, 0), e.event_type,
  e.event_version, e.topic, CASE e.event_key WHEN '' THEN e.aggregate_id ELSE e.event_key END, `
	columnsAfter = `
  e.content_type, COALESCE(e.headers, ''), e.occurred_at`
)

// rowColumns reads a queue row whose table is called p, in the order of rowScan.
const rowColumns = `p.id, p.lane, p.key_hash, p.topic_hash, p.status, p.parked, p.skip, p.retry_count,
  COALESCE(p.next_retry_at, ''), p.first_error, p.last_error`

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

// scanRow receives rowColumns, the event's created_at, now and eventColumns.
func scanRow(rows *sql.Rows) (*store.Row, error) {
	var row rowScan
	var event eventScan
	if err := rows.Scan(append(row.targets(), event.targets()...)...); err != nil {
		return nil, err
	}
	row.finish()
	event.finish()
	row.row.Event = event.event
	return &row.row, nil
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

// withoutNUL makes a text fit for SQLite, whose text ends at a NUL.
func withoutNUL(text string) string {
	return strings.ReplaceAll(text, "\x00", "\uFFFD")
}
