package waybilltest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"testing"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// pageSize bounds one read of the outbox.
const pageSize = 500

// maxShown bounds the events that a failure lists.
const maxShown = 20

// Events returns all events that the filter selects, in the order of the
// outbox. Filter.Limit bounds one read and not the answer.
func Events(t testing.TB, st store.Inspector, filter store.Filter) []waybill.Event {
	t.Helper()
	filter.Newest = false
	if filter.Limit == 0 {
		filter.Limit = pageSize
	}
	var events []waybill.Event
	for {
		page, err := st.Find(t.Context(), filter)
		if err != nil {
			t.Fatalf("read the outbox: %v", err)
		}
		for i := range page {
			events = append(events, page[i].Event)
			filter.After = max(filter.After, page[i].ID)
		}
		if len(page) < filter.Limit {
			return events
		}
	}
}

// RequireAppended fails the test unless the outbox has, for each wanted event,
// one of its own that agrees with it, in the same order. It returns these.
//
// Only what is set in a wanted event is compared, so the test names what it
// cares about: the type, the aggregate, the data. Data that is JSON is compared
// by value, numbers as they are written; of Headers those that are named. Other
// events may stand before, between and after.
func RequireAppended(t testing.TB, st store.Inspector, wanted ...waybill.Event) []waybill.Event {
	t.Helper()
	events := Events(t, st, store.Filter{})
	found := make([]waybill.Event, 0, len(wanted))
	next := 0
	for i := range wanted {
		start := next
		for next < len(events) && !agrees(&events[next], &wanted[i]) {
			next++
		}
		if next == len(events) {
			t.Fatalf("event %d of %d was not appended:\n  %s\nthe outbox has, from there on:\n%s",
				i+1, len(wanted), describe(&wanted[i]), list(events[start:]))
			return nil
		}
		found = append(found, events[next])
		next++
	}
	return found
}

// RequireNothing fails the test if the outbox has an event that the filter
// selects: after a rollback, or when an operation must not announce anything.
func RequireNothing(t testing.TB, st store.Inspector, filter store.Filter) {
	t.Helper()
	if events := Events(t, st, filter); len(events) > 0 {
		t.Fatalf("%d events were appended, want none:\n%s", len(events), list(events))
	}
}

// agrees reports whether got has all that is set in want.
func agrees(got, want *waybill.Event) bool {
	for name, value := range want.Headers {
		if have, ok := got.Headers[name]; !ok || have != value {
			return false
		}
	}
	if want.Data != nil && !sameData(got.Data, want.Data) || !want.OccurredAt.IsZero() && !want.OccurredAt.Equal(got.OccurredAt) {
		return false
	}
	g, w := reflect.ValueOf(got).Elem(), reflect.ValueOf(want).Elem()
	for i := range w.NumField() {
		switch w.Field(i).Kind() {
		case reflect.String, reflect.Int, reflect.Int64:
			if !w.Field(i).IsZero() && !w.Field(i).Equal(g.Field(i)) {
				return false
			}
		}
	}
	return true
}

func sameData(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, okX := jsonValue(a)
	y, okY := jsonValue(b)
	return okX && okY && reflect.DeepEqual(x, y)
}

// jsonValue reads JSON with its numbers as written: no float64 takes part.
func jsonValue(text []byte) (value any, ok bool) {
	if !json.Valid(text) {
		return nil, false
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return value, decoder.Decode(&value) == nil
}

func list(events []waybill.Event) string {
	if len(events) == 0 {
		return "  nothing"
	}
	var b bytes.Buffer
	for i := range events {
		if i == maxShown {
			fmt.Fprintf(&b, "  and %d more\n", len(events)-maxShown)
			break
		}
		fmt.Fprintf(&b, "  %s\n", describe(&events[i]))
	}
	return b.String()
}

// describe writes an event's parts, those that are set, in one line.
func describe(e *waybill.Event) string {
	var b bytes.Buffer
	part := func(name string, value any) {
		if !reflect.ValueOf(value).IsZero() {
			fmt.Fprintf(&b, " %s=%v", name, value)
		}
	}
	part("id", e.ID)
	part("topic", e.Topic)
	part("key", e.Key)
	part("type", e.Type)
	part("schema", e.SchemaVersion)
	part("tenant", e.TenantID)
	part("aggregate-type", e.AggregateType)
	part("aggregate-id", e.AggregateID)
	part("version", e.AggregateVersion)
	part("content-type", e.ContentType)
	part("source", e.Source)
	part("correlation", e.CorrelationID)
	part("causation", e.CausationID)
	part("traceparent", e.TraceParent)
	if len(e.Headers) > 0 {
		part("headers", maps.Clone(e.Headers))
	}
	if e.Data != nil {
		part("data", fmt.Sprintf("%.200q", e.Data))
	}
	return string(bytes.TrimSpace(b.Bytes()))
}
