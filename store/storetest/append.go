package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

func appendCases[TX any]() []testCase[TX] {
	return []testCase[TX]{
		{"commit shows events and queue rows at once", appendCommit[TX]},
		{"rollback leaves nothing", appendRollback[TX]},
		{"no events are no work", appendNothing[TX]},
		{"duplicates leave the transaction usable", appendDuplicates[TX]},
		{"an id that another session inserts is waited for", appendConcurrentID[TX]},
		{"existing events are seen as the transaction sees them", appendExisting[TX]},
		{"every field comes back", appendFields[TX]},
		{"every byte of data comes back", appendData[TX]},
		{"texts come back at their limits", appendLimits[TX]},
		{"times come back", appendTimes[TX]},
		{"keys and ids are compared byte by byte", appendBytewise[TX]},
		{"one call keeps the order of its events", appendOrder[TX]},
		{"a call may be large", appendLarge[TX]},
		{"a late commit and a burnt id lose nothing", appendLateCommit[TX]},
	}
}

func appendCommit[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	events := s.events("a", "b")
	tx := s.begin(t)
	s.appendTo(t, tx, events...)
	s.wantHot(t)
	if _, found := s.lookUp(t, events[0].ID); found {
		t.Fatal("an uncommitted event is visible to others")
	}
	s.commit(t, tx)
	rows := s.wantHot(t, events[0].ID, events[1].ID)
	row := rows[events[0].ID]
	if row.Status != store.StatusPending || row.Parked || row.Skip || row.Retries != 0 || row.HasRetry || row.FirstErr != "" || row.LastErr != "" {
		t.Errorf("a fresh row is not fresh: %+v", row)
	}
	if row.Lane < 0 || row.Lane >= store.Lanes {
		t.Errorf("lane %d is out of range", row.Lane)
	}
	if row.Age < 0 || row.Age > time.Hour {
		t.Errorf("age of a fresh row: got %v", row.Age)
	}
	if rows[events[0].ID].TopicHash != rows[events[1].ID].TopicHash {
		t.Error("two rows of one topic have different topic hashes")
	}
	found := s.tracked(t, events[0].ID)
	if found.Status != store.StatusPending || !found.Queued() || found.Receipt != nil || found.ID != row.ID {
		t.Errorf("find of a fresh event: got %+v", found)
	}
}

func appendRollback[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	events := s.events("a", "b")
	tx := s.begin(t)
	s.appendTo(t, tx, events...)
	s.rollback(t, tx)
	s.wantHot(t)
	if _, found := s.lookUp(t, events[0].ID); found {
		t.Error("the event outlived the rollback")
	}
	orphans, err := s.Outbox.Orphans(t.Context(), 10)
	if err != nil || len(orphans) != 0 {
		t.Errorf("orphans: got %v, %v, want none", orphans, err)
	}
	s.append(t, events...) // the ids are free again
	s.wantHot(t, events[0].ID, events[1].ID)
}

func appendNothing[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	s.append(t)
	s.wantHot(t)
}

func appendDuplicates[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	a, b, c, d := s.event("a"), s.event("b"), s.event("c"), s.event("d")
	s.append(t, a)
	s.transact(t, func(tx TX) error {
		other := b
		other.Data = []byte("other")
		results, err := s.Appender.Append(t.Context(), tx, []waybill.Event{b, a, c, other})
		if err != nil {
			return err
		}
		for i, duplicate := range []bool{false, true, false, true} {
			if got := errors.Is(results[i], waybill.ErrDuplicateEvent); got != duplicate || !duplicate && results[i] != nil {
				t.Errorf("result %d: got %v, want duplicate %t", i, results[i], duplicate)
			}
		}
		// Again in a call of its own, now against the transaction's own row.
		results, err = s.Appender.Append(t.Context(), tx, []waybill.Event{c})
		if err != nil || len(results) != 1 || !errors.Is(results[0], waybill.ErrDuplicateEvent) {
			t.Errorf("second append of one id: got %v, %v", results, err)
		}
		return s.appendIn(t.Context(), tx, []waybill.Event{d})
	})
	rows := s.wantHot(t, a.ID, b.ID, c.ID, d.ID)
	s.wantEvent(t, "the first of two", rows[b.ID].Event, b)
}

func appendConcurrentID[TX any](t *testing.T, s *suite[TX]) {
	s.needsTwoWriters(t)
	for _, commits := range []bool{true, false} {
		t.Run(fmt.Sprintf("first commits %t", commits), func(t *testing.T) {
			s.open(t)
			e := s.event("a")
			first, second := s.begin(t), s.begin(t)
			s.appendTo(t, first, e)
			type answer struct {
				results []error
				err     error
			}
			answers := make(chan answer, 1)
			go func() {
				results, err := s.Appender.Append(t.Context(), second, []waybill.Event{e})
				answers <- answer{results, err}
			}()
			stillWaiting(t, "the second append", answers)
			if commits {
				s.commit(t, first)
			} else {
				s.rollback(t, first)
			}
			got := received(t, "the second append", answers)
			if got.err != nil || len(got.results) != 1 || errors.Is(got.results[0], waybill.ErrDuplicateEvent) != commits {
				t.Fatalf("second append: got %v, %v, want duplicate %t", got.results, got.err, commits)
			}
			s.commit(t, second)
			s.wantHot(t, e.ID)
		})
	}
}

