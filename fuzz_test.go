package waybill

import (
	"maps"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// FuzzDecode feeds hostile records to the decoder: it must not panic, what it
// accepts must fit the stores, and must survive being encoded and decoded again.
func FuzzDecode(f *testing.F) {
	e := fullEvent()
	marker := e.SkipMarker()
	binary := e
	binary.ContentType, binary.Data, binary.Source = "image/png", []byte("\x89PNG\x00"), "no uri %"
	for _, event := range []*Event{&e, &marker, &binary, {ID: "1"}} {
		for _, format := range formats {
			r, _ := Encode(format, event)
			f.Add(r.Key, r.Value, joinHeaders(r.Headers))
		}
	}
	f.Add("", []byte(nil), "")
	f.Add("k", []byte(`{"eventId":"e","data":`+strings.Repeat("[", 300)+strings.Repeat("]", 300)+`}`), "")
	f.Add("k", []byte(`{"eventId":"e","dataBase64":"!"}`), "")
	f.Add("k", []byte("{"), "waybill-format\x00envelope")
	f.Add("k", []byte("v"), "id\x00e\x00waybill-headers\x00{\"a\":[1]}\x00waybill-header-%\x00x\x00occurredAt\x0099999999999999999")
	f.Add("k", []byte("v"), "ce-id\x00e\x00ce-specversion\x001.0\x00ce-time\x002026-01-01T00:00:00Z")
	f.Fuzz(func(t *testing.T, key string, value []byte, headers string) {
		r := Record{Topic: "t", Key: key, Value: value, Headers: splitHeaders(headers)}
		got, err := Decode(&r)
		if err != nil {
			if len(err.Error()) > 2000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if got.ID == "" || len(got.ID) > MaxIDLen || !utf8.ValidString(got.ID) || len(got.Key) > MaxKeyLen || len(got.Source) > MaxKeyLen {
			t.Errorf("accepted %+v", got)
		}
		for _, format := range formats {
			again, err := Encode(format, &got)
			if err != nil {
				t.Fatal(err)
			}
			back, err := Decode(&again)
			if err != nil {
				t.Fatalf("%s of a decoded event: %v", format, err)
			}
			if !equalEvents(back, got) {
				t.Errorf("%s\n got %+v\nwant %+v", format, back, got)
			}
		}
	})
}

// FuzzRoundTrip encodes events that Validate accepts and expects them back.
func FuzzRoundTrip(f *testing.F) {
	e := fullEvent()
	f.Add(e.ID, e.Type, e.TenantID, e.AggregateID, e.Key, e.Source, e.TraceParent, "region", "eu", e.ContentType, e.Data, e.AggregateVersion, e.SchemaVersion, e.OccurredAt.UnixMicro())
	f.Add("1", "T", "", "", "k", "", "", "", "", "", []byte(nil), int64(0), 0, int64(0))
	f.Add("a/b", "T", " ", "%", "é", "%zz:", "00-x", "x", "", "text/plain", []byte("\xff"), int64(1)<<62, 1<<30, int64(253402300799999999))
	f.Add("1", "T", "", "", "k", "a b", "", "%41", "1", "application/json", []byte("{ }"), int64(1), 1, int64(1))
	f.Add("1", "T", "", "", "k", "http://[::1", "", "h", "1", "a/b+json", []byte("\"\\ud800\""), int64(1), 1, int64(1))
	f.Fuzz(func(t *testing.T, id, typ, tenant, aggregate, key, source, trace, name, value, contentType string, data []byte, version int64, schema int, micros int64) {
		e := Event{
			ID: id, Type: typ, SchemaVersion: schema, Topic: "orders", Key: key, TenantID: tenant, AggregateType: typ, AggregateID: aggregate,
			AggregateVersion: version, OccurredAt: time.UnixMicro(micros), Data: data, ContentType: contentType, Source: source,
			CorrelationID: source, CausationID: id, TraceParent: trace,
		}
		if name != "" {
			e.Headers = map[string]string{name: value}
		}
		e.Normalize(time.UnixMicro(0))
		if e.Validate(0) != nil {
			return
		}
		for _, format := range formats {
			before := maps.Clone(e.Headers)
			r := roundTrip(t, format, e)
			for _, h := range r.Headers {
				if strings.ContainsFunc(h.Key, notToken) || !utf8.Valid(h.Value) {
					t.Errorf("%s: header %q=%q", format, h.Key, h.Value)
				}
			}
			if !maps.Equal(before, e.Headers) {
				t.Errorf("%s changed the event", format)
			}
		}
	})
}

func FuzzUnmarshalHeaders(f *testing.F) {
	for _, text := range []string{
		"", "null", "{}", "[]", `{"a":"b","source":"s","n":1e999,"o":{"a":[null]},"z":null}`, `{"a":"\ud800"}`, `{"a":1,"a":2}`, "{\"\":\"\xff\"}", `{"traceparent":{}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var e Event
		if e.UnmarshalHeaders(text) != nil {
			return
		}
		again, err := e.MarshalHeaders()
		if err != nil {
			t.Fatal(err)
		}
		var back Event
		if err := back.UnmarshalHeaders(again); err != nil {
			t.Fatal(err)
		}
		if !equalEvents(e, back) {
			t.Errorf("%q\n got %+v\nwant %+v", text, back, e)
		}
	})
}

func joinHeaders(headers []Header) string {
	var parts []string
	for _, h := range headers {
		parts = append(parts, h.Key, string(h.Value))
	}
	return strings.Join(parts, "\x00")
}

func splitHeaders(text string) (headers []Header) {
	parts := strings.Split(text, "\x00")
	for i := 0; i+1 < len(parts); i += 2 {
		headers = append(headers, Header{Key: parts[i], Value: []byte(parts[i+1])})
	}
	return headers
}
