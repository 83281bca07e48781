package ops

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
)

type checker []broker.Check

func (c checker) Check(context.Context, []string) []broker.Check { return c }

func TestDoctorFinds(t *testing.T) {
	for _, c := range []struct {
		name    string
		store   memstore.Config
		arrange func(d *desk)
		config  DoctorConfig
		check   string // the one that fails; empty: none
		detail  string
		ids     []string
	}{
		{name: "all well", arrange: func(d *desk) { d.add(order("e1", 1)); d.send("e1") }},
		{name: "without a trigger on purpose", store: memstore.Config{NoTrigger: true}, config: DoctorConfig{NoTrigger: true}},
		{name: "no tables", store: memstore.Config{Empty: true}, check: CheckSchema, detail: "do not exist"},
		{name: "older tables", arrange: func(d *desk) { d.SetSchemaVersion(store.SchemaVersion - 1) }, check: CheckSchema, detail: "this release needs"},
		{name: "newer tables", arrange: func(d *desk) { d.SetSchemaVersion(store.SchemaVersion + 1) }, check: CheckSchema, detail: "this release knows"},
		{name: "trigger missing", store: memstore.Config{NoTrigger: true}, check: CheckTrigger, detail: "not installed"},
		{name: "trigger unwanted", config: DoctorConfig{NoTrigger: true}, check: CheckTrigger, detail: "installed, but"},
		{name: "heads", store: memstore.Config{Head: true}, config: DoctorConfig{Head: true}},
		{name: "heads missing", config: DoctorConfig{Head: true}, check: CheckHeads, detail: "no table"},
		{name: "heads not written", store: memstore.Config{NoTrigger: true, Head: true}, config: DoctorConfig{NoTrigger: true}, check: CheckHeads, detail: "without a trigger"},
		{
			name: "heads no longer written", store: memstore.Config{Head: true}, arrange: func(d *desk) { d.LoseHeadTrigger() },
			check: CheckHeads, detail: "the trigger that keeps it is gone",
		},
		{
			name: "facts alone", store: memstore.Config{NoTrigger: true}, config: DoctorConfig{NoTrigger: true, Limit: 1},
			arrange: func(d *desk) { d.add(order("e1", 1), order("e2", 2)) },
			check:   CheckUnqueued, detail: "more than 1 events will never be sent", ids: []string{"e1"},
		},
		{
			name: "events deleted", arrange: func(d *desk) { d.add(order("e1", 1)); d.must(d.DeletePlain(d.t.Context(), "e1")) },
			check: CheckOrphans, detail: "1 queue row without an event: ids 1",
		},
		{name: "owner vanished", arrange: func(d *desk) { d.at = d.at.Add(time.Hour) }, check: CheckLeases, detail: "64 lanes belong to a relay that vanished"},
		{name: "broker", config: DoctorConfig{Checker: checker{{Name: "acks", Detail: "1", Hint: "set all"}}}, check: CheckBroker + ": acks", detail: "1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(t, c.store)
			if !c.store.Empty {
				d.lead("")
			}
			if c.arrange != nil {
				c.arrange(d)
			}
			diagnosis, err := Doctor(t.Context(), d, &c.config)
			if err != nil {
				t.Fatal(err)
			}
			var failed []Examination
			for _, e := range diagnosis.Examinations {
				if !e.OK {
					failed = append(failed, e)
				}
			}
			if c.check == "" {
				if len(failed) > 0 || !diagnosis.Healthy() {
					t.Errorf("found %+v", failed)
				}
				return
			}
			if len(failed) != 1 || failed[0].Check != c.check || !strings.Contains(failed[0].Detail, c.detail) ||
				failed[0].Hint == "" || !slices.Equal(failed[0].EventIDs, c.ids) || diagnosis.Healthy() {
				t.Errorf("found %+v, want %s: %s", failed, c.check, c.detail)
			}
		})
	}
}

// A fact inserted without the trigger is sent after the doctor's cure, once.
func TestRequeueUnqueued(t *testing.T) {
	d := newDesk(t, memstore.Config{NoTrigger: true})
	d.lead("")
	d.add(order("e1", 1), order("e2", 2))
	results, err := RequeueUnqueued(t.Context(), d, because)
	if err != nil || len(results) != 2 || results[0] != (store.Result{EventID: "e1", Outcome: store.OutcomeQueued}) {
		t.Fatalf("got %v, error %v", results, err)
	}
	d.send("e1")
	d.send("e2")
	if results, err = RequeueUnqueued(t.Context(), d, because); err != nil || len(results) != 0 {
		t.Errorf("second run: got %v, error %v", results, err)
	}
}
