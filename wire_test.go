package waybill

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

var formats = []Format{FormatEnvelope, FormatCloudEvents, FormatRaw}

func fullEvent() Event {
	return Event{
		ID: "0192f0c1-7c5e-7d5c-9a51-0d6c2d1f7a11", Type: "OrderPaid", SchemaVersion: 3, Topic: "orders", Key: "customer-7",
		TenantID: "北京", AggregateType: "order", AggregateID: "O-1001", AggregateVersion: 9007199254740993,
		OccurredAt: time.Date(2026, 3, 1, 12, 30, 45, 123456000, time.UTC),
		Data:       []byte(`{"total":1.10,"n":12345678901234567890,"t":"<&>"}`), ContentType: "application/json",
		Source: "/orders", CorrelationID: "c 1", CausationID: "id-0",
		TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		Headers:     map[string]string{"region": "eu €", "empty": "", "tracestate": "a=b"},
	}
}

func equalEvents(a, b Event) bool {
	x, y := a, b
	if !maps.Equal(x.Headers, y.Headers) || !bytes.Equal(x.Data, y.Data) || !x.OccurredAt.Equal(y.OccurredAt) {
		return false
	}
	x.Headers, y.Headers, x.Data, y.Data, x.OccurredAt, y.OccurredAt = nil, nil, nil, nil, time.Time{}, time.Time{}
	ax, _ := json.Marshal(x)
	ay, _ := json.Marshal(y)
	return bytes.Equal(ax, ay)
}

func roundTrip(t *testing.T, f Format, e Event) Record {
	t.Helper()
	r, err := Encode(f, &e)
	if err != nil {
		t.Fatalf("encode: %v", err)
	}
	got, err := Decode(&r)
	if err != nil {
		t.Fatalf("decode: %v\nvalue %.300q\nheaders %q", err, r.Value, r.Headers)
	}
	if !equalEvents(got, e) {
		t.Fatalf("round trip in %s\n got %+v\nwant %+v\nvalue %.300q\nheaders %q", f, got, e, r.Value, r.Headers)
	}
	return r
}

func TestRoundTrip(t *testing.T) {
	change := func(change func(*Event)) Event {
		e := fullEvent()
		change(&e)
		return e
	}
	events := map[string]Event{
		"full":                  fullEvent(),
		"minimal":               {ID: "1", Type: "T", SchemaVersion: 1, Topic: "t", Key: "k", ContentType: DefaultContentType, OccurredAt: time.Unix(0, 0).UTC()},
		"key is not the id":     change(func(e *Event) { e.Key = "other" }),
		"unversioned":           change(func(e *Event) { e.AggregateVersion = 0 }),
		"no source":             change(func(e *Event) { e.Source = "" }),
		"source is stand-in":    change(func(e *Event) { e.Source = cloudNoSource }),
		"source with space":     change(func(e *Event) { e.Source = "order service" }),
		"source with colon":     change(func(e *Event) { e.Source = "1:2" }),
		"source bad escape":     change(func(e *Event) { e.Source = "a%zz" }),
		"source not ASCII":      change(func(e *Event) { e.Source = "/заказы" }),
		"source absolute":       change(func(e *Event) { e.Source = "https://shop.example/orders?x=1#y" }),
		"percent in values":     change(func(e *Event) { e.TenantID, e.CorrelationID = "100%25", "%" }),
		"quotes, backslashes":   change(func(e *Event) { e.ID, e.Type, e.TenantID = `a"b\c`, "<T>", "\u2028 " }),
		"leading white space":   change(func(e *Event) { e.TenantID, e.CausationID = " a ", "\u00a0" }),
		"odd traceparent":       change(func(e *Event) { e.TraceParent = "none" }),
		"microseconds":          change(func(e *Event) { e.OccurredAt = time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC) }),
		"skip marker":           func() Event { e := fullEvent(); return e.SkipMarker() }(),
		"cloudevents media":     change(func(e *Event) { e.ContentType = "application/cloudevents+json" }),
		"data like an envelope": change(func(e *Event) { e.Data = []byte(`{"eventId":"x","data":1}`) }),
	}
	for name, e := range events {
		for _, f := range formats {
			t.Run(name+"/"+string(f), func(t *testing.T) { roundTrip(t, f, e) })
		}
	}
}

