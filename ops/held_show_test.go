package ops

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill/store"
)

func TestHeldEventIsShownWithItsCallsAndDeadLetter(t *testing.T) {
	for name, c := range map[string]struct {
		idempotent bool
		ttl        time.Duration
		inDoubt    bool
	}{
		"nobody is at it":      {false, 0, true},
		"somebody is at it":    {false, time.Hour, false},
		"a second is harmless": {true, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := heldDesk(t)
			d.doubtful("dead", c.idempotent, c.ttl)
			view, ok, err := ShowHeld(t.Context(), d.Store, "inventory", "dead", true)
			d.must(err)
			if !ok || view.EventID != "dead" || len(view.Calls) != 1 {
				t.Fatalf("got %t, %+v", ok, view)
			}
			call := view.Calls[0]
			if call.Name != "coupon" || call.State != "DOING" || call.IdempotencyKey != "k-dead" || call.Owner != "gone" || call.Tries != 1 ||
				call.Idempotent != c.idempotent || call.InDoubt != c.inDoubt || (call.OwnedForSeconds > 0) != (c.ttl > 0) || call.StartedAt.IsZero() {
				t.Errorf("got %+v", call)
			}
		})
	}
	d := heldDesk(t)
	d.doubtful("dead", false, 0)
	_, err := NewHeld(d.Store).Resolve(t.Context(), annasWish, "inventory", Resolution{Done: true, Result: []byte(`{"coupon":"C-77"}`)}, "dead")
	d.must(err)
	view, _, err := ShowHeld(t.Context(), d.Store, "inventory", "dead", false)
	d.must(err)
	text, err := json.Marshal(view.Calls)
	d.must(err)
	if len(view.Calls) != 1 || view.Calls[0].State != "DONE" || view.Calls[0].InDoubt || !strings.Contains(string(text), `"result":{"json":{"coupon":"C-77"}}`) {
		t.Errorf("answered: %s", text)
	}
}

func TestHeldEventIsShownWithItsDeadLetter(t *testing.T) {
	for _, note := range []string{"", "too large for the topic"} {
		d := heldDesk(t)
		view, _, err := ShowHeld(t.Context(), d.Store, "inventory", "dead", false)
		d.must(err)
		if !view.DeadLetterAt.IsZero() || view.DeadLetterNote != "" || view.Calls != nil {
			t.Errorf("before it is sent: %+v", view)
		}
		held, err := d.ListHeld(t.Context(), "inventory", store.HeldFilter{EventID: "dead"})
		d.must(err)
		d.must(d.NoteDeadLetter(t.Context(), held[0], note))
		view, _, err = ShowHeld(t.Context(), d.Store, "inventory", "dead", false)
		d.must(err)
		if view.DeadLetterNote != note || view.DeadLetterAt.IsZero() != (note != "") {
			t.Errorf("note %q: got %q, at %s", note, view.DeadLetterNote, view.DeadLetterAt)
		}
	}
	if _, ok, err := ShowHeld(t.Context(), heldDesk(t).Store, "inventory", "nope", false); ok || err != nil {
		t.Errorf("an event that is not held: %t, %v", ok, err)
	}
}

func TestTraceTellsOfCallsAndDeadLetters(t *testing.T) {
	d := heldDesk(t)
	answers := func() (all []string) {
		result, err := Trace(t.Context(), d.Store, []Inbox{{Name: "inventory", Reader: d.Store}}, TraceQuery{EventID: "dead"})
		d.must(err)
		for _, l := range result.Events[0].Lines {
			if l.Question == "called?" || l.Question == "dead letter?" {
				all = append(all, l.Group+": "+l.Question+" "+l.Answer)
			}
		}
		return all
	}
	if got := answers(); len(got) > 0 {
		t.Errorf("of nothing: %q", got)
	}
	d.doubtful("dead", false, 0)
	held, err := d.ListHeld(t.Context(), "inventory", store.HeldFilter{EventID: "dead"})
	d.must(err)
	d.must(d.NoteDeadLetter(t.Context(), held[0], ""))
	want := []string{"inventory: dead letter? sent " + stamp(d.at), "inventory: called? coupon: DOING, in doubt, key k-dead"}
	if got := answers(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	_, err = NewHeld(d.Store).Resolve(t.Context(), annasWish, "inventory", Resolution{Done: true}, "dead")
	d.must(err)
	want = []string{"inventory: called? coupon: DONE, key k-dead"}
	if got := answers(); !slices.Equal(got, want) {
		t.Errorf("answered: got %q, want %q", got, want)
	}
}
