package postgres

import (
	"bytes"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// eventColumns are an event's columns, in the order of eventScan. Only the
// queue has a column of the same name, id, which is left out here.
const eventColumns = eventNames + `,
       payload, ` + eventRest

const eventNames = `event_id, tenant_id, aggregate_type, aggregate_id, COALESCE(aggregate_version, 0),
       event_type, event_version, topic, COALESCE(NULLIF(event_key, ''), aggregate_id)`

const eventRest = `content_type, headers::text, occurred_at`

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
func (s *queueScan) finish(created moment, now time.Time) *store.Row {
	s.row.Age = max(now.Sub(created.Time), 0)
	if s.retryAt.set {
		s.row.HasRetry, s.row.RetryIn = true, s.retryAt.Sub(now)
	}
	return new(s.row)
}

// rowColumns are queueColumns, eventColumns, and the two times that durations
// are computed from.
const rowColumns = queueColumns + `,
       ` + eventColumns + `, created_at, clock_timestamp()`

// rowScan receives rowColumns, and more, of row after row. Most rows repeat most
// texts of the one before, whose memory they then share.
type rowScan struct {
	queue   queueScan
	event   eventScan
	texts   [10]recurring
	key     sameAs
	data    arena
	created moment
	now     time.Time
	targets []any
}

func newRowScan(more ...any) *rowScan {
	s := &rowScan{}
	s.key.other = &s.texts[6]
	q, e, t := &s.queue.row, &s.event.event, &s.texts
	s.targets = append([]any{
		&q.ID, &q.Lane, &q.KeyHash, &q.TopicHash, &t[0], &q.Parked, &q.Skip, &q.Retries,
		&s.queue.retryAt, &t[1], &t[2],
		&t[3], &t[4], &t[5], &t[6], &e.AggregateVersion, &t[7], &e.SchemaVersion, &t[8], &s.key,
		&s.data, &t[9], &s.event.headers, &s.event.occurredAt, &s.created, &s.now,
	}, more...)
	return s
}

func (s *rowScan) row(rows pgx.Rows) (*store.Row, error) {
	if err := rows.Scan(s.targets...); err != nil {
		return nil, err
	}
	q, e, t := &s.queue.row, &s.event.event, &s.texts
	q.Status, q.FirstErr, q.LastErr = store.Status(t[0]), string(t[1]), string(t[2])
	e.ID, e.TenantID, e.AggregateType, e.AggregateID = string(t[3]), string(t[4]), string(t[5]), string(t[6])
	e.Type, e.Topic, e.Key, e.ContentType = string(t[7]), string(t[8]), s.key.text, string(t[9])
	e.Data = s.data.last
	e.Source, e.CorrelationID, e.CausationID, e.TraceParent, e.Headers = "", "", "", "", nil
	q.HasRetry, q.RetryIn = false, 0
	row := s.queue.finish(s.created, s.now)
	row.Event = s.event.finish()
	return row, nil
}

// recurring receives a text that is often the one of the row before.
type recurring string

// ScanBytes implements [pgtype.BytesScanner].
func (r *recurring) ScanBytes(text []byte) error {
	if string(text) != string(*r) {
		*r = recurring(text)
	}
	return nil
}

// sameAs receives a text that is mostly another column's.
type sameAs struct {
	other *recurring
	text  string
}

// ScanBytes implements [pgtype.BytesScanner].
func (s *sameAs) ScanBytes(text []byte) error {
	if string(text) == string(*s.other) {
		s.text = string(*s.other)
	} else {
		s.text = string(text)
	}
	return nil
}

// arena receives bytes. Small ones are kept many to a piece of memory.
type arena struct {
	chunk []byte
	last  []byte
}

const chunkBytes = 16 << 10

// ScanBytes implements [pgtype.BytesScanner].
func (a *arena) ScanBytes(data []byte) error {
	switch {
	case data == nil:
		a.last = nil
	case len(data) > chunkBytes/4:
		a.last = bytes.Clone(data)
	default:
		if len(data) > cap(a.chunk)-len(a.chunk) {
			a.chunk = make([]byte, 0, chunkBytes)
		}
		from := len(a.chunk)
		a.chunk = append(a.chunk, data...)
		a.last = a.chunk[from:len(a.chunk):len(a.chunk)]
	}
	return nil
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