// Data that is fit for the envelope's "data" and data that is not; both come
// out as they went in.
func TestDataComesOutByteForByte(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	cases := []struct {
		name, contentType, data string
		embedded                bool
	}{
		{"object", "application/json", `{"a":1}`, true},
		{"inner white space", "application/json", "{ \"a\" :\n\t1.0 }", true},
		{"null", "application/json", "null", true},
		{"string", "application/json", `"x"`, true},
		{"big number", "application/json", `123456789012345678901234567890.10`, true},
		{"exponent", "application/json", `1E400`, true},
		{"key order, duplicates", "application/json", `{"b":1,"a":2,"b":3}`, true},
		{"lone surrogate", "application/json", `"\ud800"`, true},
		{"html", "application/json", `"<>&` + "\u2028" + `"`, true},
		{"with charset", "Application/JSON; charset=utf-8", `{}`, true},
		{"suffix", "application/vnd.shop.order+json", `{}`, true},
		{"nested to the limit", "application/json", nested(maxDataDepth), true},
		{"brackets in a string", "application/json", `"` + strings.Repeat(`[\"`, 300) + `"`, true},
		{"too deep", "application/json", nested(maxDataDepth + 1), false},
		{"deeper than Go reads", "application/json", nested(20000), false},
		{"empty", "application/json", "", false},
		{"white space before", "application/json", " {}", false},
		{"white space after", "application/json", "{}\n", false},
		{"not JSON", "application/json", "{", false},
		{"two values", "application/json", "1 2", false},
		{"byte order mark", "application/json", "\ufeff{}", false},
		{"invalid UTF-8", "application/json", "\"\xff\"", false},
		{"text", "text/plain", "{}", false},
		{"binary", "application/octet-stream", "\x00\xff\r\n", false},
		{"no media type", "json", "{}", false},
	}
	for _, c := range cases {
		for _, f := range formats {
			t.Run(c.name+"/"+string(f), func(t *testing.T) {
				e := fullEvent()
				e.ContentType, e.Data = c.contentType, []byte(c.data)
				r := roundTrip(t, f, e)
				if f != FormatEnvelope {
					if string(r.Value) != c.data || r.Value == nil {
						t.Errorf("value %q, want the data", r.Value)
					}
					return
				}
				if !json.Valid(r.Value) {
					t.Errorf("the envelope is not JSON: %.200q", r.Value)
				}
				if got := bytes.Contains(r.Value, []byte(`,"data":`)); got != c.embedded {
					t.Errorf("embedded %v, want %v: %.200q", got, c.embedded, r.Value)
				}
			})
		}
	}
}

