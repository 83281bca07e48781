package ops

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/broker"
	"github.com/waybillhq/waybill/broker/membroker"
	"github.com/waybillhq/waybill/relay"
	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/memstore"
)

// told is what one tool must say about a trouble: its cause, and the next
// command or step. Both empty: the tool does not look there.
type told struct{ cause, next string }

// trouble is something that goes wrong in production, planted. All three tools
// are asked about it, the trace about event e1.
type trouble struct {
	name    string
	store   memstore.Config
	plant   func(d *desk)
	inboxes func(d *desk) []Inbox
	status  told
	trace   told
	doctor  told
}

// hour passes since everything else.
func (d *desk) hour() { d.at = d.at.Add(time.Hour) }

// relayed runs a relay over the desk's store until the test ends, with a broker
// that has the trouble, and waits until the relay has met it.
func (d *desk) relayed(b *membroker.Broker, met func() bool) {
	d.t.Helper()
	r, err := relay.New(d.Store, b, &relay.Config{
		Host: "host:1", LeaseTTL: 300 * time.Millisecond, MaxAttempts: 1, Logger: slog.New(slog.DiscardHandler),
	})
	d.must(err)
	ctx, stop := context.WithCancel(context.WithoutCancel(d.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	d.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			d.t.Error(err)
		}
	})
	for deadline := time.Now().Add(time.Minute); !met(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			d.t.Fatal("the relay never met its trouble")
		}
	}
}

// reports waits until a live relay's report has a reason of that name.
func (d *desk) reports(name string) func() bool {
	return func() bool {
		relays, err := d.ListRelays(d.t.Context())
		d.must(err)
		for _, r := range relays {
			for _, reason := range relayReasons(r.Report) {
				if reason.Name == name {
					return true
				}
			}
		}
		return false
	}
}

func (d *desk) died() bool { return d.find("e1").Status == store.StatusDead }

func (d *desk) read(owner string) {
	d.t.Helper()
	_, _, err := d.ClaimReader(d.t.Context(), store.ReaderKey{Group: "inventory", Topic: "orders", Partition: 3}, owner, time.Minute, false)
	d.must(err)
}

func itself(d *desk) []Inbox { return []Inbox{{Name: "inv", Reader: d}} }

const deadCommand = "waybill dead retry e1 --reason"

