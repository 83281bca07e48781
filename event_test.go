package waybill

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"
)

func TestValidate(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	many := func(n int) map[string]string {
		headers := make(map[string]string)
		for i := range n {
			headers[fmt.Sprintf("h%d", i)] = "v"
		}
		return headers
	}
	cases := []struct {
		name   string
		change func(*Event)
		says   string // empty: valid
	}{
		{"full", func(*Event) {}, ""},
		{"only what is required", func(e *Event) { *e = Event{ID: "1", Type: "T", Topic: "t", Key: "k"} }, ""},
		{"aggregate id for key", func(e *Event) { e.Key = "" }, ""},
		{"no id", func(e *Event) { e.ID = "" }, "id is empty"},
		{"no type", func(e *Event) { e.Type = "" }, "type is empty"},
		{"no topic", func(e *Event) { e.Topic = "" }, "topic is empty"},
		{"neither key nor aggregate id", func(e *Event) { e.Key, e.AggregateID = "", "" }, "key (or aggregate id) is empty"},

		{"id at the limit", func(e *Event) { e.ID = long(MaxIDLen) }, ""},
		{"long id", func(e *Event) { e.ID = long(MaxIDLen + 1) }, "id has 129 bytes, limit 128"},
		{"limit in bytes, not characters", func(e *Event) { e.ID = strings.Repeat("京", 43) }, "id has 129 bytes"},
		{"long type", func(e *Event) { e.Type = long(MaxTypeLen + 1) }, "type has 129"},
		{"topic at the limit", func(e *Event) { e.Topic = long(MaxTopicLen) }, ""},
		{"long topic", func(e *Event) { e.Topic = long(MaxTopicLen + 1) }, "topic has 250"},
		{"key at the limit", func(e *Event) { e.Key = long(MaxKeyLen) }, ""},
		{"long key", func(e *Event) { e.Key = long(MaxKeyLen + 1) }, "key (or aggregate id) has 256"},
		{"long tenant id", func(e *Event) { e.TenantID = long(MaxKeyLen + 1) }, "tenant id has"},
		{"long aggregate type", func(e *Event) { e.AggregateType = long(MaxTypeLen + 1) }, "aggregate type has"},
		{"long aggregate id", func(e *Event) { e.AggregateID = long(MaxKeyLen + 1) }, "aggregate id has"},
		{"long content type", func(e *Event) { e.ContentType = long(MaxKeyLen + 1) }, "content type has"},
		{"long source", func(e *Event) { e.Source = long(MaxKeyLen + 1) }, "source has"},
		{"long correlation id", func(e *Event) { e.CorrelationID = long(MaxKeyLen + 1) }, "correlation id has"},
		{"long causation id", func(e *Event) { e.CausationID = long(MaxKeyLen + 1) }, "causation id has"},
		{"long traceparent", func(e *Event) { e.TraceParent = long(MaxKeyLen + 1) }, "traceparent has"},

		{"invalid UTF-8", func(e *Event) { e.TenantID = "a\xff" }, "tenant id is not valid UTF-8"},
		{"NUL", func(e *Event) { e.AggregateID = "a\x00" }, "aggregate id contains a control character"},
		{"line feed", func(e *Event) { e.Type = "a\n" }, "type contains a control character"},
		{"delete", func(e *Event) { e.ID = "a\x7f" }, "id contains a control character"},
		{"C1 control", func(e *Event) { e.Source = "a\u0085" }, "source contains a control character"},
		{"no-break space", func(e *Event) { e.TenantID = "a\u00a0" }, ""},

		{"topic with a slash", func(e *Event) { e.Topic = "a/b" }, "use letters"},
		{"topic with a space", func(e *Event) { e.Topic = "a b" }, "use letters"},
		{"topic not ASCII", func(e *Event) { e.Topic = "заказы" }, "use letters"},
		{"topic dot", func(e *Event) { e.Topic = "." }, "use letters"},
		{"topic dot dot", func(e *Event) { e.Topic = ".." }, "use letters"},
		{"topic with all that is allowed", func(e *Event) { e.Topic = "A.z_0-9..." }, ""},

		{"negative aggregate version", func(e *Event) { e.AggregateVersion = -1 }, "aggregate version -1"},
		{"negative schema version", func(e *Event) { e.SchemaVersion = -1 }, "schema version -1"},
		{"data at the limit", func(e *Event) { e.Data = make([]byte, 100) }, ""},
		{"data over the limit", func(e *Event) { e.Data = make([]byte, 101) }, "data has 101 bytes, limit 100"},
		{"before 1970", func(e *Event) { e.OccurredAt = time.Date(1969, 12, 31, 0, 0, 0, 0, time.UTC) }, "year 1969"},
		{"after 9999", func(e *Event) { e.OccurredAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }, "year 10000"},
		{"year in UTC", func(e *Event) { e.OccurredAt = time.Date(1970, 1, 1, 0, 0, 0, 0, time.FixedZone("", 3600)) }, "year 1969"},

		{"headers at the limit", func(e *Event) { e.Headers = many(64) }, ""},
		{"too many headers", func(e *Event) { e.Headers = many(65) }, "65 headers"},
		{"header without a name", func(e *Event) { e.Headers = map[string]string{"": "v"} }, "header name"},
		{"header name with a colon", func(e *Event) { e.Headers = map[string]string{"a:b": "v"} }, "header name"},
		{"header name with a space", func(e *Event) { e.Headers = map[string]string{"a b": "v"} }, "header name"},
		{"header name not ASCII", func(e *Event) { e.Headers = map[string]string{"é": "v"} }, "header name"},
		{"long header name", func(e *Event) { e.Headers = map[string]string{long(129): "v"} }, "header name"},
		{"reserved header", func(e *Event) { e.Headers = map[string]string{"Source": "v"} }, "reserved"},
		{"header value with a line feed", func(e *Event) { e.Headers = map[string]string{"a": "v\nb: c"} }, "control"},
		{"header value invalid", func(e *Event) { e.Headers = map[string]string{"a": "\xff"} }, "UTF-8"},
		{"long header value", func(e *Event) { e.Headers = map[string]string{"a": long(MaxDataBytes/64 + 1)} }, "too long"},
		{"skip marker", func(e *Event) { *e = e.SkipMarker() }, "reserved"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			e := fullEvent()
			c.change(&e)
			err := e.Validate(100)
			if c.says == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			var detail *Error
			if !errors.Is(err, ErrInvalidEvent) || !errors.As(err, &detail) || detail.Key != e.ID || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want one that wraps ErrInvalidEvent and says %q", err, c.says)
			}
		})
	}
}

