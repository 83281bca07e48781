package waybill

import (
	"maps"
	"strings"
)

// Format names how an event is laid out on the wire; chosen per topic.
type Format string

// The three wire formats.
const (
	// FormatEnvelope is one JSON object that holds metadata and data.
	FormatEnvelope Format = "envelope"
	// FormatCloudEvents is CloudEvents 1.0 in binary mode: metadata in headers
	// named "ce_...", the value is the data.
	FormatCloudEvents Format = "cloudevents"
	// FormatRaw has metadata in headers and the data as value, as readers of
	// Debezium's outbox event router expect it.
	FormatRaw Format = "raw"
)

// Header is one name and value beside a record.
type Header struct {
	Key   string
	Value []byte
}

// Record is an event as a broker carries it.
type Record struct {
	EventID string // for reports; the same id stands in Headers
	Topic   string
	Key     string
	Value   []byte
	Headers []Header
}

// Header returns the value of the first header with that name.
func (r *Record) Header(name string) (value []byte, ok bool) {
	for i := range r.Headers {
		if r.Headers[i].Key == name {
			return r.Headers[i].Value, true
		}
	}
	return nil, false
}

const (
	headerSource        = "source"
	headerCorrelationID = "correlationId"
	headerCausationID   = "causationId"
	headerTraceParent   = "traceparent"
	headerSkipped       = "waybill-skipped"
)

// SkipMarker returns the record's stand-in for an event that an operator
// skipped: same identity and version, an empty JSON object as data, and the
// header "waybill-skipped". It lets consumers that count versions go on.
func (e *Event) SkipMarker() Event {
	marker := *e
	marker.Data = []byte("{}")
	marker.ContentType = DefaultContentType
	marker.Headers = maps.Clone(e.Headers)
	if marker.Headers == nil {
		marker.Headers = make(map[string]string, 1)
	}
	marker.Headers[headerSkipped] = "true"
	return marker
}

// IsSkipMarker reports whether the event came from [Event.SkipMarker].
func (e *Event) IsSkipMarker() bool { return e.Headers[headerSkipped] != "" }

// ReservedHeader reports whether a header name belongs to the wire formats and
// so cannot be one of an event's own headers.
func ReservedHeader(name string) bool {
	lower := strings.ToLower(name)
	return strings.HasPrefix(lower, "waybill-") || strings.HasPrefix(lower, "ce_") || strings.HasPrefix(lower, "ce-") ||
		strings.HasPrefix(lower, "nats-") || false
}