var troubles = []trouble{
	{
		name: "no relay was started", plant: func(d *desk) { d.add(order("e1", 1)) },
		status: told{"no relay is running", "waybill serve"},
		trace:  told{"no live relay owns its lane", "waybill serve"},
		doctor: told{"no lane has an owner", "waybill serve"},
	},
	{
		name: "the relay was killed and its leases expired", plant: func(d *desk) { d.lead(""); d.add(order("e1", 1)); d.hour() },
		status: told{"64 belong to one that vanished", "waybill serve"},
		trace:  told{"no live relay owns its lane", "waybill serve"},
		doctor: told{"64 lanes belong to a relay that vanished", "waybill serve"},
	},
	{
		name: "half of the lanes have no relay", plant: func(d *desk) {
			d.add(order("e1", 1))
			lane := d.find("e1").Row.Lane
			d.lead("")
			var leases []store.Lease
			for l, lease := range d.own {
				if l%2 == lane%2 {
					leases = append(leases, lease)
				}
			}
			d.must(d.Release(d.t.Context(), owner, leases))
		},
		status: told{"32 of 64 lanes have no live owner", "look at the relays' logs"},
		trace:  told{"no live relay owns its lane", "waybill serve"},
		doctor: told{"32 of 64 lanes have no owner", "look at the relays' logs"},
	},
	{
		name: "the broker is down", plant: func(d *desk) {
			d.add(order("e1", 1))
			b := membroker.New("orders")
			b.Outage(true)
			d.relayed(b, d.reports("broker"))
		},
		status: told{"relay host:1: broker: ", "start the broker"},
		trace:  told{"relay host:1: broker: ", "start the broker"},
		doctor: told{"relay host:1: broker: ", "start the broker"},
	},
	{
		name: "the topic is missing", plant: func(d *desk) {
			d.add(order("e1", 1))
			d.relayed(membroker.New("another"), d.reports("topic"))
		},
		status: told{"relay host:1: topic: orders: ", "create topic orders"},
		trace:  told{"relay host:1: topic: orders: ", "create topic orders"},
		doctor: told{"relay host:1: topic: orders: ", "create topic orders"},
	},
	{
		name: "the topic is denied", plant: func(d *desk) {
			d.add(order("e1", 1))
			b := membroker.New("orders")
			b.DenyTopic("orders", true)
			d.relayed(b, d.reports("topic"))
		},
		status: told{"relay host:1: topic: orders: ", "grant access to it"},
		trace:  told{"relay host:1: topic: orders: ", "grant access to it"},
		doctor: told{"relay host:1: topic: orders: ", "grant access to it"},
	},
	{
		name: "a poison event", plant: func(d *desk) {
			d.add(order("e1", 1))
			b := membroker.New("orders")
			b.Refuse("e1", 100, broker.Permanent(errors.New("illegal header"), ""))
			d.relayed(b, d.died)
		},
		status: told{"1 dead event waits for a decision", "waybill dead list"},
		trace:  told{"illegal header", deadCommand},
		doctor: told{"illegal header", "waybill dead list"},
	},
	{
		name: "an event is too large", plant: func(d *desk) {
			e := order("e1", 1)
			e.Data = []byte(`"` + strings.Repeat("x", 5000) + `"`)
			d.add(e)
			b := membroker.New("orders")
			b.MaxRecordBytes(1000)
			d.relayed(b, d.died)
		},
		status: told{"1 dead event waits for a decision", "waybill dead list"},
		trace:  told{"too large", "raise the broker's limit for one message"},
		doctor: told{"too large", "waybill dead list"},
	},
	{
		name: "a key is held behind a dead event", plant: func(d *desk) {
			d.lead("")
			d.add(order("e0", 1), order("e1", 2))
			d.fail("e0", true, 12, 0)
			d.apply("e1", func(at store.Change, c *store.Changes) { c.Parked = append(c.Parked, at.ID) })
		},
		status: told{"1 dead event waits for a decision", "waybill dead list"},
		trace:  told{"it waits behind e0 of its key, which is dead: refused e0", "waybill dead retry e0"},
		doctor: told{"1 event will not be sent without a decision", "waybill dead list"},
	},
	{
		name: "a key waits behind a failing event", plant: func(d *desk) {
			d.lead("")
			d.add(order("e0", 1), order("e1", 2))
			d.fail("e0", false, 3, time.Hour)
			d.apply("e1", func(at store.Change, c *store.Changes) { c.Parked = append(c.Parked, at.ID) })
			d.at = d.at.Add(59 * time.Second)
		},
		status: told{"the oldest pending event is 59s old", "waybill doctor"},
		trace:  told{"it waits behind e0 of its key, which fails: refused e0", "waybill trace e0"},
		doctor: told{"1 event failed and will be tried again; the first: refused e0", "waybill trace e0"},
	},
	{
		name: "an event fails again and again", plant: func(d *desk) {
			d.lead("")
			d.add(order("e1", 1))
			d.fail("e1", false, 7, time.Hour)
			d.at = d.at.Add(59 * time.Second)
		},
		status: told{"the oldest pending event is 59s old", "waybill doctor"},
		trace:  told{"7 attempts failed, the next in 59m1s: refused e1", "read the error"},
		doctor: told{"e1 waits for 59s, limit 30s", "waybill trace e1"},
	},
	{
		name: "the database is read-only", plant: func(d *desk) {
			d.add(order("e1", 1))
			d.SetError(memstore.ReadOnly)
		},
		status: told{"the database cannot be written: ping: the database is read-only", "lead the DSN to the writable server"},
		trace:  told{"the database is read-only", "lead the DSN to the writable server"},
		doctor: told{"the database is read-only", "lead the DSN to the writable server"},
	},
	{
		name: "the disk is full", plant: func(d *desk) {
			d.add(order("e1", 1))
			d.SetError(func(op string) error {
				if memstore.ReadOnly(op) != nil {
					return errors.New("database or disk is full")
				}
				return nil
			})
		},
		status: told{"database or disk is full", "free disk space"},
		trace:  told{"database or disk is full", "free disk space"},
		doctor: told{"database or disk is full", "free disk space"},
	},
	{
		name: "the trigger is missing and an event was never queued", store: memstore.Config{NoTrigger: true},
		plant:  func(d *desk) { d.lead(""); d.add(order("e1", 1)) },
		status: told{"the queue trigger is missing", "waybill migrate"},
		trace:  told{"it was never queued", "waybill doctor --requeue --reason"},
		doctor: told{"1 event will never be sent", "waybill doctor --requeue --reason"},
	},
	{
		name: "somebody deleted events", plant: func(d *desk) {
			d.lead("")
			d.add(order("e1", 1))
			d.must(d.DeletePlain(d.t.Context(), "e1"))
		},
		trace:  told{"no such event", "its transaction rolled back, it was cleaned up"},
		doctor: told{"1 queue row without an event: ids 1", "restore the events"},
	},
	{
		name: "the consumer has stopped", plant: func(d *desk) {
			d.read("consumer-1")
			d.hour()
			d.lead("")
			d.add(order("e1", 1))
			d.send("e1")
		},
		inboxes: itself,
		status:  told{"group inventory is not reading: none of its 1 partitions has a live reader", "start the service that consumes as group inventory"},
		trace:   told{"group inventory has no live reader", "start the service that consumes as group inventory"},
		doctor:  told{"group inventory is not reading", "start the service that consumes as group inventory"},
	},
	{
		name: "the consumer holds the event dead", plant: func(d *desk) {
			d.sentTo("inventory", store.HeldDead, "no such article")
		},
		inboxes: itself,
		status:  told{"group inventory: 1 dead event waits for a decision", "waybill held list --group inventory"},
		trace:   told{"group inventory holds it DEAD after 5 attempts: no such article", "waybill held retry e1 --group inventory --reason"},
		doctor:  told{"group inventory: 1 dead event waits for a decision", "waybill held retry (or skip) ID --group inventory --reason"},
	},
	{
		name: "the consumer keeps the event behind a dead one", plant: func(d *desk) {
			d.hold("inventory", "e0", store.HeldDead, 5, "no such article")
			d.sentTo("inventory", store.HeldBlocked, "")
		},
		inboxes: itself,
		status:  told{"group inventory: 1 dead event waits for a decision", "waybill held list --group inventory"},
		trace:   told{"group inventory keeps it behind an earlier event of its key", "it is behind e0 (DEAD): waybill trace e0"},
		doctor:  told{"group inventory: 1 dead event waits for a decision", "waybill held list --group inventory"},
	},
	{
		name: "the consumer fails again and again", plant: func(d *desk) {
			d.sentTo("inventory", store.HeldRetry, "timeout")
			d.at = d.at.Add(50 * time.Second)
		},
		inboxes: itself,
		status:  told{"group inventory: 1 event fails again and again, the oldest is held for 50s", "waybill held retry ID --group inventory"},
		trace:   told{"group inventory fails with it, 5 attempts so far: timeout", "waybill held retry e1 --group inventory --reason"},
		doctor:  told{"group inventory: 1 event failed and will be tried again", "waybill held retry ID --group inventory"},
	},
	{
		name: "the consumer waits for a version that never comes", plant: func(d *desk) {
			d.sentTo("inventory", store.HeldWaiting, "")
		},
		inboxes: itself,
		status:  told{"group inventory: 1 event waits for a lower version", "waybill replay --key"},
		trace:   told{"group inventory waits for a lower version", "waybill held release e1 --group inventory --reason"},
		doctor:  told{"group inventory: 1 event waits for a lower version", "waybill held release (or skip) ID"},
	},
	{
		name: "the consumer's database is away", plant: func(d *desk) { d.lead(""); d.add(order("e1", 1)); d.send("e1") },
		inboxes: func(*desk) []Inbox { return []Inbox{{Name: "inv", Err: errors.New("connection refused")}} },
		status:  told{"inbox inv cannot be read: connection refused", "mend inboxes.inv"},
		trace:   told{"unknown, because inbox inv cannot be read: connection refused", "mend inboxes.inv"},
		doctor:  told{"inbox inv cannot be read: connection refused", "mend inboxes.inv"},
	},
	{
		name: "a producer's clock is ahead", plant: func(d *desk) {
			d.lead("")
			e := order("e1", 1)
			e.OccurredAt = d.at.Add(10 * time.Minute)
			d.add(e)
		},
		trace:  told{"it occurred 10m0s after it was inserted", "synchronise the clocks"},
		doctor: told{"the clock of its producer is ahead", "synchronise the clocks"},
	},
	{
		name: "the tables belong to a newer release", plant: func(d *desk) { d.add(order("e1", 1)); d.SetSchemaVersion(store.SchemaVersion + 1) },
		status: told{"the waybill tables belong to a newer release", ""},
		doctor: told{fmt.Sprint("this release knows ", store.SchemaVersion), "use the release that migrated them"},
	},
	{
		name: "an id that a shell would obey", plant: func(d *desk) {
			d.lead("")
			d.add(order("e1", 1))
			d.hold("inventory; rm -rf ~", "e1", store.HeldDead, 1, "x")
			d.send("e1")
		},
		inboxes: itself,
		status:  told{"dead event waits", "--group 'inventory; rm -rf ~'"},
		trace:   told{"holds it DEAD", "--group 'inventory; rm -rf ~'"},
		doctor:  told{"dead event waits", "--group 'inventory; rm -rf ~'"},
	},
}

