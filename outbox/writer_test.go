package outbox_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/outbox"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
)

func event(id string, n int64) waybill.Event {
	return waybill.Event{
		ID: id, Type: "OrderPaid", Topic: "orders", AggregateType: "order", AggregateID: "o1", AggregateVersion: n, Data: []byte(`{"a":1}`),
	}
}

// inTx runs do in a transaction and commits it.
func inTx(t *testing.T, st *memstore.Store, do func(tx *memstore.Tx)) {
	t.Helper()
	tx, err := st.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	do(tx)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func stored(t *testing.T, st *memstore.Store) (ids []string) {
	t.Helper()
	all, err := st.Find(t.Context(), store.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tracked := range all {
		ids = append(ids, tracked.Event.ID)
	}
	return ids
}

func TestAppendFollowsTheTransaction(t *testing.T) {
	st := memstore.New(nil)
	w := outbox.NewWriter(st, nil)
	inTx(t, st, func(tx *memstore.Tx) {
		if err := w.Append(t.Context(), tx, event("e1", 1), event("e2", 2)); err != nil {
			t.Fatal(err)
		}
		if got := stored(t, st); len(got) != 0 {
			t.Errorf("before the commit others see %v", got)
		}
	})
	tx, err := st.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Append(t.Context(), tx, event("e3", 3)); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := stored(t, st), []string{"e1", "e2"}; !slices.Equal(got, want) {
		t.Errorf("stored %v, want %v", got, want)
	}
}

func TestOneBadEventFailsTheCallBeforeAnySQL(t *testing.T) {
	st := memstore.New(nil)
	w := outbox.NewWriter(st, &outbox.Config{MaxDataBytes: 100})
	inTx(t, st, func(tx *memstore.Tx) {
		large, nameless := event("e2", 2), event("", 3)
		large.Data = []byte(strings.Repeat("x", 101))
		st.SetError(func(op string) error {
			t.Errorf("the store was asked to %s", op)
			return nil
		})
		err := w.Append(t.Context(), tx, event("e1", 1), large, nameless)
		st.SetError(nil)
		if !errors.Is(err, waybill.ErrInvalidEvent) || !strings.Contains(err.Error(), "e2") || !strings.Contains(err.Error(), "id is empty") {
			t.Errorf("error %v, want one that names both events", err)
		}
		if err := w.Append(t.Context(), tx, event("e1", 1)); err != nil {
			t.Errorf("the transaction was spoilt: %v", err)
		}
	})
}

func TestAppendReportsDuplicatesOneByOne(t *testing.T) {
	st := memstore.New(nil)
	w := outbox.NewWriter(st, nil)
	inTx(t, st, func(tx *memstore.Tx) {
		if err := w.Append(t.Context(), tx, event("e1", 1)); err != nil {
			t.Fatal(err)
		}
	})
	inTx(t, st, func(tx *memstore.Tx) {
		err := w.Append(t.Context(), tx, event("e1", 1), event("e2", 2), event("e2", 2))
		if !errors.Is(err, waybill.ErrDuplicateEvent) || strings.Count(err.Error(), "duplicate") != 2 {
			t.Errorf("error %v, want two duplicates", err)
		}
	})
	if got, want := stored(t, st), []string{"e1", "e2"}; !slices.Equal(got, want) {
		t.Errorf("stored %v, want %v", got, want)
	}
}

func TestAppendMissingPassesOverTheSameAndReportsTheDifferent(t *testing.T) {
	st := memstore.New(nil)
	w := outbox.NewWriter(st, &outbox.Config{Source: "/shop"})
	full := event("e1", 1)
	full.Headers = map[string]string{"h": "v"}
	inTx(t, st, func(tx *memstore.Tx) {
		if err := w.AppendMissing(t.Context(), tx, full); err != nil {
			t.Fatal(err)
		}
	})
	inTx(t, st, func(tx *memstore.Tx) {
		again := full
		again.OccurredAt = time.Now().Add(time.Hour)
		if err := w.AppendMissing(t.Context(), tx, again, event("e2", 2)); err != nil {
			t.Errorf("the same event again: %v, want nil", err)
		}
		for name, change := range map[string]func(*waybill.Event){
			"data":    func(e *waybill.Event) { e.Data = []byte(`{"a":2}`) },
			"version": func(e *waybill.Event) { e.AggregateVersion = 9 },
			"topic":   func(e *waybill.Event) { e.Topic = "refunds" },
			"type":    func(e *waybill.Event) { e.Type = "OrderLost" },
			"key":     func(e *waybill.Event) { e.Key = "other" },
			"header":  func(e *waybill.Event) { e.Headers = map[string]string{"h": "w"} },
			"source":  func(e *waybill.Event) { e.Source = "/other" },
			"cause":   func(e *waybill.Event) { e.CausationID = "c" },
		} {
			other := full
			change(&other)
			if err := w.AppendMissing(t.Context(), tx, other); !errors.Is(err, waybill.ErrDuplicateEvent) {
				t.Errorf("another %s under the same id: %v, want a duplicate", name, err)
			}
		}
	})
	if got, want := stored(t, st), []string{"e1", "e2"}; !slices.Equal(got, want) {
		t.Errorf("stored %v, want %v", got, want)
	}
}

func TestAppendCompletesACopy(t *testing.T) {
	st := memstore.New(nil)
	type keyType struct{}
	w := outbox.NewWriter(st, &outbox.Config{Source: "/shop", Stamp: func(ctx context.Context, e *waybill.Event) {
		e.CorrelationID, _ = ctx.Value(keyType{}).(string)
	}})
	mine := []waybill.Event{event("e1", 1)}
	inTx(t, st, func(tx *memstore.Tx) {
		if err := w.Append(context.WithValue(t.Context(), keyType{}, "c-1"), tx, mine...); err != nil {
			t.Fatal(err)
		}
	})
	if e := mine[0]; e.Source != "" || e.CorrelationID != "" || e.Key != "" || !e.OccurredAt.IsZero() {
		t.Errorf("the caller's event was changed: %+v", e)
	}
	all, err := st.Find(t.Context(), store.Filter{})
	if err != nil || len(all) != 1 {
		t.Fatalf("found %v, %v", all, err)
	}
	e := all[0].Event
	if e.Source != "/shop" || e.CorrelationID != "c-1" || e.Key != "o1" || e.SchemaVersion != 1 || e.ContentType != waybill.DefaultContentType || e.OccurredAt.IsZero() {
		t.Errorf("stored %+v, want it completed", e)
	}
}

// onlyPaid refuses data of other types and counts what it was asked.
type onlyPaid struct{ asked int }

func (v *onlyPaid) ValidateData(e *waybill.Event) error {
	v.asked++
	if e.Type != "OrderPaid" {
		return waybill.ErrUnknownSchema
	}
	return nil
}

func TestDataIsJudgedBeforeAnySQL(t *testing.T) {
	st := memstore.New(nil)
	judge := &onlyPaid{}
	w := outbox.NewWriter(st, &outbox.Config{Validator: judge})
	inTx(t, st, func(tx *memstore.Tx) {
		other := event("e2", 2)
		other.Type = "OrderLost"
		err := w.Append(t.Context(), tx, event("e1", 1), other)
		if !errors.Is(err, waybill.ErrInvalidEvent) || !errors.Is(err, waybill.ErrUnknownSchema) || !strings.Contains(err.Error(), "e2") || strings.Contains(err.Error(), "e1") {
			t.Errorf("error %v, want one that names e2 and the reason", err)
		}
		if err := w.Append(t.Context(), tx, event("e1", 1)); err != nil {
			t.Error(err)
		}
	})
	if got, want := stored(t, st), []string{"e1"}; !slices.Equal(got, want) || judge.asked != 3 {
		t.Errorf("stored %v, want %v; asked %d times, want 3", got, want, judge.asked)
	}
}
