package brokertest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
)

func (s *suite) publish(t *testing.T) {
	t.Run("RecordsArriveAsTheyWere", s.recordsArriveAsTheyWere)
	t.Run("RecordsOfOneKeyStayInOrder", s.recordsOfOneKeyStayInOrder)
	t.Run("AnUnfitRecordFailsAlone", s.anUnfitRecordFailsAlone)
	t.Run("NothingFollowsAFailedRecordOfItsKey", s.nothingFollowsAFailedRecordOfItsKey)
	t.Run("AMissingTopicStopsOnlyItself", s.aMissingTopicStopsOnlyItself)
	t.Run("AReplayArrivesAgain", s.aReplayArrivesAgain)
	t.Run("CallsRunSideBySide", s.callsRunSideBySide)
	t.Run("RecordsAreNotKept", s.recordsAreNotKept)
	t.Run("AnEndedContextIsNoAnswer", s.anEndedContextIsNoAnswer)
	t.Run("AnEmptyCallIsAnsweredEmpty", s.anEmptyCallIsAnsweredEmpty)
	t.Run("AClosedPublisherIsUnavailable", s.aClosedPublisherIsUnavailable)
}

func (s *suite) recordsArriveAsTheyWere(t *testing.T) {
	c := s.open(t)
	topic := s.topic(t, c, 3)
	allBytes := make([]byte, 256)
	for i := range allBytes {
		allBytes[i] = byte(i)
	}
	headers := []waybill.Header{
		{Key: "id", Value: []byte("E-1")},
		{Key: "ce_id", Value: []byte("E-1")},
		{Key: "ce_datacontenttype", Value: []byte("application/json; charset=utf-8")},
		{Key: "content-type", Value: []byte("application/json")},
		{Key: "aggregateVersion", Value: []byte("7")},
		{Key: "traceparent", Value: []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")},
		{Key: "waybill-skipped", Value: []byte("true")},
		{Key: "X_Odd.Name", Value: []byte("Grüße, 世界")},
		{Key: "empty", Value: []byte{}},
		{Key: "spaced", Value: []byte("  two spaces before and after  ")},
	}
	sent := []waybill.Record{
		{EventID: "E-1", Topic: topic, Key: "O-1001", Value: []byte(`{"a": 1.10, "b":12345678901234567890}`), Headers: headers},
		{EventID: "E-2", Topic: topic, Key: "a key / with * odd > characters. 世界", Value: allBytes, Headers: []waybill.Header{{Key: "id", Value: []byte("E-2")}}},
		{EventID: "E-3", Topic: topic, Key: "k", Value: []byte{}},
		{EventID: strings.Repeat("i", waybill.MaxIDLen), Topic: topic, Key: strings.Repeat("k", waybill.MaxKeyLen), Value: bytes.Repeat([]byte("v"), 100_000)},
		{EventID: "tenant/order/O%2F1/7/OrderPaid", Topic: topic, Key: " spaced ", Value: []byte("\r\n\r\n")},
	}
	publish(t, c.Publisher, sent...)
	got := read(t, subscribe(t, c, groupName(), topic), len(sent))
	wantIDs(t, got, eventIDs(sent)...)
	for _, d := range got {
		i := slices.IndexFunc(sent, func(r waybill.Record) bool { return r.EventID == d.Record.EventID })
		if i >= 0 {
			sameRecord(t, d.Record, sent[i])
			if place := broker.Place(topic, d.Partition, d.Position); sent[i].Place != place && sent[i].Place != "" {
				t.Errorf("%s: the publisher says it is at %s, it came from %s", d.Record.EventID, sent[i].Place, place)
			}
		}
		if d.Timestamp.IsZero() {
			t.Errorf("%s has no timestamp", d.Record.EventID)
		}
	}
}

// sameRecord compares all of a record. The order of headers with different
// names is free.
func sameRecord(t testing.TB, got, want waybill.Record) {
	t.Helper()
	if got.Topic != want.Topic || got.Key != want.Key {
		t.Errorf("%s: got topic %q and key %q, want %q and %q", want.EventID, got.Topic, got.Key, want.Topic, want.Key)
	}
	if !bytes.Equal(got.Value, want.Value) {
		t.Errorf("%s: got a value of %d bytes, want %d, or other bytes", want.EventID, len(got.Value), len(want.Value))
	}
	g, w := sortedHeaders(got.Headers), sortedHeaders(want.Headers)
	if !slices.Equal(g, w) {
		t.Errorf("%s: got headers\n%q, want\n%q", want.EventID, g, w)
	}
}

func sortedHeaders(headers []waybill.Header) []string {
	out := make([]string, len(headers))
	for i, h := range headers {
		out[i] = h.Key + "=" + string(h.Value)
	}
	slices.Sort(out)
	return out
}

func (s *suite) recordsOfOneKeyStayInOrder(t *testing.T) {
	const keys, calls, perCall = 20, 4, 5
	c := s.open(t)
	topic := s.topic(t, c, 4)
	n := 0
	for range calls {
		var batch []waybill.Record
		for range perCall {
			for key := range keys {
				batch = append(batch, record(topic, fmt.Sprintf("key-%d", key), strconv.Itoa(n)))
				n++
			}
		}
		publish(t, c.Publisher, batch...)
	}
	last := make(map[string]int)
	home := make(map[string]int32)
	for _, d := range read(t, subscribe(t, c, groupName(), topic), n) {
		at, err := strconv.Atoi(d.Record.EventID)
		if err != nil {
			t.Fatal(err)
		}
		key := d.Record.Key
		if before, seen := last[key]; seen && at <= before {
			t.Errorf("%s: event %d comes after %d", key, at, before)
		}
		last[key] = at
		if p, seen := home[key]; seen && p != d.Partition {
			t.Errorf("%s is in partitions %d and %d", key, p, d.Partition)
		}
		home[key] = d.Partition
	}
	if len(last) != keys {
		t.Errorf("read %d keys, want %d", len(last), keys)
	}
}

func (s *suite) anUnfitRecordFailsAlone(t *testing.T) {
	s.needsTooLarge(t)
	c := s.open(t)
	topic := s.topic(t, c, 2)
	batch := records(topic, 10)
	batch[3].Value = make([]byte, s.TooLarge)
	errs := tryPublish(t, c.Publisher, batch...)
	wantClasses(t, errs, "ok", "ok", "ok", "permanent", "ok", "ok", "ok", "ok", "ok", "ok")
	if errs[3] != nil {
		text := errs[3].Error()
		if !strings.Contains(text, batch[3].EventID) || !strings.Contains(text, "too large") || len(numbers(text)) < 2 {
			t.Errorf("the error %q should name the event %s, that it is too large, its size and the limit", text, batch[3].EventID)
		}
	}
	sub := subscribe(t, c, groupName(), topic)
	wantIDs(t, read(t, sub, 9), eventIDs(slices.Delete(slices.Clone(batch), 3, 4))...)
	readNothing(t, sub)
}

func numbers(text string) []string {
	return slices.DeleteFunc(strings.FieldsFunc(text, func(r rune) bool { return r < '0' || r > '9' }),
		func(digits string) bool { return len(digits) < 3 })
}

func (s *suite) nothingFollowsAFailedRecordOfItsKey(t *testing.T) {
	s.needsTooLarge(t)
	c := s.open(t)
	topic := s.topic(t, c, 2)
	batch := []waybill.Record{
		record(topic, "a", "a1"), record(topic, "b", "b1"), record(topic, "a", "a2"), record(topic, "a", "a3"),
		record(topic, "b", "b2"), record(topic, "a", "a4"), record(topic, "a", "a5"),
	}
	batch[2].Value = make([]byte, s.TooLarge)
	wantClasses(t, tryPublish(t, c.Publisher, batch...),
		"ok", "ok", "permanent", "predecessor", "ok", "predecessor", "predecessor")
	publish(t, c.Publisher, batch[3], batch[5], batch[6])
	sub := subscribe(t, c, groupName(), topic)
	var a []string
	for _, d := range read(t, sub, 6) {
		if d.Record.Key == "a" {
			a = append(a, d.Record.EventID)
		}
	}
	if want := []string{"a1", "a3", "a4", "a5"}; !slices.Equal(a, want) {
		t.Errorf("key a holds %v, want %v", a, want)
	}
	readNothing(t, sub)
}

func (s *suite) aMissingTopicStopsOnlyItself(t *testing.T) {
	c := s.open(t)
	good, missing := s.topic(t, c, 2), topicName()
	batch := []waybill.Record{
		record(good, "a", "a1"), record(missing, "a", "m1"), record(good, "a", "a2"), record(missing, "b", "m2"), record(good, "b", "b1"),
	}
	errs := tryPublish(t, c.Publisher, batch...)
	wantClasses(t, errs, "ok", "topic unavailable", "ok", "topic unavailable", "ok")
	if errs[1] != nil && !strings.Contains(errs[1].Error(), missing) {
		t.Errorf("the error %q should name the topic %s", errs[1], missing)
	}
	if err := c.Admin.EnsureTopics(t.Context(), []broker.TopicSpec{{Name: missing, Partitions: 2}}); err != nil {
		t.Fatal(err)
	}
	// Clients may believe for a while that the topic is missing.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		errs = tryPublish(t, c.Publisher, batch[1])
		if class, scope := broker.Classify(errs[0]); errs[0] == nil || class != broker.ClassUnavailable || scope != broker.ScopeTopic || ctx.Err() != nil {
			break
		}
	}
	wantClasses(t, errs, "ok")
	publish(t, c.Publisher, batch[3])
	wantIDs(t, read(t, subscribe(t, c, groupName(), good), 3), "a1", "a2", "b1")
	wantIDs(t, read(t, subscribe(t, c, groupName(), missing), 2), "m1", "m2")
}

