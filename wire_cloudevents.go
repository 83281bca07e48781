package waybill

import (
	"errors"
	"net/url"
	"strings"
)

// Header names of the CloudEvents format, after the Kafka protocol binding of
// CloudEvents 1.0: https://github.com/cloudevents/spec, section 3.2.
const (
	ceVersion = "1.0"

	ceSpecVersion      = "ce_specversion"
	ceID               = "ce_id"
	ceType             = "ce_type"
	ceSource           = "ce_source"
	ceTime             = "ce_time"
	ceSubject          = "ce_subject"
	ceTraceParent      = "ce_traceparent"
	ceCorrelationID    = "ce_correlationid"
	ceCausationID      = "ce_causationid"
	ceTenantID         = "ce_tenantid"
	ceAggregateType    = "ce_aggregatetype"
	ceAggregateVersion = "ce_aggregateversion"
	ceSchemaVersion    = "ce_schemaversion"

	// headerCloudSource has the event's Source where ce_source cannot.
	headerCloudSource = "waybill-source"
	// cloudNoSource is the ce_source, which must not be empty, of an event that
	// names none.
	cloudNoSource = "urn:waybill:unnamed"
)

var cloudFields = map[string]field{
	ceSpecVersion:      decodeSpecVersion,
	ceID:               textField(func(e *Event) *string { return &e.ID }),
	ceType:             textField(func(e *Event) *string { return &e.Type }),
	ceSource:           textField(func(e *Event) *string { return &e.Source }),
	ceTime:             decodeOccurredAt,
	ceSubject:          textField(func(e *Event) *string { return &e.AggregateID }),
	ceTraceParent:      textField(func(e *Event) *string { return &e.TraceParent }),
	ceCorrelationID:    textField(func(e *Event) *string { return &e.CorrelationID }),
	ceCausationID:      textField(func(e *Event) *string { return &e.CausationID }),
	ceTenantID:         textField(func(e *Event) *string { return &e.TenantID }),
	ceAggregateType:    textField(func(e *Event) *string { return &e.AggregateType }),
	ceAggregateVersion: decodeAggregateVersion,
	ceSchemaVersion:    decodeSchemaVersion,
	headerContentType:  textField(func(e *Event) *string { return &e.ContentType }),
	// Agents may have put their own span here on the way: the attribute, which
	// they leave alone, is preferred.
	headerTraceParent: func(e *Event, value string) error {
		if e.TraceParent == "" {
			e.TraceParent = value
		}
		return nil
	},
	headerCloudSource: nil, // see decodeCloudEvents
}

func cloudEventsHeaders(e *Event) []Header {
	source := cloudSource(e.Source)
	w := newHeaderWriter(len(e.Headers), ceVersion, e.ID, e.Type, source, e.AggregateID, e.TenantID, e.AggregateType,
		e.CorrelationID, e.CausationID, e.TraceParent, e.TraceParent, e.ContentType)
	w.text(ceSpecVersion, ceVersion)
	w.text(ceID, e.ID)
	w.text(ceType, e.Type)
	w.text(ceSource, source)
	w.time(ceTime, e.OccurredAt)
	w.text(ceSubject, e.AggregateID)
	w.text(ceTenantID, e.TenantID)
	w.text(ceAggregateType, e.AggregateType)
	w.number(ceAggregateVersion, e.AggregateVersion)
	w.number(ceSchemaVersion, int64(e.SchemaVersion))
	w.text(ceCorrelationID, e.CorrelationID)
	w.text(ceCausationID, e.CausationID)
	w.text(ceTraceParent, e.TraceParent)
	w.text(headerTraceParent, e.TraceParent)
	w.text(headerContentType, e.ContentType)
	if source != e.Source {
		w.headers = append(w.headers, Header{Key: headerCloudSource, Value: []byte(e.Source)})
	}
	return w.headers
}

func decodeCloudEvents(r *Record, e *Event) error {
	e.Data = r.Value
	if err := decodeHeaders(r.Headers, cloudFields, e); err != nil {
		return err
	}
	for i := range r.Headers {
		if canonicalHeader(r.Headers[i].Key) == headerCloudSource {
			e.Source = string(r.Headers[i].Value)
			break
		}
	}
	return nil
}

func decodeSpecVersion(_ *Event, value string) error {
	if !strings.HasPrefix(value, "1.") {
		return errors.New("unsupported")
	}
	return nil
}

// cloudSource returns source where that is a URI reference, and else one that
// resembles it.
func cloudSource(source string) string {
	if source == "" {
		return cloudNoSource
	}
	// Parse is more generous than RFC 3986, and String may spell it differently.
	if u, err := url.Parse(source); err == nil && u.String() == source && !strings.ContainsFunc(source, notInURI) {
		return source
	}
	return url.QueryEscape(source)
}

func notInURI(r rune) bool {
	return r <= ' ' || r >= 0x7f || strings.ContainsRune("\"<>\\^`{|}", r)
}
