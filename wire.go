package waybill

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Format names how an event is laid out on the wire; chosen per topic.
type Format string

// The three wire formats. Each has every part of an event, so that what one
// side encodes the other decodes to an equal event: Topic and Key are the
// record's own, OccurredAt is kept to the microsecond, Data to the byte.
const (
	// FormatEnvelope is one JSON object that holds metadata and data; the
	// headers of FormatRaw stand beside it.
	//
	// Its keys are eventId, eventType, eventVersion (the version of the data's
	// schema, a number), tenantId, aggregateType, aggregateId, aggregateVersion
	// (a number), occurredAt (RFC 3339, UTC), traceId (the trace id within
	// traceparent), source, correlationId, causationId, contentType, and last
	// data or dataBase64. A key without a value is left out; so is contentType
	// where it is DefaultContentType. "data" is the payload itself where that is
	// JSON which can stand there unchanged; else "dataBase64" is its bytes in
	// standard base64.
	FormatEnvelope Format = "envelope"
	// FormatCloudEvents is CloudEvents 1.0 in the binary mode of its Kafka
	// binding: the value is the data, metadata stands in headers in UTF-8.
	//
	// ce_id, ce_type, ce_source, ce_time, ce_subject (the aggregate's id) and
	// content-type are attributes of the specification, ce_traceparent,
	// ce_correlationid and ce_causationid are documented extensions of it;
	// ce_tenantid, ce_aggregatetype, ce_aggregateversion and ce_schemaversion
	// are extensions of our own. A plain traceparent stands beside them. An event
	// whose Source is empty or no URI reference gets a ce_source that is one, and
	// the header waybill-source with the real one.
	FormatCloudEvents Format = "cloudevents"
	// FormatRaw has the data as value and metadata in headers, as readers of
	// Debezium's outbox event router expect it: id, eventType, eventVersion,
	// tenantId, aggregateType, aggregateId, aggregateVersion, occurredAt, source,
	// correlationId, causationId, traceparent, content-type.
	//
	// A connector can send the column outbox_event.headers, which is JSON, as one
	// header named waybill-headers.
	FormatRaw Format = "raw"
)

// ParseFormat returns the format of that name.
func ParseFormat(name string) (Format, error) {
	switch f := Format(name); f {
	case FormatEnvelope, FormatCloudEvents, FormatRaw:
		return f, nil
	}
	return "", &Error{
		Op: "parse format", Err: fmt.Errorf("unknown format %.64q", name),
		Hint: fmt.Sprintf("use %s, %s or %s", FormatEnvelope, FormatCloudEvents, FormatRaw),
	}
}

// Header is one name and value beside a record.
type Header struct {
	Key   string
	Value []byte
}