// sentTo leaves e1 sent, and held by a group that still reads.
func (d *desk) sentTo(group string, state store.HeldState, reason string) {
	d.t.Helper()
	d.read("consumer-1")
	d.lead("")
	d.add(order("e1", 2))
	d.send("e1")
	d.hold(group, "e1", state, 5, reason)
}

func TestEveryTroubleIsNamedWithItsNextStep(t *testing.T) {
	if len(troubles) < 20 {
		t.Fatalf("%d troubles", len(troubles))
	}
	for _, c := range troubles {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(t, c.store)
			c.plant(d)
			var inboxes []Inbox
			if c.inboxes != nil {
				inboxes = c.inboxes(d)
			}
			c.status.among(t, "status", d.statusText(inboxes))
			c.trace.among(t, "trace", d.traceText(inboxes))
			c.doctor.among(t, "doctor", d.doctorText(inboxes))
		})
	}
}

func (w told) among(t *testing.T, tool, text string) {
	t.Helper()
	for _, part := range []string{w.cause, w.next} {
		if !strings.Contains(text, part) {
			t.Errorf("%s does not say %q:\n%s", tool, part, text)
		}
	}
}

func (d *desk) statusText(inboxes []Inbox) string {
	status, err := ReadStatus(d.t.Context(), d, &StatusConfig{MaxPendingAge: 30 * time.Second, Inboxes: inboxes, CheckWrite: true})
	if err != nil {
		return err.Error()
	}
	text := status.State + "\n"
	for _, c := range status.Causes {
		text += fmt.Sprintf("%s: %s\n  %s\n", c.Name, c.Text, c.Fix)
	}
	return text
}

func (d *desk) traceText(inboxes []Inbox) string {
	result, err := Trace(d.t.Context(), d, inboxes, TraceQuery{EventID: "e1"})
	if err != nil {
		var known *waybill.Error
		if !errors.As(err, &known) {
			d.t.Fatal(err)
		}
		return err.Error()
	}
	lines := text(result.Events[0])
	for _, n := range result.Events[0].Next {
		lines += fmt.Sprintf("%s: %s\n  %s\n", n.Name, n.Text, n.Fix)
	}
	return lines
}

func (d *desk) doctorText(inboxes []Inbox) string {
	diagnosis, err := Doctor(d.t.Context(), d, &DoctorConfig{MaxPendingAge: 30 * time.Second, Inboxes: inboxes})
	d.must(err)
	lines := ""
	for _, e := range diagnosis.Examinations {
		lines += fmt.Sprintf("%t %s: %s\n  %s\n", e.OK, e.Check, e.Detail, e.Hint)
	}
	return lines
}
