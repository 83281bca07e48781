package ops

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
)

var toTry = store.Action{Actor: "anna", Reason: "to try"}

// deliver sends events as another program does.
func deliver(t *testing.T, messages *membroker.Broker, events ...waybill.Event) {
	t.Helper()
	records := make([]waybill.Record, len(events))
	for i := range events {
		var err error
		if records[i], err = waybill.Encode(waybill.FormatRaw, &events[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(messages.Publish(t.Context(), records)...); err != nil {
		t.Fatal(err)
	}
}

func (d *desk) receipt(id string) *store.Receipt { return d.find(id).Receipt }

func (d *desk) handOver() store.Delivery {
	d.t.Helper()
	delivery, err := d.HandOver(d.t.Context(), toTry)
	d.must(err)
	return delivery
}

func TestWhatAnotherProgramSendsIsConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, messages := newDesk(t, memstore.Config{}), membroker.New("orders", "bills")
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- NewReadBack(d, messages, nil).Run(ctx) }()
		early := order("e1", 1)
		d.add(early)
		deliver(t, messages, early) // by a relay that has not settled it yet
		time.Sleep(10 * time.Second)
		d.handOver()
		second, third := order("e2", 2), order("e3", 3)
		d.add(second, third)
		deliver(t, messages, second)
		time.Sleep(10 * time.Second)
		if r := d.receipt("e1"); r != nil {
			t.Errorf("an event of the relays: got %+v, want no receipt", r)
		}
		if r := d.receipt("e2"); r == nil || r.Via != store.ViaExternal || !strings.HasPrefix(r.PublishedTo, "orders[") {
			t.Errorf("a sent one: got %+v, want a receipt via external", r)
		}
		if r := d.receipt("e3"); r != nil {
			t.Errorf("one that was not sent: got %+v, want no receipt", r)
		}
		// A topic that nobody has used yet, and the same record twice.
		fourth := order("e4", 4)
		fourth.Topic = "bills"
		d.add(fourth)
		deliver(t, messages, third, third, fourth)
		time.Sleep(10 * time.Second)
		for _, id := range []string{"e3", "e4"} {
			if d.receipt(id) == nil {
				t.Errorf("event %s has no receipt", id)
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestAReaderThatFailsTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, messages := newDesk(t, memstore.Config{}), membroker.New("orders")
		d.handOver()
		event := order("e1", 1)
		d.add(event)
		deliver(t, messages, event)
		d.SetError(func(op string) error {
			if op == "confirm" {
				return errors.New("the disk is full")
			}
			return nil
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- NewReadBack(d, messages, nil).Run(ctx) }()
		time.Sleep(10 * time.Second)
		d.SetError(nil)
		time.Sleep(10 * time.Second)
		if d.receipt("e1") == nil {
			t.Error("the record was passed over")
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestCatchingUpReadsToTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, messages := newDesk(t, memstore.Config{}), membroker.New("orders")
		d.handOver()
		var events []waybill.Event
		for i := range 3000 {
			events = append(events, order("e"+time.Duration(i).String(), int64(i+1)))
		}
		d.add(events...)
		deliver(t, messages, events[:2999]...)
		if err := NewReadBack(d, messages, nil).CatchUp(t.Context(), 2*time.Second); err != nil {
			t.Fatal(err)
		}
		unconfirmed, err := d.Unconfirmed(t.Context())
		if err != nil || unconfirmed.Events != 1 {
			t.Errorf("unconfirmed: got %+v, %v, want the one that was not sent", unconfirmed, err)
		}
	})
}

func TestStatusSaysWhoDelivers(t *testing.T) {
	d := newDesk(t, memstore.Config{})
	d.lead(`{}`)
	status := func() Status {
		t.Helper()
		s, err := ReadStatus(t.Context(), d, nil)
		d.must(err)
		return s
	}
	if s := status(); s.State != Green || s.Delivery.Mode != "relay" {
		t.Errorf("before: %+v", s)
	}
	d.handOver()
	d.add(order("e1", 1))
	s := status()
	if s.State != Green || s.Delivery.Mode != store.ViaExternal || s.Delivery.Unconfirmed != 1 {
		t.Errorf("after the hand-over: got %+v, want green and one unconfirmed", s)
	}
	d.at = d.at.Add(30 * time.Second)
	d.lead(`{}`)
	d.at = d.at.Add(50 * time.Second)
	s = status()
	if !slices.ContainsFunc(s.Causes, func(c Cause) bool { return c.Name == CauseExternal && c.State == Red }) {
		t.Errorf("80 s later: got %+v, want %s", s.Causes, CauseExternal)
	}
}

func TestDoctorAndTraceKnowWhoDelivers(t *testing.T) {
	d := newDesk(t, memstore.Config{})
	d.lead(`{}`)
	d.add(order("e1", 1))
	d.handOver()
	d.add(order("e2", 2))
	diagnosis, err := Doctor(t.Context(), d, nil)
	d.must(err)
	for _, e := range diagnosis.Examinations {
		switch e.Check {
		case CheckTrigger:
			t.Errorf("the doctor looks for the trigger: %+v", e)
		case CheckUnqueued, CheckDelivery:
			if !e.OK {
				t.Errorf("got %+v, want it content", e)
			}
		}
	}
	results, err := RequeueUnqueued(t.Context(), d, toTry)
	if err != nil || len(results) != 0 {
		t.Errorf("requeue: got %v, %v, want nothing: it would be sent twice", results, err)
	}
	traced, err := Trace(t.Context(), d, nil, TraceQuery{EventID: "e2"})
	d.must(err)
	if e := traced.Events[0]; !strings.Contains(e.Verdict, "another program") || len(e.Next) != 0 {
		t.Errorf("trace: got %q, %+v", e.Verdict, e.Next)
	}
	traced, err = Trace(t.Context(), d, nil, TraceQuery{EventID: "e1"})
	d.must(err)
	if e := traced.Events[0]; e.Verdict != "waiting in the outbox to be sent" {
		t.Errorf("trace of an event of the relays: got %q", e.Verdict)
	}
}
