package waybill

import (
	"strconv"
	"time"
)

// Header names of the raw format, which the envelope has beside it too.
const (
	headerID               = "id"
	headerType             = "eventType"
	headerSchemaVersion    = "eventVersion"
	headerTenantID         = "tenantId"
	headerAggregateType    = "aggregateType"
	headerAggregateID      = "aggregateId"
	headerAggregateVersion = "aggregateVersion"
	headerOccurredAt       = "occurredAt"
	headerContentType      = "content-type"

	// headerColumn is the whole column outbox_event.headers.
	headerColumn = "waybill-headers"
)

// rawFields are the raw format's headers by their name in lower case.
var rawFields = map[string]field{
	"id":               textField(func(e *Event) *string { return &e.ID }),
	"eventtype":        textField(func(e *Event) *string { return &e.Type }),
	"eventversion":     decodeSchemaVersion,
	"tenantid":         textField(func(e *Event) *string { return &e.TenantID }),
	"aggregatetype":    textField(func(e *Event) *string { return &e.AggregateType }),
	"aggregateid":      textField(func(e *Event) *string { return &e.AggregateID }),
	"aggregateversion": decodeAggregateVersion,
	"occurredat":       decodeOccurredAt,
	"source":           textField(func(e *Event) *string { return &e.Source }),
	"correlationid":    textField(func(e *Event) *string { return &e.CorrelationID }),
	"causationid":      textField(func(e *Event) *string { return &e.CausationID }),
	"traceparent":      textField(func(e *Event) *string { return &e.TraceParent }),
	"content-type":     textField(func(e *Event) *string { return &e.ContentType }),
}

// rawNames has the names of rawFields by their usual spelling.
var rawNames = map[string]string{
	headerID:               "id",
	headerType:             "eventtype",
	headerSchemaVersion:    "eventversion",
	headerTenantID:         "tenantid",
	headerAggregateType:    "aggregatetype",
	headerAggregateID:      "aggregateid",
	headerAggregateVersion: "aggregateversion",
	headerOccurredAt:       "occurredat",
	headerSource:           "source",
	headerCorrelationID:    "correlationid",
	headerCausationID:      "causationid",
	headerTraceParent:      "traceparent",
	headerContentType:      "content-type",
}

// rawHeaders returns the headers that carry an event's metadata; those without
// a value are left out.
func rawHeaders(e *Event) []Header {
	w := newHeaderWriter(len(e.Headers), e.ID, e.Type, e.TenantID, e.AggregateType, e.AggregateID, e.Source,
		e.CorrelationID, e.CausationID, e.TraceParent, e.ContentType)
	w.text(headerID, e.ID)
	w.text(headerType, e.Type)
	w.number(headerSchemaVersion, int64(e.SchemaVersion))
	w.text(headerTenantID, e.TenantID)
	w.text(headerAggregateType, e.AggregateType)
	w.text(headerAggregateID, e.AggregateID)
	w.number(headerAggregateVersion, e.AggregateVersion)
	w.time(headerOccurredAt, e.OccurredAt)
	w.text(headerSource, e.Source)
	w.text(headerCorrelationID, e.CorrelationID)
	w.text(headerCausationID, e.CausationID)
	w.text(headerTraceParent, e.TraceParent)
	w.text(headerContentType, e.ContentType)
	return w.headers
}

func decodeRaw(r *Record, e *Event) error {
	e.Data = r.Value
	// The column first: a header of its own says the same, or knows better.
	if column, ok := r.Header(headerColumn); ok {
		if err := e.UnmarshalHeaders(column); err != nil {
			return err
		}
	}
	return decodeHeaders(r.Headers, rawFields, e)
}

// headerWriter makes headers whose values share one piece of memory.
type headerWriter struct {
	headers []Header
	values  []byte
}

const (
	formatted      = 3  // headers are made of two numbers and a time,
	formattedBytes = 72 // which take no more than that
)

// newHeaderWriter has room for these texts, what is made of numbers and times, and
// one header more than the event's own.
func newHeaderWriter(own int, texts ...string) headerWriter {
	n, size := own+1+formatted, formattedBytes
	for _, text := range texts {
		if text != "" {
			n++
			size += len(text)
		}
	}
	return headerWriter{make([]Header, 0, n), make([]byte, 0, size)}
}

// add takes what was appended to the values since they had that length, unless it
// is nothing.
func (w *headerWriter) add(name string, from int) {
	if len(w.values) > from {
		w.headers = append(w.headers, Header{Key: name, Value: w.values[from:len(w.values):len(w.values)]})
	}
}

func (w *headerWriter) text(name, value string) {
	from := len(w.values)
	w.values = append(w.values, value...)
	w.add(name, from)
}

// number leaves 0 out, which means that there is none.
func (w *headerWriter) number(name string, n int64) {
	from := len(w.values)
	if n != 0 {
		w.values = strconv.AppendInt(w.values, n, 10)
	}
	w.add(name, from)
}

func (w *headerWriter) time(name string, t time.Time) {
	from := len(w.values)
	w.values = appendTime(w.values, t)
	w.add(name, from)
}
