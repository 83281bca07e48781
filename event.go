package waybill

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of an event's parts. The text limits are in bytes and equal the
// column widths of every store, so that an event accepted here is never
// truncated or refused by a database.
const (
	MaxIDLen     = 128     // Event.ID
	MaxTypeLen   = 128     // Event.Type, Event.AggregateType
	MaxTopicLen  = 249     // Event.Topic; Kafka's own limit
	MaxKeyLen    = 255     // Event.Key, TenantID, AggregateID, Source, CorrelationID, CausationID
	MaxDataBytes = 1 << 20 // Event.Data, unless the writer was given another limit
	maxHeaders   = 64
)

// DefaultContentType is the content type of an event that names none.
const DefaultContentType = "application/json"

// Event is one fact about one aggregate, as the producer states it.
//
// The identity of an aggregate is (TenantID, AggregateType, AggregateID),
// compared byte by byte everywhere.
type Event struct {
	// ID identifies the event for ever: in the outbox, on the wire, at every
	// consumer, in each retry, dead letter and replay. The producer chooses it,
	// with [NewID] or [KeyID]. Required, at most MaxIDLen bytes.
	ID string
	// Type is what happened, in the past tense: "OrderPaid". Required.
	Type string
	// SchemaVersion is the version of Data's schema. 0 means 1.
	SchemaVersion int
	// Topic is where the event goes. Required; letters, digits, '.', '_', '-'.
	Topic string
	// Key orders events: those of one topic and key are delivered in order.
	// Empty means AggregateID.
	Key string
	// TenantID separates tenants that share one database. May be empty.
	TenantID string
	// AggregateType names the kind of thing that changed: "order".
	AggregateType string
	// AggregateID names the thing that changed: "O-1001".
	AggregateID string
	// AggregateVersion counts the changes of one aggregate, from 1. 0 means
	// that the aggregate has no versions.
	AggregateVersion int64
	// OccurredAt is when the change happened. Zero means now. Kept to the
	// microsecond (to the millisecond on SQLite), in UTC.
	OccurredAt time.Time
	// Data is the payload. It is opaque: the bytes that go in come out.
	Data []byte
	// ContentType describes Data. Empty means DefaultContentType.
	ContentType string
	// Source names the producing service, as a URI reference.
	Source string
	// CorrelationID is shared by all events of one business process.
	CorrelationID string
	// CausationID is the ID of the event that caused this one.
	CausationID string
	// TraceParent is the W3C trace context of the producing span.
	TraceParent string
	// Headers are the producer's own. Names that [ReservedHeader] reports are
	// refused.
	Headers map[string]string
}

// EffectiveKey returns Key, or AggregateID where Key is empty.
func (e *Event) EffectiveKey() string {
	if e.Key != "" {
		return e.Key
	}
	return e.AggregateID
}

// Normalize fills what an event may leave out: Key, SchemaVersion,
// ContentType and OccurredAt (with now), and brings OccurredAt to UTC.
func (e *Event) Normalize(now time.Time) {
	e.fillDefaults()
	if e.OccurredAt.IsZero() {
		e.OccurredAt = now
	}
	e.OccurredAt = e.OccurredAt.UTC().Truncate(time.Microsecond)
}

func (e *Event) fillDefaults() {
	e.Key = e.EffectiveKey()
	if e.SchemaVersion == 0 {
		e.SchemaVersion = 1
	}
	if e.ContentType == "" {
		e.ContentType = DefaultContentType
	}
}