// Record is an event as a broker carries it.
//
// Names of headers are visible ASCII without ':'. Values are UTF-8; an adapter
// whose broker allows less there encodes and decodes them.
type Record struct {
	EventID string // for reports; the same id stands in Headers
	Topic   string
	Key     string
	Value   []byte
	Headers []Header
	// Place is where the broker has stored the record, for people: a publisher
	// that learns it fills it in, as "topic[partition]@position".
	Place string
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

// Encode lays an event out in a format. It fails for an unknown format only:
// an event that came into the outbox by plain SQL, and so was never validated,
// is encoded as well as it can be. What [Event.Normalize] fills is filled,
// OccurredAt aside.
//
// The record's Value may share memory with e.Data; it is never nil, because
// brokers take a record without a value for a deletion.
func Encode(f Format, e *Event) (Record, error) {
	if _, err := ParseFormat(string(f)); err != nil {
		return Record{}, err
	}
	full := *e
	full.fillDefaults()
	r := Record{EventID: full.ID, Topic: full.Topic, Key: full.Key}
	switch f {
	case FormatCloudEvents:
		r.Value, r.Headers = full.Data, cloudEventsHeaders(&full)
	case FormatRaw:
		r.Value, r.Headers = full.Data, rawHeaders(&full)
	case FormatEnvelope:
		r.Value, r.Headers = appendEnvelope(nil, &full), envelopeHeaders(&full)
	}
	if r.Value == nil {
		r.Value = []byte{}
	}
	r.Headers = appendOwnHeaders(r.Headers, full.Headers)
	return r, nil
}

// Decode reads an event from a record of any format, which it detects: the
// header waybill-format names the envelope, ce_specversion (or ce-specversion)
// means CloudEvents, id means raw, and a JSON object without any of these is
// taken for an envelope that lost its headers. Names of known headers may be in
// any case, and the first of several with one name counts.
//
// Every refusal wraps [ErrUndecodable]. A decoded event fits the columns of
// every store: its texts are within their limits, valid UTF-8 and free of NUL.
// It may lack a Type or a Key all the same. Headers has the record's further
// headers; those of other producers may hold any bytes. The event's Data may
// share memory with r.Value.
func Decode(r *Record) (Event, error) {
	e := Event{Topic: r.Topic, Key: r.Key}
	var err error
	switch r.format() {
	case FormatCloudEvents:
		err = decodeCloudEvents(r, &e)
	case FormatRaw:
		err = decodeRaw(r, &e)
	case FormatEnvelope:
		err = decodeEnvelope(r, &e)
	default:
		err = errors.New("neither an envelope nor headers with an event id")
	}
	if err == nil {
		err = e.storable()
	}
	if err != nil {
		return Event{}, &Error{Op: "decode", Key: r.Topic, Err: fmt.Errorf("%w: %w", ErrUndecodable, err)}
	}
	e.fillDefaults()
	return e, nil
}

// format returns the record's format, or "" when it shows none.
func (r *Record) format() Format {
	var found Format
	for i := range r.Headers {
		switch canonicalHeader(r.Headers[i].Key) {
		case headerFormat:
			if f, err := ParseFormat(string(r.Headers[i].Value)); err == nil {
				return f
			}
		case ceSpecVersion:
			found = FormatCloudEvents
		case headerID:
			if found == "" {
				found = FormatRaw
			}
		}
	}
	if found == "" && len(r.Value) > 0 && r.Value[0] == '{' {
		return FormatEnvelope
	}
	return found
}

const (
	headerSource        = "source"
	headerCorrelationID = "correlationId"
	headerCausationID   = "causationId"
	headerTraceParent   = "traceparent"

	headerFormat  = "waybill-format"
	headerSkipped = "waybill-skipped"
	// headerEscaped begins the name under which an own header travels whose name
	// is reserved or no legal name: only plain SQL can have written it.
	headerEscaped = "waybill-header-"
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

// ReservedHeader reports whether a header name belongs to the wire formats or
// to a broker, in any case, and so cannot be one of an event's own headers: the
// header names of [FormatRaw], and all that begin with "waybill-", "ce_", "ce-"
// or "nats-".
func ReservedHeader(name string) bool {
	lower := strings.ToLower(name)
	for _, prefix := range []string{"waybill-", "ce_", "ce-", "nats-"} {
		if strings.HasPrefix(lower, prefix) {
			return true
		}
	}
	_, known := rawFields[lower]
	return known
}

// field puts a header's value into an event.
type field func(e *Event, value string) error

func textField(of func(e *Event) *string) field {
	return func(e *Event, value string) error {
		*of(e) = value
		return nil
	}
}

func decodeSchemaVersion(e *Event, value string) (err error) {
	e.SchemaVersion, err = strconv.Atoi(value)
	return err
}

func decodeAggregateVersion(e *Event, value string) (err error) {
	e.AggregateVersion, err = strconv.ParseInt(value, 10, 64)
	return err
}

func decodeOccurredAt(e *Event, value string) (err error) {
	e.OccurredAt, err = parseTime(value)
	return err
}

// decodeHeaders gives each header to its field, passes over those whose field
// is nil, and keeps the rest as the event's own.
func decodeHeaders(headers []Header, fields map[string]field, e *Event) error {
	// Backwards, so that the first header of a name is the last to be set.
	for i := len(headers) - 1; i >= 0; i-- {
		name := canonicalHeader(headers[i].Key)
		set, known := fields[name]
		if known && (set == nil || len(headers[i].Value) == 0) {
			continue // an empty value says no more than a missing header
		}
		value := string(headers[i].Value)
		if known {
			if err := set(e, value); err != nil {
				return fmt.Errorf("header %s: malformed value %.64q", name, value)
			}
			continue
		}
		switch {
		case name == headerSkipped:
		case strings.HasPrefix(name, headerEscaped):
			name = unescapeName(headers[i].Key[len(headerEscaped):])
		case strings.HasPrefix(name, "waybill-"), strings.HasPrefix(name, "nats-"):
			continue // what transports added on the way
		default:
			name = headers[i].Key
		}
		if e.Headers == nil {
			e.Headers = make(map[string]string)
		}
		e.Headers[name] = value
	}
	return nil
}

// appendOwnHeaders appends the event's own headers in the order of their names.
func appendOwnHeaders(headers []Header, own map[string]string) []Header {
	for _, name := range slices.Sorted(maps.Keys(own)) {
		wireName := name
		if name == "" || ReservedHeader(name) && name != headerSkipped || strings.ContainsFunc(name, notToken) {
			wireName = headerEscaped + escapeName(name)
		}
		headers = append(headers, Header{Key: wireName, Value: []byte(own[name])})
	}
	return headers
}

// canonicalHeader returns the name under which a header is known here: lower
// case, and CloudEvents attributes with the Kafka binding's prefix.
func canonicalHeader(name string) string {
	if lower, ok := rawNames[name]; ok {
		return lower // as we write it: no need to make a new string
	}
	lower := strings.ToLower(name)
	if rest, ok := strings.CutPrefix(lower, "ce-"); ok {
		return "ce_" + rest
	}
	return lower
}

// escapeName replaces each byte that a header's name may not have, and '%', by
// '%' and two hexadecimal digits.
func escapeName(name string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; c == '%' || notToken(rune(c)) {
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// unescapeName is the inverse of escapeName; an escape that is none stays.
func unescapeName(name string) string {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] == '%' && i+2 < len(name) {
			if c, err := strconv.ParseUint(name[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(c))
				i += 2
				continue
			}
		}
		b.WriteByte(name[i])
	}
	return b.String()
}

// formatTime returns t in RFC 3339, to the microsecond, or "" for the zero time.
func formatTime(t time.Time) string { return string(appendTime(nil, t)) }

// appendTime appends what formatTime returns.
func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return b
	}
	// Package time has a short way for its own layouts alone.
	t = t.Add(-time.Duration(t.Nanosecond() % int(time.Microsecond)))
	return t.UTC().AppendFormat(b, time.RFC3339Nano)
}

