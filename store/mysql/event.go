package mysql

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// eventColumns are an event's columns under the alias e, in the order of
// eventScan. Times come as text, whatever the connection makes of times.
const eventColumns = `e.event_id, e.tenant_id, e.aggregate_type, e.aggregate_id, COALESCE(e.aggregate_version, 0),
       e.event_type, e.event_version, e.topic, COALESCE(NULLIF(e.event_key, ''), e.aggregate_id),
       e.content_type, e.headers, CAST(e.occurred_at AS CHAR), e.payload`

// queueColumns are a queue row's columns under the alias p, in the order of queueScan.
const queueColumns = `p.id, p.lane, p.key_hash, p.topic_hash, p.status, p.parked, p.skip, p.retry_count,
       p.next_retry_at, COALESCE(p.first_error, ''), COALESCE(p.last_error, '')`

// eventScan receives eventColumns.
type eventScan struct {
	event    waybill.Event
	headers  []byte
	occurred moment
}

func (s *eventScan) targets() []any {
	e := &s.event
	return []any{
		&e.ID, &e.TenantID, &e.AggregateType, &e.AggregateID, &e.AggregateVersion,
		&e.Type, &e.SchemaVersion, &e.Topic, &e.Key,
		&e.ContentType, &s.headers, &s.occurred, &e.Data,
	}
}

// finish returns the event. Headers that cannot be read are left out: the
// table takes JSON objects only, and one odd row must not stop its lane.
func (s *eventScan) finish() waybill.Event {
	_ = s.event.UnmarshalHeaders(s.headers)
	s.event.OccurredAt = s.occurred.Time
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
func (s *queueScan) finish(created, now time.Time) *store.Row {
	s.row.Age = max(now.Sub(created), 0)
	if !s.retryAt.IsZero() {
		s.row.HasRetry, s.row.RetryIn = true, s.retryAt.Sub(now)
	}
	return &s.row
}

// rowColumns are queueColumns, eventColumns, and the two times that durations
// are computed from.
const rowColumns = queueColumns + `,
       ` + eventColumns + `, e.created_at, UTC_TIMESTAMP(6)`

// scanRow receives rowColumns.
func scanRow(rows *sql.Rows) (*store.Row, error) {
	var queue queueScan
	var event eventScan
	var created, now moment
	targets := append(queue.targets(), event.targets()...)
	if err := rows.Scan(append(targets, &created, &now)...); err != nil {
		return nil, err
	}
	row := queue.finish(created.Time, now.Time)
	row.Event = event.finish()
	return row, nil
}

// Lists go to the database as one JSON text, so that one statement serves any
// number of values. JSON_TABLE gives them back in their order, and STRAIGHT_JOIN
// keeps it the side that is walked: rows are touched one by one, by their key,
// in the order of the list. FORCE INDEX goes with it, since reading all of a small
// table looks cheaper, and would wait for rows that running transactions have
// locked.
const (
	listedIDs      = `JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$')) w`
	listedEventIDs = `JSON_TABLE(?, '$[*]' COLUMNS (event_id VARCHAR(384) CHARACTER SET utf8mb4 PATH '$')) w`
	listedLeases   = `JSON_TABLE(?, '$[*]' COLUMNS (lane TINYINT PATH '$[0]', fence BIGINT PATH '$[1]')) w`
)

// list returns values as JSON. They are numbers, and texts that are valid UTF-8.
func list(values any) string {
	text, err := json.Marshal(values)
	if err != nil {
		panic(err) // no value of ours is without a form in JSON
	}
	if string(text) == "null" {
		return "[]"
	}
	return string(text)
}

// withIDs writes ids into a statement.
func withIDs[T int | int64](text string, ids []T) string {
	before, after, _ := strings.Cut(text, "{ids}")
	out := make([]byte, 0, len(text)+12*len(ids))
	out = append(out, before...)
	for i, id := range ids {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendInt(out, int64(id), 10)
	}
	return string(append(out, after...))
}

const maxErrorBytes = 4096

// storable makes a text of unknown origin fit for a text column.
func storable(text string) string { return fit(text, maxErrorBytes) }

// short is storable for columns of at least 255 characters.
func short(text string) string { return fit(text, 255) }

func fit(text string, limit int) string {
	if len(text) > limit {
		text = text[:limit]
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// Texts that do not fit a column of compared texts are kept in another form.
const (
	hexPrefix  = `\x` // the hexadecimal form of bytes that are not UTF-8
	hashPrefix = `\h` // the SHA-256 of a text that is too long
	maxEncoded = 384
)

// encodeText makes any bytes fit for a column that is compared, different texts
// staying different. Of a hash nothing comes back; it stands for itself.
func encodeText(text string) string {
	encoded := longText(text)
	if len(encoded) > maxEncoded {
		sum := sha256.Sum256([]byte(text))
		encoded = hashPrefix + hex.EncodeToString(sum[:])
	}
	return encoded
}

// longText is encodeText for columns of any length.
func longText(text string) string {
	if !utf8.ValidString(text) || strings.HasPrefix(text, hexPrefix) {
		return hexPrefix + hex.EncodeToString([]byte(text))
	}
	return text
}

// decodeText is the inverse of encodeText.
func decodeText(text string) string {
	if rest, found := strings.CutPrefix(text, hexPrefix); found {
		if decoded, err := hex.DecodeString(rest); err == nil {
			return string(decoded)
		}
	}
	return text
}