func appendExisting[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	stored, own := s.event("a"), s.event("b")
	own.Headers = map[string]string{"region": "eu"}
	s.append(t, stored)
	s.transact(t, func(tx TX) error {
		s.appendTo(t, tx, own)
		found, err := s.Appender.Existing(t.Context(), tx, []string{own.ID, "missing", stored.ID})
		if err != nil {
			return err
		}
		if len(found) != 2 {
			t.Fatalf("existing: got %d events, want 2", len(found))
		}
		for _, got := range found {
			want := stored
			if got.ID == own.ID {
				want = own
			}
			s.wantEvent(t, "existing", got, want)
		}
		none, err := s.Appender.Existing(t.Context(), tx, nil)
		if err != nil || len(none) != 0 {
			t.Errorf("existing of no ids: got %v, %v", none, err)
		}
		return nil
	})
}

func appendFields[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	full := waybill.Event{
		ID:               "🚚/it's \\ a \"test\" %s $1 ?",
		Type:             "BestellungBezahlt'ä",
		SchemaVersion:    7,
		Topic:            "Orders.v1_A-z",
		Key:              "schlüssel 钥匙 \\'",
		TenantID:         "mandant ß",
		AggregateType:    "order",
		AggregateID:      "O-1001",
		AggregateVersion: 1 << 62,
		OccurredAt:       today(),
		Data:             []byte("<order/>"),
		ContentType:      "application/xml; charset=utf-8",
		Source:           "/shop/\"eu\"",
		CorrelationID:    "corr'elation",
		CausationID:      "cause\\ation",
		TraceParent:      "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		Headers:          map[string]string{"region": "eu \\ \"west\" ☂", "empty": "", "X-Number": "9007199254740993"},
	}
	full.Normalize(today())
	bare := waybill.Event{ID: "bare", Type: "Noted", Topic: "notes", Key: "k"}
	bare.Normalize(today())
	for _, e := range []waybill.Event{full, bare} {
		if err := e.Validate(0); err != nil {
			t.Fatal(err)
		}
	}
	s.append(t, full, bare)
	rows := s.wantHot(t, full.ID, bare.ID)
	for _, want := range []waybill.Event{full, bare} {
		row := rows[want.ID]
		s.wantEvent(t, "fetch", row.Event, want)
		s.wantEvent(t, "find", s.tracked(t, want.ID).Event, want)
		key := s.fetchKey(t, store.KeyRequest{Lane: row.Lane, KeyHash: row.KeyHash, Limit: 10})
		if len(key.Rows) != 1 {
			t.Fatalf("fetch key: got %d rows, want 1", len(key.Rows))
		}
		s.wantEvent(t, "fetch key", key.Rows[0].Event, want)
	}
}

func appendData[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	var events []waybill.Event
	for _, data := range [][]byte{
		nil,
		{},
		{0},
		[]byte("\x00a\x00"), every,
		[]byte("\xff\xfe invalid UTF-8 \xc3"),
		[]byte(`{"lone":"\ud800","big":18446744073709551615,"exact":0.1000000000000000055511151231257827}`),
		[]byte("\\x00 ' \" $$ ; -- \r\n"),
		[]byte(" {\"spaces\" :  1 } "),
		bytes.Repeat([]byte("0123456789abcde\n"), waybill.MaxDataBytes/16),
	} {
		e := s.event("a")
		e.Data = data
		events = append(events, e)
	}
	s.append(t, events...)
	rows := s.hotByID(t)
	for i, want := range events {
		s.wantEvent(t, fmt.Sprintf("data %d", i), rows[want.ID].Event, want)
	}
}

func appendLimits[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	long := func(n int) string { return strings.Repeat("é", n/2) + strings.Repeat("x", n%2) }
	e := waybill.Event{
		ID: long(waybill.MaxIDLen), Type: long(waybill.MaxTypeLen), Topic: strings.Repeat("t", waybill.MaxTopicLen),
		Key: long(waybill.MaxKeyLen), TenantID: long(waybill.MaxKeyLen), AggregateType: long(waybill.MaxTypeLen),
		AggregateID: long(waybill.MaxKeyLen), ContentType: long(waybill.MaxKeyLen), Source: long(waybill.MaxKeyLen),
		CorrelationID: long(waybill.MaxKeyLen), CausationID: long(waybill.MaxKeyLen), SchemaVersion: 1<<31 - 1,
	}
	e.Normalize(today())
	if err := e.Validate(0); err != nil {
		t.Fatal(err)
	}
	s.append(t, e)
	s.wantEvent(t, "fetch", s.row(t, e.ID).Event, e)
	s.append(t, s.event("after")) // the long one is found beside others
	s.wantEvent(t, "find", s.tracked(t, e.ID).Event, e)
}

