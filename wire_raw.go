package waybill

import "strconv"

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
	texts := [...][2]string{
		{headerID, e.ID},
		{headerType, e.Type},
		{headerSchemaVersion, formatNumber(int64(e.SchemaVersion))},
		{headerTenantID, e.TenantID},
		{headerAggregateType, e.AggregateType},
		{headerAggregateID, e.AggregateID},
		{headerAggregateVersion, formatNumber(e.AggregateVersion)},
		{headerOccurredAt, formatTime(e.OccurredAt)},
		{headerSource, e.Source},
		{headerCorrelationID, e.CorrelationID},
		{headerCausationID, e.CausationID},
		{headerTraceParent, e.TraceParent},
		{headerContentType, e.ContentType},
	}
	some := 1 + len(e.Headers)
	for i := range texts {
		if texts[i][1] != "" {
			some++
		}
	}
	return appendTexts(make([]Header, 0, some), texts[:])
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

// appendTexts appends a header for each pair that has a value. The values share
// one piece of memory.
func appendTexts(headers []Header, texts [][2]string) []Header {
	size := 0
	for i := range texts {
		size += len(texts[i][1])
	}
	values := make([]byte, 0, size)
	for i := range texts {
		name, value := texts[i][0], texts[i][1]
		if value == "" {
			continue
		}
		start := len(values)
		values = append(values, value...)
		headers = append(headers, Header{Key: name, Value: values[start:len(values):len(values)]})
	}
	return headers
}

// formatNumber returns n in decimal, or "" for 0, which means that there is none.
func formatNumber(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}
