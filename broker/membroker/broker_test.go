package membroker_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/membroker"
)

func record(id, key string) waybill.Record {
	return waybill.Record{EventID: id, Topic: "orders", Key: key, Value: []byte(id)}
}

func classes(errs []error) []string {
	out := make([]string, len(errs))
	for i, err := range errs {
		if err == nil {
			out[i] = "ok"
			continue
		}
		class, _ := broker.Classify(err)
		out[i] = class.String()
	}
	return out
}

func wantClasses(t *testing.T, errs []error, want ...string) {
	t.Helper()
	if got := classes(errs); !reflect.DeepEqual(got, want) {
		t.Errorf("got answers %v, want %v (%v)", got, want, errs)
	}
}

func wantIDs(t *testing.T, b *membroker.Broker, want ...string) {
	t.Helper()
	if got := b.EventIDs("orders"); !reflect.DeepEqual(got, want) {
		t.Errorf("the topic holds %v, want %v", got, want)
	}
}

// Three records of one key and one of another, the first of the key failing in
// each possible way.
func TestFaultsKeepThePrefixRule(t *testing.T) {
	tests := []struct {
		name   string
		set    func(*membroker.Broker)
		answer []string
		holds  []string
	}{
		{
			"refused", func(b *membroker.Broker) { b.Refuse("a2", 1, broker.Retryable(errors.New("no"))) },
			[]string{"ok", "retryable", "predecessor", "ok"},
			[]string{"a1", "b1"},
		},
		{
			"answer lost", func(b *membroker.Broker) { b.Lose("a2", 1) },
			[]string{"ok", "unknown", "predecessor", "ok"},
			[]string{"a1", "a2", "b1"},
		},
		{
			"never answered", func(b *membroker.Broker) { b.Mute("a2", 1) },
			[]string{"ok", "unknown", "predecessor", "ok"},
			[]string{"a1", "b1"},
		},
		{
			"topic denied", func(b *membroker.Broker) { b.DenyTopic("orders", true) },
			[]string{"unavailable", "predecessor", "predecessor", "unavailable"},
			nil,
		},
		{
			"outage", func(b *membroker.Broker) { b.Outage(true) },
			[]string{"unavailable", "predecessor", "predecessor", "unavailable"},
			nil,
		},
		{"own function", func(b *membroker.Broker) {
			b.SetFault(func(_ context.Context, r waybill.Record) membroker.Verdict {
				if r.EventID == "a1" {
					return membroker.Verdict{Err: broker.Permanent(errors.New("illegal"), "")}
				}
				return membroker.Verdict{}
			})
		}, []string{"permanent", "predecessor", "predecessor", "ok"}, []string{"b1"}},
		{"gate", func(b *membroker.Broker) {
			b.SetGate(func(context.Context, []waybill.Record) error {
				return broker.Unavailable(broker.ScopeBroker, errors.New("open circuit"), "")
			})
		}, []string{"unavailable", "unavailable", "unavailable", "unavailable"}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New("orders")
				test.set(b)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				errs := b.Publish(ctx, []waybill.Record{record("a1", "a"), record("a2", "a"), record("a3", "a"), record("b1", "b")})
				wantClasses(t, errs, test.answer...)
				wantIDs(t, b, test.holds...)
			})
		})
	}
}

func TestFaultsEndAfterTheirNumberOfTimes(t *testing.T) {
	b := membroker.New("orders")
	b.Refuse("a1", 2, broker.Retryable(errors.New("no")))
	for _, want := range []string{"retryable", "retryable", "ok"} {
		wantClasses(t, b.Publish(t.Context(), []waybill.Record{record("a1", "a")}), want)
	}
	if got := b.Calls(); got != 3 {
		t.Errorf("counted %d calls, want 3", got)
	}
}

func TestDelayTakesFakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New("orders")
		b.Delay(5 * time.Second)
		start := time.Now()
		wantClasses(t, b.Publish(t.Context(), []waybill.Record{record("a1", "a")}), "ok")
		if got := time.Since(start); got != 5*time.Second {
			t.Errorf("took %v, want 5s", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantClasses(t, b.Publish(ctx, []waybill.Record{record("a2", "a")}), "unknown")
		wantIDs(t, b, "a1")
	})
}

func TestViolationsNameTheKeyThatIsInTwoCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New("orders")
		b.Delay(time.Second)
		done := make(chan []error)
		go func() { done <- b.Publish(t.Context(), []waybill.Record{record("a1", "a"), record("a2", "a")}) }()
		synctest.Wait()
		b.Publish(t.Context(), []waybill.Record{record("b1", "b")})
		if got := b.Violations(); len(got) != 0 {
			t.Errorf("got violations %v, want none", got)
		}
		<-done
		go func() { done <- b.Publish(t.Context(), []waybill.Record{record("a3", "a")}) }()
		synctest.Wait()
		b.Publish(t.Context(), []waybill.Record{record("a4", "a")})
		<-done
		if got := b.Violations(); len(got) != 1 {
			t.Errorf("got violations %v, want one", got)
		}
	})
}

func TestExpiredSessionsLoseTheirPartitions(t *testing.T) {
	b := membroker.New("orders")
	b.Publish(t.Context(), []waybill.Record{record("a1", "a")})
	sub, err := b.Subscribe(t.Context(), broker.SubscribeRequest{Group: "g", Topics: []string{"orders"}})
	if err != nil {
		t.Fatal(err)
	}
	first, err := sub.Poll(t.Context(), 10, time.Second)
	if err != nil || len(first) != 1 {
		t.Fatalf("got %d deliveries, error %v, want one", len(first), err)
	}
	b.ExpireSessions("g")
	position := broker.Position{Partition: broker.Partition{Topic: "orders", ID: first[0].Partition}, Settled: first[0].Position}
	if err := sub.Commit(t.Context(), []broker.Position{position}); err == nil {
		t.Error("commit after the session was lost: got no error")
	}
	again, err := sub.Poll(t.Context(), 10, time.Second)
	if err != nil || len(again) != 1 {
		t.Fatalf("after joining again: got %d deliveries, error %v, want one", len(again), err)
	}
	if err := sub.Commit(t.Context(), []broker.Position{position}); err != nil {
		t.Error(err)
	}
	if got := b.Lag("g", "orders"); got != 0 {
		t.Errorf("got lag %d, want 0", got)
	}
}

func TestOutageHoldsPollUpAndThenFailsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New("orders")
		sub, err := b.Subscribe(t.Context(), broker.SubscribeRequest{Group: "g", Topics: []string{"orders"}})
		if err != nil {
			t.Fatal(err)
		}
		b.Outage(true)
		if _, err := sub.Poll(t.Context(), 10, time.Second); err == nil {
			t.Error("got no error in an outage")
		}
		go func() {
			<-time.After(time.Second)
			b.Outage(false)
			b.Publish(t.Context(), []waybill.Record{record("a1", "a")})
		}()
		got, err := sub.Poll(t.Context(), 10, time.Minute)
		if err != nil || len(got) != 1 {
			t.Errorf("got %d deliveries, error %v, want one", len(got), err)
		}
	})
}

func TestWaitRecordsReturnsWhenTheyAreThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New("orders")
		go b.Publish(t.Context(), []waybill.Record{record("a1", "a"), record("a2", "a")})
		records, err := b.WaitRecords(t.Context(), "orders", 2)
		if err != nil || len(records) != 2 {
			t.Errorf("got %d records, error %v, want two", len(records), err)
		}
	})
}