func (s *suite) aReplayArrivesAgain(t *testing.T) {
	c := s.open(t)
	topic := s.topic(t, c, 2)
	r := record(topic, "a", "a1")
	publish(t, c.Publisher, r)
	publish(t, c.Publisher, r)
	publish(t, c.Publisher, r, r)
	wantIDs(t, read(t, subscribe(t, c, groupName(), topic), 4), "a1", "a1", "a1", "a1")
}

func (s *suite) callsRunSideBySide(t *testing.T) {
	const callers, calls = 4, 5
	c := s.open(t)
	topic := s.topic(t, c, 4)
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for call := range calls {
				var batch []waybill.Record
				for i := range 10 {
					id := fmt.Sprintf("%d-%02d-%d", caller, call, i)
					batch = append(batch, record(topic, fmt.Sprintf("caller-%d-key-%d", caller, i%3), id))
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				for i, err := range c.Publisher.Publish(ctx, batch) {
					if err != nil {
						t.Errorf("publish %s: %v", batch[i].EventID, err)
					}
				}
				cancel()
			}
		})
	}
	all.Wait()
	last := make(map[string]string)
	for _, d := range read(t, subscribe(t, c, groupName(), topic), callers*calls*10) {
		if d.Record.EventID <= last[d.Record.Key] {
			t.Errorf("%s: event %s comes after %s", d.Record.Key, d.Record.EventID, last[d.Record.Key])
		}
		last[d.Record.Key] = d.Record.EventID
	}
}