// parseTime reads RFC 3339, or the Unix time that change-data connectors make
// of a time column: milliseconds, microseconds or nanoseconds, told apart by
// their size (each reading in another unit would lie before 1974 or after 5000).
func parseTime(text string) (time.Time, error) {
	var t time.Time
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		if t, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return time.Time{}, err
		}
	case n < 100_000_000_000_000:
		t = time.UnixMilli(n)
	case n < 100_000_000_000_000_000:
		t = time.UnixMicro(n)
	default:
		t = time.Unix(0, n)
	}
	t = t.UTC().Truncate(time.Microsecond)
	if y := t.Year(); y < 1 || y > 9999 {
		return time.Time{}, fmt.Errorf("year %d", y)
	}
	return t, nil
}

// storable reports what would keep a decoded event out of a store's columns.
func (e *Event) storable() error {
	if e.ID == "" {
		return errors.New("the event id is empty")
	}
	for _, t := range e.texts() {
		switch {
		case len(t.value) > t.limit:
			return fmt.Errorf("%s has %d bytes, limit %d", t.name, len(t.value), t.limit)
		case !utf8.ValidString(t.value):
			return fmt.Errorf("%s is not valid UTF-8", t.name)
		case strings.IndexByte(t.value, 0) >= 0:
			return fmt.Errorf("%s contains NUL", t.name)
		}
	}
	return nil
}
