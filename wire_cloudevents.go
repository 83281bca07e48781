package waybill

import (
	"errors"
	"net/url"
	"strings"
)

// Header names of the CloudEvents format, after the Kafka protocol binding of
// CloudEvents 1.0: https://github.com/cloudevents/spec, section 3.2.
const (
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
	headers := appendTexts(make([]Header, 0, len(cloudFields)+1+len(e.Headers)), [][2]string{
		{ceSpecVersion, "1.0"},
		{ceID, e.ID},
		{ceType, e.Type},
		{ceSource, source},
		{ceTime, formatTime(e.OccurredAt)},
		{ceSubject, e.AggregateID},
		{ceTenantID, e.TenantID},
		{ceAggregateType, e.AggregateType},
		{ceAggregateVersion, formatNumber(e.AggregateVersion)},
		{ceSchemaVersion, formatNumber(int64(e.SchemaVersion))},
		{ceCorrelationID, e.CorrelationID},
		{ceCausationID, e.CausationID},
		{ceTraceParent, e.TraceParent},
		{headerTraceParent, e.TraceParent},
		{headerContentType, e.ContentType},
	})
	if source != e.Source {
		headers = append(headers, Header{Key: headerCloudSource, Value: []byte(e.Source)})
	}
	return headers
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