func TestLayout(t *testing.T) {
	e := fullEvent()
	cases := []struct {
		format  Format
		value   string
		headers []string
	}{
		{
			FormatEnvelope,
			`{"eventId":"0192f0c1-7c5e-7d5c-9a51-0d6c2d1f7a11","eventType":"OrderPaid","eventVersion":3,"tenantId":"北京","aggregateType":"order",` +
				`"aggregateId":"O-1001","aggregateVersion":9007199254740993,"occurredAt":"2026-03-01T12:30:45.123456Z","traceId":"4bf92f3577b34da6a3ce929d0e0e4736",` +
				`"source":"/orders","correlationId":"c 1","causationId":"id-0","data":{"total":1.10,"n":12345678901234567890,"t":"<&>"}}`,
			[]string{
				"id=0192f0c1-7c5e-7d5c-9a51-0d6c2d1f7a11", "eventType=OrderPaid", "eventVersion=3", "tenantId=北京", "aggregateType=order", "aggregateId=O-1001",
				"aggregateVersion=9007199254740993", "occurredAt=2026-03-01T12:30:45.123456Z", "source=/orders", "correlationId=c 1", "causationId=id-0",
				"traceparent=00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "content-type=application/json", "waybill-format=envelope",
				"empty=", "region=eu €", "tracestate=a=b",
			},
		},
		{
			FormatCloudEvents, string(e.Data),
			[]string{
				"ce_specversion=1.0", "ce_id=0192f0c1-7c5e-7d5c-9a51-0d6c2d1f7a11", "ce_type=OrderPaid", "ce_source=/orders", "ce_time=2026-03-01T12:30:45.123456Z",
				"ce_subject=O-1001", "ce_tenantid=北京", "ce_aggregatetype=order", "ce_aggregateversion=9007199254740993", "ce_schemaversion=3",
				"ce_correlationid=c 1", "ce_causationid=id-0", "ce_traceparent=00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
				"traceparent=00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "content-type=application/json",
				"empty=", "region=eu €", "tracestate=a=b",
			},
		},
		{
			FormatRaw, string(e.Data),
			[]string{
				"id=0192f0c1-7c5e-7d5c-9a51-0d6c2d1f7a11", "eventType=OrderPaid", "eventVersion=3", "tenantId=北京", "aggregateType=order", "aggregateId=O-1001",
				"aggregateVersion=9007199254740993", "occurredAt=2026-03-01T12:30:45.123456Z", "source=/orders", "correlationId=c 1", "causationId=id-0",
				"traceparent=00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "content-type=application/json",
				"empty=", "region=eu €", "tracestate=a=b",
			},
		},
	}
	for _, c := range cases {
		t.Run(string(c.format), func(t *testing.T) {
			r := roundTrip(t, c.format, e)
			if r.EventID != e.ID || r.Topic != "orders" || r.Key != "customer-7" {
				t.Errorf("record %s %s %s", r.EventID, r.Topic, r.Key)
			}
			// json.Marshal may escape the tenant's characters; compare by value.
			if string(r.Value) != c.value {
				t.Errorf("value\n got %s\nwant %s", r.Value, c.value)
			}
			var headers []string
			for _, h := range r.Headers {
				headers = append(headers, h.Key+"="+string(h.Value))
			}
			if !slices.Equal(headers, c.headers) {
				t.Errorf("headers\n got %q\nwant %q", headers, c.headers)
			}
		})
	}
}

// Plain SQL writes what Validate would refuse. It is encoded all the same, and
// no header of the producer passes for metadata.
func TestEncodeTakesAnyEventOfATable(t *testing.T) {
	e := Event{
		ID: "1", Type: "T", Topic: "t", AggregateID: "a", Data: []byte("{}"),
		Headers: map[string]string{
			"id": "spoofed", "ce_id": "spoofed", "waybill-format": "raw", "Nats-Msg-Id": "x", "": "nameless", "a:b c%": "é\n", "日": "1", "Content-Type": "y",
		},
	}
	for _, f := range formats {
		t.Run(string(f), func(t *testing.T) {
			r, err := Encode(f, &e)
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range r.Headers {
				if h.Key == "" || strings.ContainsFunc(h.Key, notToken) {
					t.Errorf("illegal header name %q", h.Key)
				}
			}
			got, err := Decode(&r)
			if err != nil {
				t.Fatal(err)
			}
			want := e
			want.Key, want.SchemaVersion, want.ContentType = "a", 1, DefaultContentType
			if !equalEvents(got, want) {
				t.Errorf("\n got %+v\nwant %+v\nheaders %q", got, want, r.Headers)
			}
		})
	}
	for _, f := range formats {
		if _, err := Encode(f, &Event{}); err != nil {
			t.Errorf("empty event in %s: %v", f, err)
		}
	}
	if _, err := Encode("xml", &e); err == nil {
		t.Error("an unknown format was accepted")
	}
}

