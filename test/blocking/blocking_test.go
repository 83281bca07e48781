package blocking

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/ops"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/storetest"
	"github.com/waybillhq/waybill/test/lab"
)

func each(t *testing.T, kinds []kind, test func(t *testing.T, d *database)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) { test(t, k.open(t)) })
	}
}

func TestTrafficGoesOnThroughStallCleanupAndForget(t *testing.T) {
	each(t, slices.Concat(concurrent, serial), func(t *testing.T, d *database) {
		for _, forget := range []bool{false, true} {
			b := membroker.New(topic)
			a := &application{database: d, payload: []byte(`{"by":1}`)}
			stopCleanup := tidy(t, d, ops.CleanupConfig{Batch: 20, Pause: time.Millisecond, Every: time.Millisecond})
			stopRelay := move(t, d, b, relay.Config{Forget: forget, PublishTimeout: 2 * time.Second, LeaseTTL: 3 * time.Second})
			events := 0
			work := func() {
				out := a.run(t.Context(), load{transactions: 60})
				out.check(t)
				events += out.events
			}
			work()
			stalled, end := stall(b)
			work()
			lab.Until(t, patience, "a stalled Publish", func() bool { return stalled.Load() > 0 })
			work()
			end()
			work()
			settled(t, d)
			stopRelay()
			stopCleanup()
			// A cleanup that works only a share of its time may need minutes for the rest.
			lab.Until(t, patience, "an empty outbox", func() bool {
				if _, err := d.outbox.Cleanup(t.Context(), store.CleanupRequest{Retention: time.Millisecond, Limit: 1000}); err != nil {
					t.Fatal(err)
				}
				left, err := d.outbox.Find(t.Context(), store.Filter{Limit: 1})
				return err == nil && len(left) == 0
			})
			last, seen := make(map[string]int64), make(map[string]bool)
			for _, record := range b.Records(topic) {
				if seen[record.EventID] {
					continue
				}
				seen[record.EventID] = true
				event, err := waybill.Decode(&record)
				if err != nil {
					t.Fatal(err)
				}
				if event.AggregateVersion <= last[record.Key] {
					t.Errorf("account %s: version %d after %d", record.Key, event.AggregateVersion, last[record.Key])
				}
				last[record.Key] = event.AggregateVersion
			}
			if len(seen) != events {
				t.Errorf("%d events arrived, want %d", len(seen), events)
			}
		}
	})
}

func TestNobodyWaitsForATransactionOfOursThatStandsStill(t *testing.T) {
	each(t, concurrent, func(t *testing.T, d *database) {
		for _, statement := range d.standing {
			d.exec(t, statement)
		}
		const owner = "owner"
		leases, err := d.outbox.Claim(t.Context(), owner, time.Hour, 64)
		if err != nil || len(leases) != 64 {
			t.Fatalf("claimed %d lanes, %v", len(leases), err)
		}
		a := &application{database: d, payload: []byte("{}")}
		apply := func(forget bool) func() error {
			return func() error {
				changes := store.Changes{Forget: forget}
				for _, row := range queued(t, d) {
					changes.Settled = append(changes.Settled, store.SettledChange{
						Change: store.Change{ID: row.ID, EventID: row.Event.ID}, Outcome: store.StatusSent, Via: "poll",
					})
				}
				return d.outbox.Apply(t.Context(), store.Guard{Owner: owner, Lanes: leases}, changes)
			}
		}
		for _, step := range []struct {
			name string
			do   func() error
		}{
			{"settle", apply(false)},
			{"cleanup", func() error {
				_, err := d.outbox.Cleanup(t.Context(), store.CleanupRequest{Retention: time.Microsecond})
				return err
			}},
			{"forget", apply(true)},
		} {
			t.Run(step.name, func(t *testing.T) {
				// Its row is the last that each transaction comes to, and the one it
				// stands still at.
				if step.name != "cleanup" {
					a.run(t.Context(), load{transactions: 5}).check(t)
					d.append(t, "last")
				}
				before := len(queued(t, d))
				let, done := d.standAt(t, step.do)
				a.run(t.Context(), load{transactions: 20}).check(t)
				if got, want := len(queued(t, d)), before+workers*20; got != want {
					t.Errorf("%d rows in the queue meanwhile, want %d", got, want)
				}
				select {
				case err := <-done:
					t.Fatalf("it did not stand still: %v", err)
				default:
				}
				let()
				if err := <-done; err != nil {
					t.Fatal(err)
				}
			})
		}
	})
}