// Validate reports what makes the event unfit for the outbox, as an error that
// wraps [ErrInvalidEvent]. maxData is the limit of Data in bytes; 0 means
// MaxDataBytes. It asks no database, so a bad event never costs the caller's
// transaction.
func (e *Event) Validate(maxData int) error {
	if maxData == 0 {
		maxData = MaxDataBytes
	}
	bad := func(format string, args ...any) error {
		return &Error{Op: "validate event", Key: e.ID, Err: fmt.Errorf("%w: "+format, append([]any{ErrInvalidEvent}, args...)...)}
	}
	for _, t := range e.texts() {
		switch {
		case t.required && t.value == "":
			return bad("%s is empty", t.name)
		case len(t.value) > t.limit:
			return bad("%s has %d bytes, limit %d", t.name, len(t.value), t.limit)
		case !utf8.ValidString(t.value):
			return bad("%s is not valid UTF-8", t.name)
		case strings.ContainsFunc(t.value, isControl):
			return bad("%s contains a control character", t.name)
		}
	}
	if !ValidTopic(e.Topic) {
		return bad("topic %q: use letters, digits, '.', '_' and '-' only, and not \".\" or \"..\"", e.Topic)
	}
	if e.AggregateVersion < 0 {
		return bad("aggregate version %d is negative", e.AggregateVersion)
	}
	if e.SchemaVersion < 0 {
		return bad("schema version %d is negative", e.SchemaVersion)
	}
	if len(e.Data) > maxData {
		return bad("data has %d bytes, limit %d", len(e.Data), maxData)
	}
	if y := e.OccurredAt.UTC().Year(); !e.OccurredAt.IsZero() && (y < 1970 || y > 9999) {
		return bad("occurred at lies in year %d", y)
	}
	if len(e.Headers) > maxHeaders {
		return bad("%d headers, limit %d", len(e.Headers), maxHeaders)
	}
	for name, value := range e.Headers {
		switch {
		case name == "" || len(name) > MaxTypeLen || strings.ContainsFunc(name, notToken):
			return bad("header name %q: use 1 to %d visible ASCII characters without ':'", name, MaxTypeLen)
		case ReservedHeader(name):
			return bad("header name %q is reserved", name)
		case len(value) > MaxDataBytes/maxHeaders || !utf8.ValidString(value) || strings.ContainsFunc(value, isControl):
			return bad("header %q: value is too long, not valid UTF-8, or has control characters", name)
		}
	}
	return nil
}

// text is a part of an event that a store keeps in a column of its own.
type text struct {
	name, value string
	required    bool
	limit       int // in bytes
}

func (e *Event) texts() []text {
	return []text{
		{"id", e.ID, true, MaxIDLen},
		{"type", e.Type, true, MaxTypeLen},
		{"topic", e.Topic, true, MaxTopicLen},
		{"key (or aggregate id)", e.EffectiveKey(), true, MaxKeyLen},
		{"tenant id", e.TenantID, false, MaxKeyLen},
		{"aggregate type", e.AggregateType, false, MaxTypeLen},
		{"aggregate id", e.AggregateID, false, MaxKeyLen},
		{"content type", e.ContentType, false, MaxKeyLen},
		{"source", e.Source, false, MaxKeyLen},
		{"correlation id", e.CorrelationID, false, MaxKeyLen},
		{"causation id", e.CausationID, false, MaxKeyLen},
		{"traceparent", e.TraceParent, false, MaxKeyLen},
	}
}

// ValidTopic reports whether name is a topic that every broker accepts.
func ValidTopic(name string) bool {
	if name == "" || len(name) > MaxTopicLen || name == "." || name == ".." {
		return false
	}
	for _, r := range name {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-') {
			return false
		}
	}
	return true
}

func isControl(r rune) bool { return r < 0x20 || r >= 0x7f && r <= 0x9f }

func notToken(r rune) bool { return r <= 0x20 || r >= 0x7f || r == ':' }

// MarshalHeaders returns the JSON object kept in the column outbox_event.headers:
// the event's own headers, and under the names "source", "correlationId",
// "causationId" and "traceparent" the fields that have no column. It returns
// nil when there are none.
func (e *Event) MarshalHeaders() ([]byte, error) {
	all := make(map[string]string, len(e.Headers)+4)
	for name, value := range e.Headers {
		all[name] = value
	}
	for name, field := range e.columnless() {
		if *field != "" {
			all[name] = *field
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	return json.Marshal(all)
}

// UnmarshalHeaders is the inverse of [Event.MarshalHeaders]. Values that are
// not strings, as plain SQL may write them, are kept as their JSON text without
// white space, and those that are null are left out. Empty input and JSON null
// leave the event unchanged.
func (e *Event) UnmarshalHeaders(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return &Error{Op: "read headers", Key: e.ID, Err: err, Hint: "the headers column must hold a JSON object"}
	}
	fields := e.columnless()
	for name, raw := range all {
		if string(raw) == "null" {
			continue
		}
		var value string
		if err := json.Unmarshal(raw, &value); err != nil {
			var compact bytes.Buffer
			_ = json.Compact(&compact, raw) // valid, as the whole is
			value = compact.String()
		}
		if field, ok := fields[name]; ok {
			*field = value
			continue
		}
		if e.Headers == nil {
			e.Headers = make(map[string]string, len(all))
		}
		e.Headers[name] = value
	}
	return nil
}

func (e *Event) columnless() map[string]*string {
	return map[string]*string{
		headerSource:        &e.Source,
		headerCorrelationID: &e.CorrelationID,
		headerCausationID:   &e.CausationID,
		headerTraceParent:   &e.TraceParent,
	}
}
