package promwaybill

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybillhq/waybill/relay"
)

// Relay counts what one relay does. It is a [prometheus.Collector].
type Relay struct {
	instruments
	topics *topics

	published, skipped, failed, retries, dead *prometheus.CounterVec // by topic
	outOfOrder                                *prometheus.CounterVec
	took, age                                 *prometheus.HistogramVec
	fetched, settled                          *prometheus.HistogramVec
	rows                                      *prometheus.CounterVec
	lanes, relays                             *prometheus.GaugeVec
	lost, stale                               *prometheus.CounterVec
	paused                                    *prometheus.GaugeVec
	pauses                                    *prometheus.CounterVec
	known, inFlight, heldKeys, draining, owed *prometheus.GaugeVec
	log                                       *logMetrics
}

// NewRelay returns a collector to be fed by [Relay.Events].
func NewRelay(config *Config) *Relay {
	r := &Relay{instruments: instruments{subsystem: "relay"}, topics: newTopics(config)}
	r.published = r.counter("published_total", "Events that the broker accepted.", "topic")
	r.skipped = r.counter("skipped_total", "Skip markers that the broker accepted.", "topic")
	r.failed = r.counter("failed_attempts_total", "Attempts that were refused or not answered, by the class of the failure. The success rate is published / (published + failed_attempts).", "topic", "class")
	r.retries = r.counter("retries_total", "Attempts after an event's first.", "topic")
	r.dead = r.counter("dead_total", "Events that died.", "topic")
	r.outOfOrder = r.counter("out_of_order_total", "Events sent after a higher version of their aggregate.", "topic")
	r.took = r.histogram("publish_seconds", "Time until the broker answered.", "topic")
	r.age = r.histogram("delivery_seconds", "Time from an event's insertion until the broker accepted it.", "topic")
	r.fetched = r.histogram("fetch_seconds", "Time of reads that found new rows.")
	r.rows = r.counter("fetched_rows_total", "Rows found by reads.")
	r.settled = r.histogram("settle_seconds", "Time of transactions that settled rows.")
	r.lanes = r.gauge("lanes_owned", "Lanes that this relay owns.")
	r.relays = r.gauge("relays", "Live relays, as this one sees them.")
	r.lost = r.counter("leases_lost_total", "Lanes lost without having been given up.")
	r.stale = r.counter("stale_writes_total", "Rows whose change was refused because their lane's lease was lost.")
	r.paused = r.gauge("paused", "1 while a scope (broker, topic, database) is away.", "scope", "topic")
	r.pauses = r.counter("pauses_total", "How often a scope went away.", "scope", "topic")
	r.known = r.gauge("rows_known", "Unsettled rows in memory.")
	r.inFlight = r.gauge("in_flight", "Events given to the broker, without an answer yet: what is processing.")
	r.heldKeys = r.gauge("held_keys", "Keys in backoff or behind a dead event.")
	r.draining = r.gauge("draining_keys", "Keys that are read one by one.")
	r.owed = r.gauge("unsettled", "Events that the broker answered for and the database does not know of yet.")
	r.log = newLogMetrics(&r.instruments)
	for _, g := range []*prometheus.GaugeVec{r.lanes, r.relays, r.known, r.inFlight, r.heldKeys, r.draining, r.owed} {
		g.WithLabelValues().Set(0)
	}
	for _, c := range []*prometheus.CounterVec{r.lost, r.stale, r.rows} {
		c.WithLabelValues()
	}
	return r
}

// Events returns hooks that count and then tell next.
func (r *Relay) Events(next relay.Events) relay.Events {
	return relay.Events{
		Fetched: func(i relay.FetchedInfo) {
			r.fetched.WithLabelValues().Observe(i.Took.Seconds())
			r.rows.WithLabelValues().Add(float64(i.Rows))
			tell(next.Fetched, i)
		},
		Published: func(i relay.PublishedInfo) {
			r.publishedOne(&i)
			tell(next.Published, i)
		},
		Failed: func(i relay.FailedInfo) {
			r.failedOne(&i)
			tell(next.Failed, i)
		},
		Settled: func(i relay.SettledInfo) {
			r.settled.WithLabelValues().Observe(i.Took.Seconds())
			tell(next.Settled, i)
		},
		Paused: func(i relay.PausedInfo) {
			labels := []string{i.Scope, r.scopeTopic(i.Topic)}
			r.paused.WithLabelValues(labels...).Set(1)
			r.pauses.WithLabelValues(labels...).Inc()
			tell(next.Paused, i)
		},
		Resumed: func(i relay.PausedInfo) {
			r.paused.WithLabelValues(i.Scope, r.scopeTopic(i.Topic)).Set(0)
			tell(next.Resumed, i)
		},
		Leases: func(i relay.LeasesInfo) {
			r.lanes.WithLabelValues().Set(float64(i.Owned))
			r.relays.WithLabelValues().Set(float64(i.Relays))
			r.lost.WithLabelValues().Add(float64(len(i.Lost)))
			tell(next.Leases, i)
		},
		StaleWrite: func(i relay.StaleWriteInfo) {
			r.stale.WithLabelValues().Add(float64(i.Rows))
			tell(next.StaleWrite, i)
		},
		OutOfOrder: func(i relay.PublishedInfo) {
			r.outOfOrder.WithLabelValues(r.topics.label(i.Topic)).Inc()
			tell(next.OutOfOrder, i)
		},
		Feed: func(i relay.FeedInfo) {
			r.log.changed(&i)
			tell(next.Feed, i)
		},
		Stats: func(s relay.Stats) {
			r.stats(&s)
			tell(next.Stats, s)
		},
	}
}

func (r *Relay) publishedOne(i *relay.PublishedInfo) {
	topic := r.topics.label(i.Topic)
	if i.Skipped {
		r.skipped.WithLabelValues(topic).Inc()
	} else {
		r.published.WithLabelValues(topic).Inc()
		r.age.WithLabelValues(topic).Observe(i.Age.Seconds())
	}
	r.took.WithLabelValues(topic).Observe(i.Took.Seconds())
	if i.Attempt > 1 {
		r.retries.WithLabelValues(topic).Inc()
	}
}

func (r *Relay) failedOne(i *relay.FailedInfo) {
	topic := r.topics.label(i.Topic)
	r.failed.WithLabelValues(topic, i.Class).Inc()
	if i.Attempt > 1 {
		r.retries.WithLabelValues(topic).Inc()
	}
	if i.Dead {
		r.dead.WithLabelValues(topic).Inc()
	}
}

func (r *Relay) stats(s *relay.Stats) {
	r.lanes.WithLabelValues().Set(float64(s.Lanes))
	r.known.WithLabelValues().Set(float64(s.Rows))
	r.inFlight.WithLabelValues().Set(float64(s.InFlight))
	r.heldKeys.WithLabelValues().Set(float64(s.HeldKeys))
	r.draining.WithLabelValues().Set(float64(s.Draining))
	r.owed.WithLabelValues().Set(float64(s.Unsettled))
	if s.Feed != nil {
		r.log.picture(s.Feed)
	}
}

// scopeTopic is empty for an outage of all topics.
func (r *Relay) scopeTopic(topic string) string {
	if topic == "" {
		return ""
	}
	return r.topics.label(topic)
}

func tell[I any](hook func(I), info I) {
	if hook != nil {
		hook(info)
	}
}
