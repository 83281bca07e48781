package ops

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
)

// replayDesk has sent-1 to sent-n of topic orders, and one pending event.
func replayDesk(t *testing.T, n int) *desk {
	d := newDesk(t, memstore.Config{})
	d.must(d.Migrate(t.Context(), store.MigrateOptions{}))
	d.lead("")
	for i := range n {
		id := fmt.Sprintf("sent-%d", i+1)
		d.add(order(id, int64(i+1)))
		d.send(id)
		d.at = d.at.Add(time.Millisecond)
	}
	d.add(order("pending", 1000))
	return d
}

func TestAReplayTellsWhatBecomesOfEachEvent(t *testing.T) {
	for _, apply := range []bool{false, true} {
		d := replayDesk(t, 2)
		var told []store.Result
		config := &ReplayConfig{Apply: apply, Each: func(r store.Result) { told = append(told, r) }}
		result, err := Replay(t.Context(), d.Store, annasWish, ReplayQuery{EventIDs: []string{"sent-2", "pending", "nope"}}, config)
		d.must(err)
		queued := WouldQueue
		if apply {
			queued = store.OutcomeQueued
		}
		want := []string{"sent-2: " + queued, "pending: already pending", "nope: gone"}
		if got := outcomes(told); !slices.Equal(got, want) {
			t.Errorf("apply %t: got %q, want %q", apply, got, want)
		}
		if want := map[string]int{queued: 1, "already pending": 1, "gone": 1}; !maps.Equal(result.Outcomes, want) || result.DryRun == apply {
			t.Errorf("apply %t: got %+v", apply, result)
		}
		if got := d.find("sent-2").Row != nil; got != apply {
			t.Errorf("apply %t: queued %t", apply, got)
		}
	}
}

func TestAReplayFollowsItsConditions(t *testing.T) {
	d := replayDesk(t, 5)
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	other := order("other", 1)
	other.Topic, other.Key, other.Type = "invoices", "K-2", "InvoiceSent"
	d.add(other)
	d.send("other")
	for _, c := range []struct {
		query ReplayQuery
		want  int
	}{
		{ReplayQuery{Topic: "orders"}, 5},
		{ReplayQuery{Topic: "invoices"}, 1},
		{ReplayQuery{Type: "InvoiceSent"}, 1},
		{ReplayQuery{Key: "K-2"}, 1},
		{ReplayQuery{Topic: "orders", Limit: 2}, 2},
		{ReplayQuery{From: start.Add(time.Millisecond), Until: start.Add(3 * time.Millisecond)}, 2},
	} {
		result, err := Replay(t.Context(), d.Store, annasWish, c.query, nil)
		d.must(err)
		if got := result.Outcomes[WouldQueue]; got != c.want {
			t.Errorf("%+v: got %+v, want %d", c.query, result.Outcomes, c.want)
		}
	}
}

func TestAReplayKeepsItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := replayDesk(t, 100)
		start := time.Now()
		result, err := Replay(t.Context(), d.Store, annasWish, ReplayQuery{Topic: "orders"}, &ReplayConfig{Apply: true, Rate: 20})
		d.must(err)
		if result.Outcomes[store.OutcomeQueued] != 100 {
			t.Errorf("got %+v", result)
		}
		if took := time.Since(start); took < 4800*time.Millisecond || took > 5*time.Second {
			t.Errorf("100 events at 20/s took %v", took)
		}
		if entries, err := d.Audit(t.Context(), 1); err != nil || len(entries) != 1 || entries[0].Verb != "replay" {
			t.Errorf("the audit says %+v, %v, want a replay", entries, err)
		}
	})
}

func TestAReplayNeedsATargetAndAReason(t *testing.T) {
	d := replayDesk(t, 1)
	if _, err := Replay(t.Context(), d.Store, annasWish, ReplayQuery{Limit: 5}, nil); !errors.Is(err, ErrNoTarget) {
		t.Errorf("got %v", err)
	}
	apply := &ReplayConfig{Apply: true}
	if _, err := Replay(t.Context(), d.Store, store.Action{Actor: "anna"}, ReplayQuery{Topic: "orders"}, apply); !errors.Is(err, store.ErrNoReason) {
		t.Errorf("got %v", err)
	}
	var known *waybill.Error
	if _, err := Replay(t.Context(), d.Store, annasWish, ReplayQuery{}, nil); !errors.As(err, &known) || known.Hint == "" {
		t.Errorf("got %v", err)
	}
}
