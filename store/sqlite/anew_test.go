package sqlite_test

import (
	"context"
	"testing"
	"time"

	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/relay"
)

// Emptying the table together with its sequence is what TRUNCATE ... RESTART
// IDENTITY is elsewhere: ids begin below those that the relay has closed.
func TestRelaySendsEventsWhoseIDsBeginAnew(t *testing.T) {
	st := open(t, nil)
	events := membroker.New("orders")
	r, err := relay.New(st, events.Connect(), &relay.Config{SweepEvery: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	awaitRecords := func(want int) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); len(events.EventIDs("orders")) < want; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("got %d records, want %d", len(events.EventIDs("orders")), want)
			}
		}
	}
	for _, id := range []string{"e1", "e2", "e3", "e4"} {
		appendEvents(t, st, event(id, id))
	}
	awaitRecords(4)
	<-time.After(300 * time.Millisecond) // time to close the ids; too short would only hide a fault
	if _, err := st.DB().ExecContext(t.Context(), `DELETE FROM outbox_event; DELETE FROM sqlite_sequence WHERE name = 'outbox_event'`); err != nil {
		t.Fatal(err)
	}
	appendEvents(t, st, event("f1", "f1"), event("f2", "f2"))
	awaitRecords(6)
}
