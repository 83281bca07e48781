package promwaybill

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybillhq/waybill/store"
)

// OutboxStore is what [NewOutbox] asks.
type OutboxStore interface {
	store.Inspector
	store.Leases
}

// Outbox tells of the queue when it is scraped, also while no relay is alive.
// It is a [prometheus.Collector].
type Outbox struct {
	store   OutboxStore
	timeout time.Duration

	up, events, parked, oldest, lanes, relays *prometheus.Desc
}

// NewOutbox returns a collector that asks the database. timeout bounds one
// scrape; 0 means 5 s.
func NewOutbox(st OutboxStore, timeout time.Duration) *Outbox {
	if timeout <= 0 {
		timeout = 5 * time.Second
	}
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("waybill_outbox_"+name, help, labels, nil)
	}
	return &Outbox{
		store: st, timeout: timeout,
		up:     describe("up", "1 when the database answered this scrape; else no other figure of the outbox is there."),
		events: describe("events", "Unsettled events, by state: pending (failed included), failed (pending after a failed attempt), dead.", "state"),
		parked: describe("parked", "Unsettled events out of the hot index: dead, in backoff, or behind one of these."),
		oldest: describe("oldest_pending_seconds", "Age of the oldest pending event; 0 when there is none."),
		lanes:  describe("lanes", "Lanes by ownership: owned, expired, free.", "state"),
		relays: describe("relays", "Relays with a live heartbeat."),
	}
}

// Describe implements [prometheus.Collector].
func (o *Outbox) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{o.up, o.events, o.parked, o.oldest, o.lanes, o.relays} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (o *Outbox) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), o.timeout)
	defer cancel()
	send := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	counts, err := o.store.Counts(ctx)
	var leases []store.LeaseState
	if err == nil {
		leases, err = o.store.ListLeases(ctx)
	}
	var relays []store.RelayState
	if err == nil {
		relays, err = o.store.ListRelays(ctx)
	}
	if err != nil {
		send(o.up, 0)
		return
	}
	send(o.up, 1)
	send(o.events, float64(counts.Pending), "pending")
	send(o.events, float64(counts.Failed), "failed")
	send(o.events, float64(counts.Dead), "dead")
	send(o.parked, float64(counts.Parked))
	send(o.oldest, counts.OldestAge.Seconds())
	owned, expired := 0, 0
	for _, l := range leases {
		switch {
		case l.Owner == "":
		case l.ExpiresIn > 0:
			owned++
		default:
			expired++
		}
	}
	send(o.lanes, float64(owned), "owned")
	send(o.lanes, float64(expired), "expired")
	send(o.lanes, float64(store.Lanes-owned-expired), "free")
	live := 0
	for _, r := range relays {
		if r.ExpiresIn > 0 {
			live++
		}
	}
	send(o.relays, float64(live))
}
