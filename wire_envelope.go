package waybill

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// envelope is the JSON object for reading; writing goes by hand, because
// json.Marshal would rewrite the data.
type envelope struct {
	EventID          string          `json:"eventId"`
	EventType        string          `json:"eventType"`
	EventVersion     int             `json:"eventVersion"`
	TenantID         string          `json:"tenantId"`
	AggregateType    string          `json:"aggregateType"`
	AggregateID      string          `json:"aggregateId"`
	AggregateVersion int64           `json:"aggregateVersion"`
	OccurredAt       string          `json:"occurredAt"`
	Source           string          `json:"source"`
	CorrelationID    string          `json:"correlationId"`
	CausationID      string          `json:"causationId"`
	ContentType      string          `json:"contentType"`
	Data             json.RawMessage `json:"data"`
	DataBase64       []byte          `json:"dataBase64"`
}

// maxDataDepth is the nesting up to which data is embedded. Readers in other
// languages give up sooner than Go's does at 10,000.
const maxDataDepth = 200

// envelopeFields are the headers beside an envelope: of what both have, the
// envelope counts.
var envelopeFields = func() map[string]field {
	fields := make(map[string]field, len(rawFields))
	for name := range rawFields {
		fields[name] = nil
	}
	fields[headerTraceParent] = rawFields[headerTraceParent]
	return fields
}()

func envelopeHeaders(e *Event) []Header {
	headers := rawHeaders(e)
	for i := range headers {
		if headers[i].Key == headerContentType {
			headers[i].Value = []byte(DefaultContentType) // that of the envelope itself
		}
	}
	return append(headers, Header{Key: headerFormat, Value: []byte(FormatEnvelope)})
}

func appendEnvelope(b []byte, e *Event) []byte {
	if b == nil {
		b = make([]byte, 0, 512+len(e.Data)*4/3)
	}
	contentType := e.ContentType
	if contentType == DefaultContentType {
		contentType = ""
	}
	b = append(b, `{"eventId":`...)
	b = appendString(b, e.ID)
	b = appendText(b, "eventType", e.Type)
	b = appendInt(b, "eventVersion", int64(e.SchemaVersion))
	b = appendText(b, "tenantId", e.TenantID)
	b = appendText(b, "aggregateType", e.AggregateType)
	b = appendText(b, "aggregateId", e.AggregateID)
	b = appendInt(b, "aggregateVersion", e.AggregateVersion)
	b = appendText(b, "occurredAt", formatTime(e.OccurredAt))
	b = appendText(b, "traceId", traceID(e.TraceParent))
	b = appendText(b, "source", e.Source)
	b = appendText(b, "correlationId", e.CorrelationID)
	b = appendText(b, "causationId", e.CausationID)
	b = appendText(b, "contentType", contentType)
	if embeddable(e.ContentType, e.Data) {
		b = append(b, `,"data":`...)
		b = append(b, e.Data...)
	} else {
		b = append(b, `,"dataBase64":"`...)
		b = base64.StdEncoding.AppendEncode(b, e.Data)
		b = append(b, '"')
	}
	return append(b, '}')
}

func decodeEnvelope(r *Record, e *Event) error {
	var env envelope
	if err := json.Unmarshal(r.Value, &env); err != nil {
		return fmt.Errorf("envelope: %w", err)
	}
	// The headers come along for what the envelope lacks: the event's own
	// headers and the whole traceparent.
	var beside Event
	if err := decodeHeaders(r.Headers, envelopeFields, &beside); err != nil {
		return err
	}
	e.ID, e.Type, e.SchemaVersion = env.EventID, env.EventType, env.EventVersion
	e.TenantID, e.AggregateType, e.AggregateID, e.AggregateVersion = env.TenantID, env.AggregateType, env.AggregateID, env.AggregateVersion
	e.Source, e.CorrelationID, e.CausationID, e.ContentType = env.Source, env.CorrelationID, env.CausationID, env.ContentType
	e.TraceParent, e.Headers = beside.TraceParent, beside.Headers
	if env.OccurredAt != "" {
		if err := decodeOccurredAt(e, env.OccurredAt); err != nil {
			return fmt.Errorf("envelope: malformed occurredAt %.64q", env.OccurredAt)
		}
	}
	if env.Data != nil {
		e.Data = env.Data
	} else {
		e.Data = env.DataBase64
	}
	return nil
}

// embeddable reports whether data can stand as a value in a JSON object and be
// read back byte for byte.
func embeddable(contentType string, data []byte) bool {
	return jsonContentType(contentType) && len(data) > 0 && !isJSONSpace(data[0]) && !isJSONSpace(data[len(data)-1]) &&
		utf8.Valid(data) && json.Valid(data) && !deeperThan(maxDataDepth, data)
}

// jsonContentType reports whether a media type is application/json or one with
// the suffix +json.
func jsonContentType(contentType string) bool {
	mediaType, _, _ := strings.Cut(contentType, ";")
	mediaType = strings.ToLower(strings.TrimSpace(mediaType))
	return mediaType == DefaultContentType || strings.HasSuffix(mediaType, "+json")
}

func isJSONSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// deeperThan reports whether valid JSON nests arrays and objects deeper than limit.
func deeperThan(limit int, data []byte) bool {
	if bytes.Count(data, []byte("["))+bytes.Count(data, []byte("{")) <= limit {
		return false
	}
	depth, inString := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '[' || c == '{':
			if depth++; depth > limit {
				return true
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	return false
}

// traceID returns the trace id within a W3C traceparent, or "".
func traceID(traceParent string) string {
	parts := strings.Split(traceParent, "-")
	if len(parts) < 4 || len(parts[1]) != 32 || strings.Trim(parts[1], "0123456789abcdef") != "" {
		return ""
	}
	return parts[1]
}

func appendText(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	b = append(append(append(b, `,"`...), name...), `":`...)
	return appendString(b, value)
}

func appendInt(b []byte, name string, n int64) []byte {
	if n == 0 {
		return b
	}
	b = append(append(append(b, `,"`...), name...), `":`...)
	return strconv.AppendInt(b, n, 10)
}

func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(s) // a string always can
			return append(b, quoted...)
		}
	}
	b = append(append(b, '"'), s...)
	return append(b, '"')
}
