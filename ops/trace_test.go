package ops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
)

// text writes a trace as a person reads it.
func text(e EventTrace) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", e.Verdict)
	for _, l := range e.Lines {
		fmt.Fprintf(&b, "%s|%s %s\n", l.Group, l.Question, l.Answer)
	}
	return b.String()
}

func TestTraceAnswers(t *testing.T) {
	for _, c := range []struct {
		name    string
		arrange func(d *desk)
		want    []string
	}{
		{"pending", func(d *desk) { d.add(order("e1", 1)); d.at = d.at.Add(3 * time.Second) }, []string{
			"waiting in the outbox to be sent\n",
			"|produced? 2026-03-01 11:59:59.000Z, inserted 2026-03-01 12:00:00.000Z\n",
			"|in the outbox? id 1, PENDING in lane ", " for 3s\n",
			"|captured? not yet",
			"|published? not yet\n",
			"inventory|received? no: neither consumed nor held\n",
		}},
		{"in backoff", func(d *desk) { d.add(order("e1", 1)); d.fail("e1", false, 2, 30*time.Second) }, []string{
			"|published? not yet: 2 attempts failed, next in 30s: refused e1\n",
		}},
		{"dead", func(d *desk) { d.add(order("e1", 1)); d.fail("e1", true, 12, 0) }, []string{
			"dead in the outbox: it needs a decision, retry or skip\n", "|published? no: DEAD after 12 attempts: refused e1\n",
		}},
		{"skip is due", func(d *desk) {
			d.add(order("e1", 1))
			d.fail("e1", true, 12, 0)
			_, err := SkipDead(d.t.Context(), d, because, "e1")
			d.must(err)
		}, []string{"|published? no: an operator skipped it, its marker is due\n"}},
		{"sent, not received", func(d *desk) { d.add(order("e1", 1)); d.send("e1") }, []string{
			"sent; not received by inventory\n", "|in the outbox? id 1, SENT\n", "|captured? by poll\n", "|published? 2026-03-01 12:00:00.000Z to orders[3]@17\n",
		}},
		{"applied", func(d *desk) { d.add(order("e1", 1)); d.send("e1"); d.applied("inventory", "e1") }, []string{
			"sent; applied by inventory\n",
			"inventory|received? from orders[3]@17\n",
			"inventory|duplicated? no\n",
			"inventory|applied? yes, 2026-03-01 12:00:00.000Z\n",
			"inventory|dead? no\n",
		}},
		{"applied, delivered three times", func(d *desk) {
			d.add(order("e1", 1))
			d.send("e1")
			for range 3 {
				d.applied("inventory", "e1")
			}
		}, []string{"inventory|duplicated? 2 further deliveries, absorbed\n"}},
		{"sent again", func(d *desk) {
			d.add(order("e1", 1))
			d.send("e1")
			_, err := Requeue(d.t.Context(), d, because, "e1")
			d.must(err)
		}, []string{"|in the outbox? id 1, PENDING again in lane "}},
		{"held dead", func(d *desk) {
			d.add(order("e1", 1))
			d.send("e1")
			d.hold("inventory", "e1", store.HeldDead, 4, "no such product\nand a stack")
		}, []string{
			"sent; dead by inventory\n", "inventory|applied? no\n", "inventory|dead? yes: DEAD after 4 attempts: no such product\n",
			"inventory|duplicated? unknown, because ",
		}},
		{"held for retry", func(d *desk) {
			d.add(order("e1", 1))
			d.send("e1")
			d.hold("inventory", "e1", store.HeldRetry, 1, "locked")
		}, []string{"inventory|dead? no: RETRY after 1 attempt, next in 5s: locked\n"}},
		{"waits for a version", func(d *desk) { d.hold("inventory", "e1", store.HeldWaiting, 0, "") }, []string{
			"|in the outbox? no: cleaned up", "|captured? unknown, because the outbox has no such event\n", "inventory|dead? no: WAITING for version 1 of its aggregate",
		}},
		{"two groups", func(d *desk) { d.applied("inventory", "e1"); d.hold("points", "e1", store.HeldBlocked, 0, "") }, []string{
			"sent; applied by inventory, blocked by points\n", "points|dead? no: BLOCKED behind an earlier event",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(t, memstore.Config{})
			d.lead("")
			d.applied("inventory", "another")
			c.arrange(d)
			result, err := Trace(t.Context(), d, []Inbox{{Name: "inv", Reader: d}}, TraceQuery{EventID: "e1"})
			if err != nil || len(result.Events) != 1 {
				t.Fatalf("got %+v, error %v", result, err)
			}
			got := text(result.Events[0])
			for _, part := range c.want {
				if !strings.Contains(got, part) {
					t.Errorf("lacks %q:\n%s", part, got)
				}
			}
		})
	}
}