func TestValidateDefaultDataLimit(t *testing.T) {
	e := fullEvent()
	e.Data = make([]byte, MaxDataBytes)
	if err := e.Validate(0); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	e.Data = make([]byte, MaxDataBytes+1)
	if err := e.Validate(0); !errors.Is(err, ErrInvalidEvent) {
		t.Errorf("over the limit: %v", err)
	}
}

func TestNormalize(t *testing.T) {
	zone := time.FixedZone("", 3600)
	now := time.Date(2026, 1, 1, 1, 0, 0, 1999, zone)
	e := Event{AggregateID: "a"}
	e.Normalize(now)
	want := Event{AggregateID: "a", Key: "a", SchemaVersion: 1, ContentType: DefaultContentType, OccurredAt: time.Date(2026, 1, 1, 0, 0, 0, 1000, time.UTC)}
	if !equalEvents(e, want) || e.OccurredAt.Location() != time.UTC {
		t.Errorf("got %+v, want %+v", e, want)
	}
	full := fullEvent()
	full.Normalize(now)
	if !equalEvents(full, fullEvent()) {
		t.Errorf("a full event was changed: %+v", full)
	}
}

func TestHeadersRoundTrip(t *testing.T) {
	full := fullEvent()
	cases := map[string]Event{
		"all":          full,
		"fields only":  {Source: "s", CorrelationID: "c", CausationID: "d", TraceParent: "t"},
		"own only":     {Headers: map[string]string{"a": "", "b": "<é>\u2028"}},
		"other spells": {Headers: map[string]string{"SOURCE": "x"}, Source: "s"},
	}
	for name, e := range cases {
		t.Run(name, func(t *testing.T) {
			text, err := e.MarshalHeaders()
			if err != nil {
				t.Fatal(err)
			}
			var got Event
			if err := got.UnmarshalHeaders(text); err != nil {
				t.Fatal(err)
			}
			if got.Source != e.Source || got.CorrelationID != e.CorrelationID || got.CausationID != e.CausationID || got.TraceParent != e.TraceParent || !maps.Equal(got.Headers, e.Headers) {
				t.Errorf("got %+v from %s", got, text)
			}
		})
	}
	if text, err := (&Event{ID: "1"}).MarshalHeaders(); text != nil || err != nil {
		t.Errorf("no headers: %q, %v", text, err)
	}
}

func TestUnmarshalHeadersOfPlainSQL(t *testing.T) {
	cases := []struct {
		name, text string
		want       Event
		fails      bool
	}{
		{"empty", "", Event{}, false},
		{"null", "null", Event{}, false},
		{"empty object", "{}", Event{}, false},
		{"numbers stay as written", `{"n": 12345678901234567890.10}`, Event{Headers: map[string]string{"n": "12345678901234567890.10"}}, false},
		{"nested without white space", "{\"o\": {\"a\":\n [1, \"b c\"]}}", Event{Headers: map[string]string{"o": `{"a":[1,"b c"]}`}}, false},
		{"null is left out", `{"a": null, "source": null}`, Event{}, false},
		{"true for a field", `{"source": true}`, Event{Source: "true"}, false},
		{"array", `[]`, Event{}, true},
		{"text", `hello`, Event{}, true},
		{"cut off", `{"a":`, Event{}, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := Event{}
			err := got.UnmarshalHeaders([]byte(c.text))
			if (err != nil) != c.fails {
				t.Fatalf("error %v", err)
			}
			if !equalEvents(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestErrorText(t *testing.T) {
	cause := errors.New("no route")
	for _, c := range []struct {
		err  *Error
		want string
	}{
		{&Error{Op: "append", Key: "e1", Err: cause, Hint: "try again"}, "append e1: no route (try again)"},
		{&Error{Op: "append", Err: cause}, "append: no route"},
		{&Error{Op: "append"}, "append"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
		if c.err.Err != nil && !errors.Is(c.err, cause) {
			t.Errorf("%v does not wrap its cause", c.err)
		}
	}
}
