package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

// Interleaving is a store with empty tables between whose statements a test can
// step.
type Interleaving struct {
	// Relay calls *Before, where it is not nil, before each of its trips to the
	// database.
	Relay  store.Outbox
	Before *func()
	// Empty empties the outbox, or all of it but the queue, so that ids begin anew
	// with 1.
	Empty func(t testing.TB, keepQueue bool)
	// Insert appends an event and commits, or fails soon where it had to wait.
	Insert func(t testing.TB, e waybill.Event) error
}

// RunInterleaved empties the outbox, so that ids begin anew, while a relay has
// an event in flight. The event that gets its id is committed at any moment of the
// settling, and must stay in the queue, untouched.
func RunInterleaved(t *testing.T, open func(t *testing.T) Interleaving) {
	for name, changes := range map[string]func(c store.Change) store.Changes{
		"settled": func(c store.Change) store.Changes {
			return store.Changes{Settled: []store.SettledChange{{Change: c, Outcome: store.StatusSent, Via: "poll"}}}
		},
		"forgotten": func(c store.Change) store.Changes {
			return store.Changes{Forget: true, Settled: []store.SettledChange{{Change: c, Outcome: store.StatusSent, Via: "poll"}}}
		},
		"refused": func(c store.Change) store.Changes {
			return store.Changes{Failed: []store.FailedChange{{Change: c, Dead: true, Retries: 1, Error: "refused"}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := open(t)
			leases, err := in.Relay.Claim(t.Context(), owner, time.Hour, store.Lanes)
			if err != nil || len(leases) != store.Lanes {
				t.Fatalf("claimed %d lanes: %v", len(leases), err)
			}
			guard, events := store.Guard{Owner: owner, Lanes: leases}, 0
			for _, keepQueue := range []bool{false, true} {
				// Beside one that is gone, stores may take another way.
				for _, besideGone := range []bool{false, true} {
					landed := 0
					for at, more := 1, true; more; at++ {
						flying, newcomer := interleaved(events), interleaved(events+1)
						events += 2
						if err := in.Insert(t, flying); err != nil {
							t.Fatal(err)
						}
						in.Empty(t, keepQueue)
						apply := changes(store.Change{ID: 1, EventID: flying.ID})
						if besideGone {
							apply.Settled = append(apply.Settled, store.SettledChange{Change: store.Change{ID: 1 << 40, EventID: "gone"}, Outcome: store.StatusSent})
						}
						trips, inserted := 0, false
						*in.Before = func() {
							trips++
							inserted = inserted || trips == at && in.Insert(t, newcomer) == nil
						}
						err := in.Relay.Apply(t.Context(), guard, apply)
						*in.Before = nil
						if err != nil {
							t.Fatalf("apply: %v", err)
						}
						if more = trips >= at && at < 50; inserted {
							landed++
							in.wantQueued(t, newcomer, fmt.Sprintf("committed before trip %d of %d (queue kept %t, beside one that is gone %t)", at, trips, keepQueue, besideGone))
						}
						in.Empty(t, false)
					}
					if landed < 2 {
						t.Errorf("queue kept %t, beside one that is gone %t: %d events were committed during the settling, want at least two", keepQueue, besideGone, landed)
					}
				}
			}
		})
	}
}

func interleaved(n int) waybill.Event {
	e := waybill.Event{ID: fmt.Sprintf("e%d", n), Type: "OrderPaid", Topic: "orders", AggregateType: "order", AggregateID: "1", Data: []byte("1")}
	e.Normalize(time.Date(2026, 3, 29, 2, 30, 0, 0, time.UTC))
	return e
}

func (in *Interleaving) wantQueued(t *testing.T, e waybill.Event, when string) {
	t.Helper()
	found, err := in.Relay.Find(t.Context(), store.Filter{EventIDs: []string{e.ID}})
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: found %+v, %v", when, found, err)
	}
	if row := found[0].Row; row == nil || row.ID != 1 || row.Parked || row.Retries > 0 || row.Status != store.StatusPending {
		t.Errorf("%s: the queue row is %+v, receipt %+v, want it untouched under the id 1", when, row, found[0].Receipt)
	}
}