// standAt starts what will stand still; let lets it go on.
func (d *database) standAt(t *testing.T, do func() error) (let func(), done <-chan error) {
	t.Helper()
	conn, err := d.app.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.ExecContext(t.Context(), d.holdSQL); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- do() }()
	lab.Until(t, patience, "a transaction that stands still", func() bool {
		stands, err := d.texts(t.Context(), d.standsStillQ)
		return err == nil && len(stands) == 1 && stands[0] != "0" || len(ended) > 0
	})
	return func() {
		if _, err := conn.ExecContext(t.Context(), d.freeSQL); err != nil {
			t.Error(err)
		}
	}, ended
}

// queued returns all rows of the queue.
func queued(t *testing.T, d *database) []*store.Row {
	t.Helper()
	request := store.WalkRequest{}
	for lane := range 64 {
		request.Lanes = append(request.Lanes, store.LaneCursor{Lane: lane})
	}
	rows, err := storetest.Hot(t.Context(), d.outbox, request)
	if err != nil {
		t.Error(err)
	}
	return rows
}

// append commits one event of an aggregate, with the aggregate's name for an id.
func (d *database) append(t *testing.T, names ...string) {
	t.Helper()
	tx, err := d.app.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	for _, name := range names {
		if err := d.writer.Append(t.Context(), tx, named(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

func named(name string) waybill.Event {
	return waybill.Event{ID: name, Type: "T", Topic: topic, AggregateType: "t", AggregateID: name, Data: []byte("{}")}
}

func TestALongTransactionDelaysNobodyAndIsNotFailed(t *testing.T) {
	each(t, concurrent, func(t *testing.T, d *database) {
		for _, forget := range []bool{false, true} {
			t.Run(fmt.Sprintf("forget %v", forget), func(t *testing.T) {
				b := membroker.New(topic)
				id := func(name string) string { return fmt.Sprintf("%s %v", name, forget) }
				d.append(t, id("before"))
				long, err := d.app.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = long.Rollback() }()
				if _, err := long.ExecContext(t.Context(), d.rebind(updateSQL), 1); err != nil {
					t.Fatal(err)
				}
				if err := d.writer.Append(t.Context(), long, named(id("long"))); err != nil {
					t.Fatal(err)
				}
				d.append(t, id("after"), id("after too"))

				stopRelay := move(t, d, b, relay.Config{Forget: forget})
				stopCleanup := tidy(t, d, ops.CleanupConfig{Every: time.Millisecond})
				lab.Until(t, patience, "the others' events", func() bool { return len(b.EventIDs(topic)) == 3 })
				settled(t, d)
				lab.Until(t, patience, "no event of the others", func() bool {
					left, err := d.outbox.Find(t.Context(), store.Filter{Limit: 1})
					return err == nil && len(left) == 0
				})

				if err := d.writer.Append(t.Context(), long, named(id("long, at last"))); err != nil {
					t.Errorf("the long transaction: %v", err)
				}
				if _, err := long.ExecContext(t.Context(), d.rebind(updateSQL), 2); err != nil {
					t.Errorf("the long transaction: %v", err)
				}
				if err := long.Commit(); err != nil {
					t.Errorf("the long transaction: %v", err)
				}
				lab.Until(t, patience, "its events", func() bool { return len(b.EventIDs(topic)) == 5 })
				settled(t, d)
				stopRelay()
				stopCleanup()
			})
		}
	})
}