func (s *suite) recordsAreNotKept(t *testing.T) {
	c := s.open(t)
	topic := s.topic(t, c, 1)
	r := record(topic, "a", "a1")
	want := string(r.Value)
	publish(t, c.Publisher, r)
	for i := range r.Value {
		r.Value[i] = 'x'
	}
	r.Headers[0].Value[0] = 'x'
	got := read(t, subscribe(t, c, groupName(), topic), 1)[0].Record
	if string(got.Value) != want {
		t.Errorf("got value %q, want %q", got.Value, want)
	}
	if id, _ := got.Header("id"); string(id) != "a1" {
		t.Errorf("got header id %q, want a1", id)
	}
}

func (s *suite) anEndedContextIsNoAnswer(t *testing.T) {
	c := s.open(t)
	topic := s.topic(t, c, 2)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	within(t, "Publish with an ended context", func() {
		for i, err := range c.Publisher.Publish(ctx, records(topic, 5)) {
			if class, _ := broker.Classify(err); err != nil && class != broker.ClassUnknown {
				t.Errorf("record %d: got %v, want no answer", i, err)
			}
		}
	})
}

func (s *suite) anEmptyCallIsAnsweredEmpty(t *testing.T) {
	if errs := s.open(t).Publisher.Publish(t.Context(), nil); len(errs) != 0 {
		t.Errorf("got %d answers to no records", len(errs))
	}
}

func (s *suite) aClosedPublisherIsUnavailable(t *testing.T) {
	c := s.open(t)
	topic := s.topic(t, c, 2)
	publish(t, c.Publisher, records(topic, 3)...)
	for range 2 {
		if err := c.Publisher.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	within(t, "Publish after Close", func() {
		wantClasses(t, tryPublish(t, c.Publisher, records(topic, 2)...), "broker unavailable", "broker unavailable")
	})
}

func (s *suite) needsTooLarge(t *testing.T) {
	t.Helper()
	if s.TooLarge == 0 {
		t.Skip("the harness knows no size that the server refuses")
	}
}
