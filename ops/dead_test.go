package ops

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
)

var because = store.Action{Actor: "ada", Reason: "the topic exists now"}

func TestDeadVerbs(t *testing.T) {
	d := newDesk(t, memstore.Config{})
	d.lead("")
	d.add(order("e1", 1), order("e2", 2), order("e3", 3))
	d.fail("e1", true, 12, 0)
	d.fail("e2", true, 12, 0)

	dead, more, err := ListDead(t.Context(), d, DeadFilter{Error: "refused"})
	if err != nil || more || len(dead) != 2 || dead[0].Event.ID != "e1" {
		t.Fatalf("list: got %v, more %v, error %v", dead, more, err)
	}
	if dead, _, _ := ListDead(t.Context(), d, DeadFilter{Error: "refused e2"}); len(dead) != 1 || dead[0].Event.ID != "e2" {
		t.Errorf("list by error: got %v", dead)
	}
	if dead, more, _ := ListDead(t.Context(), d, DeadFilter{Limit: 1}); len(dead) != 1 || !more {
		t.Errorf("list with limit: got %v, more %v", dead, more)
	}

	for _, c := range []struct {
		name string
		got  func() ([]store.Result, error)
		want []store.Result
	}{
		{"retry", func() ([]store.Result, error) { return RetryDead(t.Context(), d, because, "e1", "e3", "nope") }, []store.Result{
			{EventID: "e1", Outcome: store.OutcomeRetried}, {EventID: "e3", Outcome: store.OutcomeNotDead}, {EventID: "nope", Outcome: store.OutcomeGone},
		}},
		{"skip", func() ([]store.Result, error) { return SkipDead(t.Context(), d, because, "e2") }, []store.Result{
			{EventID: "e2", Outcome: store.OutcomeSkipped},
		}},
		{"requeue", func() ([]store.Result, error) { return Requeue(t.Context(), d, because, "e3") }, []store.Result{
			{EventID: "e3", Outcome: store.OutcomeAlreadyPending},
		}},
	} {
		got, err := c.got()
		if err != nil || fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: got %v, error %v, want %v", c.name, got, err, c.want)
		}
	}
	audit, err := d.Audit(t.Context(), 10)
	if err != nil || len(audit) != 2 || audit[0].Verb != "dead skip" || audit[1].Verb != "dead retry" || audit[1].Reason != because.Reason {
		t.Errorf("audit: got %+v, error %v", audit, err)
	}
}

func TestVerbsNeedReasonAndTarget(t *testing.T) {
	d := newDesk(t, memstore.Config{})
	if _, err := SkipDead(t.Context(), d, store.Action{Actor: "ada", Reason: " "}, "e1"); !errors.Is(err, store.ErrNoReason) {
		t.Errorf("no reason: got %v", err)
	}
	if _, err := RetryDead(t.Context(), d, because); !errors.Is(err, ErrNoTarget) {
		t.Errorf("no target: got %v", err)
	}
}

// Many events are handled in several transactions, and none is left out.
func TestVerbsGoOnAfterAPage(t *testing.T) {
	d := newDesk(t, memstore.Config{})
	d.lead("")
	var events []waybill.Event
	var ids []string
	for i := range 2*page + 7 {
		e := order(fmt.Sprintf("e%04d", i), int64(i+1))
		events, ids = append(events, e), append(ids, e.ID)
	}
	d.add(events...)
	for _, id := range ids {
		d.fail(id, true, 12, time.Hour)
	}
	if dead, more, err := ListDead(t.Context(), d, DeadFilter{Limit: 1000}); err != nil || more || len(dead) != len(ids) {
		t.Errorf("list: got %d, more %v, error %v", len(dead), more, err)
	}
	results, err := RetryDead(t.Context(), d, because, ids...)
	if err != nil || len(results) != len(ids) || results[len(ids)-1].EventID != ids[len(ids)-1] {
		t.Errorf("retry: got %d results, error %v", len(results), err)
	}
}
