package ops

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
)

func TestStatusJudges(t *testing.T) {
	for _, c := range []struct {
		name    string
		arrange func(d *desk)
		config  *StatusConfig
		state   string
		reasons []string // a part of each, in order
	}{
		{"nobody relays", func(*desk) {}, nil, Red, []string{"no relay is running"}},
		{"idle", func(d *desk) { d.lead("") }, nil, Green, nil},
		{"busy", func(d *desk) { d.lead(`{"state":"green"}`); d.add(order("e1", 1)); d.at = d.at.Add(2 * time.Second) }, nil, Green, nil},
		{"one is retried", func(d *desk) { d.lead(""); d.add(order("e1", 1)); d.fail("e1", false, 2, time.Minute) }, nil, Green, nil},
		{
			"one is dead",
			func(d *desk) { d.lead(""); d.add(order("e1", 1)); d.fail("e1", true, 12, 0) },
			nil, Yellow,
			[]string{"1 dead event waits for a decision"},
		},
		{
			"old", func(d *desk) { d.lead(""); d.add(order("e1", 1)); d.at = d.at.Add(50 * time.Second) },
			&StatusConfig{MaxPendingAge: 10 * time.Second},
			Red,
			[]string{"the oldest pending event is 50s old, limit 10s"},
		},
		{
			"old, but never an alarm", func(d *desk) { d.lead(""); d.add(order("e1", 1)); d.at = d.at.Add(50 * time.Second) },
			&StatusConfig{MaxPendingAge: -1},
			Green, nil,
		},
		{
			"the relay was killed", func(d *desk) { d.lead(""); d.at = d.at.Add(2 * time.Minute) },
			nil, Red,
			[]string{"no relay is running"},
		},
		{
			"half of the lanes", func(d *desk) {
				_, _, err := d.Renew(d.t.Context(), store.Heartbeat{Owner: owner, TTL: time.Minute})
				d.must(err)
				_, err = d.Claim(d.t.Context(), owner, time.Minute, store.Lanes/2)
				d.must(err)
			},
			nil, Yellow,
			[]string{"32 of 64 lanes have no live owner"},
		},
		{
			"the relay complains", func(d *desk) {
				d.lead(`{"state":"red","reasons":[{"name":"broker","text":"connection refused"},{"name":"dead","text":"1 key"}]}`)
			},
			nil, Red,
			[]string{"relay host:1: broker: connection refused"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(t, memstore.Config{})
			c.arrange(d)
			status, err := ReadStatus(t.Context(), d, c.config)
			if err != nil {
				t.Fatal(err)
			}
			same := slices.EqualFunc(status.Reasons, c.reasons, strings.Contains)
			if status.State != c.state || !same {
				t.Errorf("got %s %q, want %s %q", status.State, status.Reasons, c.state, c.reasons)
			}
		})
	}
}

func TestStatusCounts(t *testing.T) {
	d := newDesk(t, memstore.Config{})
	d.lead(`{"state":"green"}`)
	other := order("e4", 1)
	other.AggregateID = "O-2"
	d.add(order("e1", 1), order("e2", 2), order("e3", 3), other)
	d.send("e4")
	d.fail("e1", true, 12, 0)
	d.fail("e2", false, 1, time.Hour)
	d.at = d.at.Add(1500 * time.Millisecond)
	status, err := ReadStatus(t.Context(), d, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := (QueueStatus{Pending: 2, Failed: 1, Dead: 1, Parked: 2, OldestPendingSeconds: 1.5}); status.Queue != want {
		t.Errorf("queue: got %+v, want %+v", status.Queue, want)
	}
	if want := (LaneStatus{Total: 64, Owned: 64}); status.Lanes != want {
		t.Errorf("lanes: got %+v, want %+v", status.Lanes, want)
	}
	if len(status.Relays) != 1 || !status.Relays[0].Live || status.Relays[0].Lanes != 64 || status.Relays[0].Host != "host:1" {
		t.Errorf("relays: got %+v", status.Relays)
	}
	if want := (SchemaStatus{Version: store.SchemaVersion, Trigger: true, Outbox: true, Inbox: true}); status.Schema != want {
		t.Errorf("schema: got %+v, want %+v", status.Schema, want)
	}
}

// Readers of the JSON may rely on lists being lists.
func TestStatusJSONHasNoNull(t *testing.T) {
	d := newDesk(t, memstore.Config{})
	d.lead("not json")
	status, err := ReadStatus(t.Context(), d, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "null") || !strings.Contains(string(text), `"reasons":[]`) {
		t.Errorf("got %s", text)
	}
}

func TestStatusNeedsTables(t *testing.T) {
	d := newDesk(t, memstore.Config{Empty: true})
	if _, err := ReadStatus(t.Context(), d, nil); !errors.Is(err, store.ErrNoSchema) {
		t.Errorf("got %v, want %v", err, store.ErrNoSchema)
	}
	d.must(d.Migrate(t.Context(), store.MigrateOptions{SkipOutbox: true}))
	if _, err := ReadStatus(t.Context(), d, nil); !errors.Is(err, store.ErrNoSchema) {
		t.Errorf("inbox alone: got %v, want %v", err, store.ErrNoSchema)
	}
}
