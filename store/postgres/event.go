package postgres

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// eventColumns are an event's columns, in the order of eventScan. Only the
// queue has a column of the same name, id, which is left out here.
const eventColumns = `event_id, tenant_id, aggregate_type, aggregate_id, COALESCE(aggregate_version, 0),
       event_type, event_version, topic, COALESCE(NULLIF(event_key, ''), aggregate_id),
       payload, content_type, headers::text, occurred_at`

// queueColumns are a queue row's columns under the alias p, in the order of queueScan.
const queueColumns = `p.id, lane, key_hash, topic_hash, status, parked, skip, retry_count,
       next_retry_at, COALESCE(first_error, ''), COALESCE(last_error, '')`

// eventScan receives eventColumns.
type eventScan struct {
	event      waybill.Event
	headers    []byte
	occurredAt moment
}

func (s *eventScan) targets() []any {
	e := &s.event
	return []any{
		&e.ID, &e.TenantID, &e.AggregateType, &e.AggregateID, &e.AggregateVersion,
		&e.Type, &e.SchemaVersion, &e.Topic, &e.Key,
		&e.Data, &e.ContentType, &s.headers, &s.occurredAt,
	}
}

// finish returns the event. Headers that cannot be read are left out: the
// table takes JSON objects only, and one odd row must not stop its lane.
func (s *eventScan) finish() waybill.Event {
	_ = s.event.UnmarshalHeaders(s.headers)
	s.event.OccurredAt = s.occurredAt.Time
	return s.event
}

// queueScan receives queueColumns.
type queueScan struct {
	row     store.Row
	retryAt moment
}

func (s *queueScan) targets() []any {
	r := &s.row
	return []any{
		&r.ID, &r.Lane, &r.KeyHash, &r.TopicHash, &r.Status, &r.Parked, &r.Skip, &r.Retries,
		&s.retryAt, &r.FirstErr, &r.LastErr,
	}
}

// finish computes durations from the database's times.
func (s *queueScan) finish(created moment, now time.Time) store.Row {
	s.row.Age = max(now.Sub(created.Time), 0)
	if s.retryAt.set {
		s.row.HasRetry, s.row.RetryIn = true, s.retryAt.Sub(now)
	}
	return s.row
}

// rowColumns are queueColumns, eventColumns, and the two times that durations
// are computed from.
const rowColumns = queueColumns + `,
       ` + eventColumns + `, created_at, clock_timestamp()`

// plainColumns are what rowColumns are made of, for a subquery around them.
const plainColumns = `p.id, lane, key_hash, topic_hash, status, parked, skip, retry_count, next_retry_at, first_error, last_error,
                   event_id, tenant_id, aggregate_type, aggregate_id, aggregate_version, event_type, event_version, topic,
                   event_key, payload, content_type, headers, occurred_at, created_at`

// scanRow receives rowColumns and more.
func scanRow(rows pgx.Rows, more ...any) (store.Row, error) {
	var queue queueScan
	var event eventScan
	var created moment
	var now time.Time
	targets := append(queue.targets(), event.targets()...)
	targets = append(append(targets, &created, &now), more...)
	if err := rows.Scan(targets...); err != nil {
		return store.Row{}, err
	}
	row := queue.finish(created, now)
	row.Event = event.finish()
	return row, nil
}

const maxErrorBytes = 4096

// storable makes a text of unknown origin fit for a text column.
func storable(text string) string {
	if len(text) > maxErrorBytes {
		text = text[:maxErrorBytes]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// hexPrefix marks a text that is kept as the hexadecimal form of its bytes.
const hexPrefix = `\x`

// encodeText makes any bytes fit for a text column, different texts staying
// different: a record's key need not be UTF-8.
func encodeText(text string) string {
	if utf8.ValidString(text) && !strings.ContainsRune(text, 0) && !strings.HasPrefix(text, hexPrefix) {
		return text
	}
	return hexPrefix + hexOf(text)
}

// decodeText is the inverse of encodeText.
func decodeText(text string) string {
	rest, found := strings.CutPrefix(text, hexPrefix)
	if !found {
		return text
	}
	return bytesOf(rest)
}

// micros is how durations go to the database.
func micros(d time.Duration) int64 { return d.Microseconds() }