func appendTimes[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	var events []waybill.Event
	for _, at := range []time.Time{
		time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(2024, 2, 29, 23, 59, 59, 999_999_000, time.UTC),
		time.Date(2026, 3, 29, 2, 30, 0, 123_456_000, time.FixedZone("east", 14*3600)),
		time.Date(9999, 12, 31, 23, 59, 59, 999_000_000, time.UTC),
	} {
		e := s.event("a")
		e.OccurredAt = at
		e.Normalize(at)
		events = append(events, e)
	}
	s.append(t, events...)
	rows := s.hotByID(t)
	for _, want := range events {
		s.wantEvent(t, want.OccurredAt.String(), rows[want.ID].Event, want)
	}
}

func appendBytewise[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	keys := []string{"a", "A", "a ", " a", "ä", "a\u0308", "ａ"}
	var events []waybill.Event
	for _, key := range keys {
		e := s.event(key)
		e.ID = "id-" + key
		e.AggregateVersion = 1
		events = append(events, e)
	}
	s.append(t, events...)
	rows := s.hotByID(t)
	hashes := make(map[int64]string)
	for _, e := range events {
		row, ok := rows[e.ID]
		if !ok {
			t.Fatalf("event %q is missing", e.ID)
		}
		if other, taken := hashes[row.KeyHash]; taken {
			t.Errorf("keys %q and %q have one hash", other, e.Key)
		}
		hashes[row.KeyHash] = e.Key
		found := s.fetchKey(t, store.KeyRequest{Lane: row.Lane, KeyHash: row.KeyHash, Limit: 10})
		if len(found.Rows) != 1 || found.Rows[0].Event.Key != e.Key {
			t.Errorf("fetch of key %q: got %d rows", e.Key, len(found.Rows))
		}
		s.wantEvent(t, "find", s.tracked(t, e.ID).Event, e)
		byKey, err := s.Outbox.Find(t.Context(), store.Filter{Key: e.Key})
		if err != nil || len(byKey) != 1 || byKey[0].Event.ID != e.ID {
			t.Errorf("find by key %q: got %d events, %v", e.Key, len(byKey), err)
		}
	}
	// A key is one key per topic, and has one lane in all topics.
	other := s.event("a")
	other.Topic = "orders-2"
	s.append(t, other)
	same, elsewhere := rows["id-a"], s.row(t, other.ID)
	if same.KeyHash == elsewhere.KeyHash || same.TopicHash == elsewhere.TopicHash {
		t.Error("two topics share a hash")
	}
	if same.Lane != elsewhere.Lane {
		t.Errorf("one key has lanes %d and %d", same.Lane, elsewhere.Lane)
	}
}

func appendOrder[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	var events []waybill.Event
	for i := range 600 {
		events = append(events, s.event(fmt.Sprintf("key-%d", i%7)))
	}
	s.append(t, events...)
	rows := s.hotByID(t)
	if len(rows) != len(events) {
		t.Fatalf("got %d rows, want %d", len(rows), len(events))
	}
	ids := make([]int64, 0, len(events))
	for _, e := range events {
		ids = append(ids, rows[e.ID].ID)
	}
	if !slices.IsSorted(ids) {
		t.Error("ids do not grow in the order of the call")
	}
}

// appendLarge has more values than a statement may have parameters.
func appendLarge[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	const n = 4500
	events := make([]waybill.Event, 0, n)
	for i := range n {
		events = append(events, s.event(fmt.Sprintf("key-%d", i%50)))
	}
	s.append(t, events...)
	ids := eventIDs(events)
	s.transact(t, func(tx TX) error {
		found, err := s.Appender.Existing(t.Context(), tx, ids)
		if len(found) != n {
			t.Errorf("existing: got %d events, want %d", len(found), n)
		}
		results, appendErr := s.Appender.Append(t.Context(), tx, events)
		for i, result := range results {
			if !errors.Is(result, waybill.ErrDuplicateEvent) {
				t.Errorf("second append, event %d: got %v, want a duplicate", i, result)
				break
			}
		}
		return errors.Join(err, appendErr)
	})
	s.apply(t, s.own(t), settled(s.hot(t)...))
	s.wantHot(t)
	results, err := s.Outbox.Requeue(t.Context(), because, ids)
	if err != nil || len(results) != n {
		t.Fatalf("requeue: got %d results, %v", len(results), err)
	}
	if rows := s.hot(t); len(rows) != n {
		t.Errorf("hot rows after the requeue: got %d, want %d", len(rows), n)
	}
}

func appendLateCommit[TX any](t *testing.T, s *suite[TX]) {
	s.needsTwoWriters(t)
	s.open(t)
	late, early := s.event("k1"), s.event("k1")
	open := s.begin(t)
	s.appendTo(t, open, late)
	s.append(t, early)
	s.wantHot(t, early.ID)
	s.commit(t, open)
	rows := s.wantHot(t, late.ID, early.ID)
	if rows[late.ID].ID >= rows[early.ID].ID {
		t.Error("the late one has the greater id: the case proves nothing")
	}
	burnt := s.begin(t)
	s.appendTo(t, burnt, s.event("k1"))
	s.rollback(t, burnt)
	next := s.event("k1")
	s.append(t, next)
	s.wantHot(t, late.ID, early.ID, next.ID)
}