func TestDecodeForeignRecords(t *testing.T) {
	header := func(pairs ...string) (headers []Header) {
		for i := 0; i < len(pairs); i += 2 {
			headers = append(headers, Header{pairs[i], []byte(pairs[i+1])})
		}
		return headers
	}
	cases := []struct {
		name   string
		record Record
		want   Event
	}{
		{
			"outbox event router with additional fields",
			Record{
				Value: []byte(`{}`),
				Headers: header("id", "e1", "eventType", "T", "aggregateType", "order", "occurredAt", "1767225600123456",
					"waybill-headers", `{"correlationId":"c","x":"y","n":[1, 2],"z":null}`),
			},
			Event{
				ID: "e1", Type: "T", AggregateType: "order", CorrelationID: "c", OccurredAt: time.Date(2026, 1, 1, 0, 0, 0, 123456000, time.UTC),
				Data: []byte(`{}`), Headers: map[string]string{"x": "y", "n": "[1,2]"},
			},
		},
		{"milliseconds", Record{Headers: header("id", "e", "occurredAt", "1767225600123")}, Event{ID: "e", OccurredAt: time.Date(2026, 1, 1, 0, 0, 0, 123000000, time.UTC)}},
		{"nanoseconds", Record{Headers: header("id", "e", "occurredAt", "1767225600123456789")}, Event{ID: "e", OccurredAt: time.Date(2026, 1, 1, 0, 0, 0, 123456000, time.UTC)}},
		{"time with an offset", Record{Headers: header("id", "e", "occurredAt", "2026-01-01T02:00:00+02:00")}, Event{ID: "e", OccurredAt: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}},
		{"names in capitals", Record{Headers: header("ID", "e", "EventType", "T", "EVENTTYPE", "second")}, Event{ID: "e", Type: "T"}},
		{"no value", Record{Headers: []Header{{"id", []byte("e")}, {"eventType", nil}, {"aggregateVersion", nil}}}, Event{ID: "e"}},
		{
			"cloudevents with dashes and extensions",
			Record{Value: []byte("x"), Headers: header("ce-specversion", "1.0", "ce-id", "e", "ce-type", "T", "ce-source", "/s", "ce-other", "1", "Content-Type", "text/plain", "traceparent", "tp")},
			Event{ID: "e", Type: "T", Source: "/s", ContentType: "text/plain", TraceParent: "tp", Data: []byte("x"), Headers: map[string]string{"ce-other": "1"}},
		},
		{
			"envelope without headers",
			Record{Value: []byte(`{"eventId":"e","eventType":"T","unknown":{"a":[]},"aggregateVersion":7,"data":null}`)},
			Event{ID: "e", Type: "T", AggregateVersion: 7, Data: []byte("null")},
		},
		{
			"envelope beside other headers",
			Record{
				Value:   []byte(`{"eventId":"e","eventType":"T"}`),
				Headers: header("waybill-format", "envelope", "id", "other", "eventType", "Other", "aggregateVersion", "no number", "traceparent", "tp", "x", "y"),
			},
			Event{ID: "e", Type: "T", TraceParent: "tp", Headers: map[string]string{"x": "y"}},
		},
		{"envelope without data", Record{Value: []byte(`{"eventId":"e"}`)}, Event{ID: "e"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.record.Topic, c.record.Key = "t", "k"
			got, err := Decode(&c.record)
			if err != nil {
				t.Fatal(err)
			}
			want := c.want
			want.Topic, want.Key = "t", "k"
			want.fillDefaults()
			if !equalEvents(got, want) {
				t.Errorf("\n got %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	cases := []struct {
		name, says string
		record     Record
	}{
		{"nothing", "neither", Record{}},
		{"text", "neither", Record{Value: []byte("hello")}},
		{"structured cloudevent", "event id is empty", Record{Value: []byte(`{"specversion":"1.0","id":"e"}`)}},
		{"broken envelope", "envelope", Record{Value: []byte(`{"eventId":"e"`)}},
		{"envelope, trailing text", "envelope", Record{Value: []byte(`{"eventId":"e"} x`)}},
		{"envelope of wrong type", "eventId", Record{Value: []byte(`{"eventId":1}`)}},
		{"envelope too deep", "envelope", Record{Value: []byte(`{"eventId":"e","x":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`)}},
		{"fractional version", "aggregateVersion", Record{Value: []byte(`{"eventId":"e","aggregateVersion":1.5}`)}},
		{"named an envelope but raw", "envelope", Record{Headers: []Header{{"id", []byte("e")}, {"waybill-format", []byte("envelope")}}}},
		{"empty id", "empty", Record{Headers: []Header{{"id", nil}}}},
		{"long id", "limit 128", Record{Headers: []Header{{"id", bytes.Repeat([]byte("x"), 129)}}}},
		{"invalid id", "UTF-8", Record{Headers: []Header{{"id", []byte("\xff")}}}},
		{"NUL", "NUL", Record{Headers: []Header{{"id", []byte("a\x00")}}}},
		{"long key", "key", Record{Key: strings.Repeat("k", 256), Headers: []Header{{"id", []byte("e")}}}},
		{"version", "aggregateversion", Record{Headers: []Header{{"id", []byte("e")}, {"aggregateVersion", []byte("two")}}}},
		{"version out of range", "aggregateversion", Record{Headers: []Header{{"id", []byte("e")}, {"aggregateVersion", []byte("9223372036854775808")}}}},
		{"time", "occurredat", Record{Headers: []Header{{"id", []byte("e")}, {"occurredAt", []byte("yesterday")}}}},
		{"time before the calendar", "occurredat", Record{Headers: []Header{{"id", []byte("e")}, {"occurredAt", []byte("-9223372036854775808")}}}},
		{"specversion", "specversion", Record{Headers: []Header{{"ce_specversion", []byte("0.3")}, {"ce_id", []byte("e")}}}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Decode(&c.record)
			if !errors.Is(err, ErrUndecodable) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want ErrUndecodable that says %q", err, c.says)
			}
			if err != nil && len(err.Error()) > 400 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

func TestParseFormat(t *testing.T) {
	for _, f := range formats {
		if got, err := ParseFormat(string(f)); got != f || err != nil {
			t.Errorf("%s: %v, %v", f, got, err)
		}
	}
	for _, name := range []string{"", "Raw", "avro"} {
		if got, err := ParseFormat(name); err == nil {
			t.Errorf("%q: %v", name, got)
		}
	}
}

func TestReservedHeader(t *testing.T) {
	for _, name := range []string{
		"id", "ID", "eventType", "eventVersion", "tenantId", "aggregateType", "aggregateId", "aggregateVersion", "occurredAt", "source",
		"correlationId", "causationId", "traceparent", "Content-Type", "waybill-x", "ce_x", "CE-X", "Nats-Msg-Id",
	} {
		if !ReservedHeader(name) {
			t.Errorf("%q is not reserved", name)
		}
	}
	for _, name := range []string{"tracestate", "baggage", "x-id", "region", "waybill", "ce"} {
		if ReservedHeader(name) {
			t.Errorf("%q is reserved", name)
		}
	}
	// Whatever a format writes is reserved, so that no own header can shadow it.
	e := fullEvent()
	e.Headers, e.Source = nil, ""
	for _, f := range formats {
		r, _ := Encode(f, &e)
		for _, h := range r.Headers {
			if !ReservedHeader(h.Key) {
				t.Errorf("%s writes %q, which is not reserved", f, h.Key)
			}
		}
	}
}

func TestSkipMarker(t *testing.T) {
	e := fullEvent()
	e.ContentType = "text/plain"
	before := maps.Clone(e.Headers)
	marker := e.SkipMarker()
	if !marker.IsSkipMarker() || e.IsSkipMarker() || !maps.Equal(e.Headers, before) {
		t.Fatalf("marker %v, original %v %v", marker.IsSkipMarker(), e.IsSkipMarker(), e.Headers)
	}
	if string(marker.Data) != "{}" || marker.ContentType != DefaultContentType || marker.ID != e.ID || marker.AggregateVersion != e.AggregateVersion {
		t.Errorf("marker %+v", marker)
	}
	for _, f := range formats {
		r := roundTrip(t, f, marker)
		if value, ok := r.Header("waybill-skipped"); !ok || string(value) != "true" {
			t.Errorf("%s: header %q %v", f, value, ok)
		}
	}
}