func TestTraceOfAFactNeverQueued(t *testing.T) {
	d := newDesk(t, memstore.Config{NoTrigger: true})
	d.add(order("e1", 1))
	result, err := Trace(t.Context(), d, nil, TraceQuery{EventID: "e1"})
	if err != nil {
		t.Fatal(err)
	}
	got := text(result.Events[0])
	for _, part := range []string{"stuck: it was never queued", "never queued: nothing will send it", "|received? unknown, because no inbox is configured"} {
		if !strings.Contains(got, part) {
			t.Errorf("lacks %q:\n%s", part, got)
		}
	}
}

func TestTraceOfAKey(t *testing.T) {
	d := newDesk(t, memstore.Config{})
	d.lead("")
	d.add(order("e1", 1), order("e2", 2), order("e3", 3))
	d.send("e1")
	result, err := Trace(t.Context(), d, nil, TraceQuery{Key: "O-1", Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Events) != 2 || !result.More || result.Events[0].EventID != "e2" || result.Events[1].AggregateVersion != 3 {
		t.Errorf("got %+v", result)
	}
	if result, err = Trace(t.Context(), d, nil, TraceQuery{Key: "other"}); err != nil || len(result.Events) != 0 {
		t.Errorf("unknown key: got %+v, error %v", result, err)
	}
	if js, _ := json.Marshal(result); string(js) != `{"events":[],"more":false}` {
		t.Errorf("JSON of nothing: %s", js)
	}
}

func TestTraceOfAnUnknownEvent(t *testing.T) {
	d := newDesk(t, memstore.Config{})
	d.applied("inventory", "another")
	_, err := Trace(t.Context(), d, []Inbox{{Name: "inv", Reader: d}}, TraceQuery{EventID: "nope"})
	if !errors.Is(err, ErrNoEvent) {
		t.Errorf("got %v, want %v", err, ErrNoEvent)
	}
}

// What cannot be read is unknown, and the rest is answered all the same.
func TestTraceWithoutAnInbox(t *testing.T) {
	d := newDesk(t, memstore.Config{})
	d.add(order("e1", 1))
	away := memstore.New(nil)
	away.SetError(func(string) error { return errors.New("connection refused") })
	empty := memstore.New(nil)
	result, err := Trace(context.WithoutCancel(t.Context()), d, []Inbox{
		{Name: "inv", Reader: away}, {Name: "points", Err: errors.New("no such file")}, {Name: "mail", Reader: empty},
	}, TraceQuery{EventID: "e1"})
	if err != nil {
		t.Fatal(err)
	}
	got := text(result.Events[0])
	for _, part := range []string{
		"inv|received? unknown, because inbox inv cannot be read: ", "connection refused",
		"points|received? unknown, because inbox points cannot be read: no such file",
		"mail|received? unknown, because inbox mail has no consumer group yet",
	} {
		if !strings.Contains(got, part) {
			t.Errorf("lacks %q:\n%s", part, got)
		}
	}
}
